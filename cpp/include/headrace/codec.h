// SPDX-License-Identifier: Apache-2.0
// Decode and encode whole images. Every function is reentrant and thread-safe; memory is the caller's, except for
// scratch that is bounded by the tile size, the channels and the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "headrace/image.h"

namespace headrace {

struct Region {
  std::uint32_t top = 0;
  std::uint32_t left = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
};

// Decode `region` of a file whose header was parsed from the same bytes. `out` holds region.height rows of
// region.width * pixel_bytes contiguous bytes, `row_stride` bytes apart (may be negative, |row_stride| >= a row). Tiles
// are spread over `threads` threads (0: one a core). On failure the contents of `out` are unspecified.
Status decode(Bytes file, const ImageHeader& header, Region region, std::uint8_t* out, std::ptrdiff_t row_stride,
              unsigned threads) noexcept;

struct DecodeJob {
  Bytes file;
  ImageHeader header;
  Region region;
  std::uint8_t* out = nullptr;
  std::ptrdiff_t row_stride = 0;
  Status status;  // set by decode_many
};

// Decode many images, spread over `threads` threads by image (0: one a core).
void decode_many(std::span<DecodeJob> jobs, unsigned threads) noexcept;

// A borrowed image of any strides, in bytes. Samples are in native byte order.
struct Pixels {
  const std::uint8_t* origin = nullptr;
  std::ptrdiff_t row_stride = 0;
  std::ptrdiff_t column_stride = 0;
  std::ptrdiff_t channel_stride = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;
  std::uint32_t depth = 0;
  bool is_signed = false;
};

// An encoded image in pieces. `size` is final once `encode` returned ok; `write` concatenates the pieces into
// `size()` bytes of the caller's.
class Encoded {
 public:
  Encoded() noexcept;
  ~Encoded();
  Encoded(Encoded&&) noexcept;
  Encoded& operator=(Encoded&&) noexcept;

  bool valid() const noexcept { return parts_ != nullptr; }  // false when there was no memory to begin with
  std::uint64_t size() const noexcept;
  void write(std::uint8_t* out) const noexcept;

  struct Parts;
  Parts& parts() noexcept { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

// Encode an image. `metadata` is a whole section as in spec §3. The bytes are a pure function of pixels, mode and
// metadata: not of threads, target or time.
Status encode(const Pixels& pixels, Mode mode, Bytes metadata, unsigned threads, Encoded& encoded) noexcept;

// CRC-32C as the spec defines it; `seed` continues an earlier sum.
std::uint32_t crc32c(Bytes bytes, std::uint32_t seed = 0) noexcept;

}  // namespace headrace
