// SPDX-License-Identifier: Apache-2.0
// Encode PNG files. The functions are reentrant and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "png/metadata.h"
#include "transform/color.h"

namespace headrace {

inline constexpr int kMaxPngLevel = 12;

// Check that PNG can hold the picture: uint8 or uint16 with 1 to 4 channels, sides in [1, 2^31 - 1].
Status check_png(const Picture& picture, const PngMetadata& metadata) noexcept;

// Bytes that are always enough for the file of a picture that check_png accepts.
std::uint64_t png_bound(const Picture& picture, const PngMetadata& metadata) noexcept;

// Write a file into the first `size` bytes of `out`, which has at least png_bound() bytes. `level` is libdeflate's,
// from 0 (stored) to kMaxPngLevel. The bytes are a pure function of the arguments and the version of libdeflate, not of
// the SIMD target. Allocates a copy of the pixels.
Status encode_png(const Picture& picture, const PngMetadata& metadata, int level, std::span<std::uint8_t> out,
                  std::size_t& size) noexcept;

}  // namespace headrace
