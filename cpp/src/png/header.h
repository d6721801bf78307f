// SPDX-License-Identifier: Apache-2.0
// The chunks of a PNG file: each one's place, length and checksum are checked before its contents are used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/image.h"

namespace headrace {

// The color types of IHDR.
enum class PngKind : std::uint8_t { gray = 0, rgb = 2, palette = 3, gray_alpha = 4, rgba = 6 };

// Invariants after parse_png returned ok: both sides are in [1, 2^31 - 1]; kind and depth are a pair that PNG has; a
// palette image has 1 to 256 entries and at most as many alphas. All spans lie within the file.
struct PngHeader {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t depth = 0;  // bits per sample as stored: 1, 2, 4, 8 or 16
  PngKind kind = PngKind::gray;
  bool interlaced = false;
  Bytes palette;  // RGB triples; empty if the kind is another
  Bytes alphas;   // of the palette's first entries. A color key of other kinds is ignored, as Pillow does.
  // The IDAT chunks, with heads and checksums, which are not checked yet. Empty if only the head was parsed.
  Bytes data;
  std::size_t data_offset = 0;

  std::uint32_t stored_channels() const noexcept {
    switch (kind) {
      case PngKind::rgb:
        return 3;
      case PngKind::gray_alpha:
        return 2;
      case PngKind::rgba:
        return 4;
      default:
        return 1;
    }
  }
  // With the colors of a palette, or with its indices.
  std::uint32_t channels(bool indices) const noexcept {
    if (kind != PngKind::palette || indices) return stored_channels();
    return alphas.empty() ? 3 : 4;
  }
  std::uint32_t pixel_bits() const noexcept { return depth * stored_channels(); }
};

struct PngChunk {
  std::uint32_t name = 0;  // as a big-endian number
  Bytes contents;
};

constexpr std::uint32_t png_name(const char (&name)[5]) noexcept {
  std::uint32_t number = 0;
  for (int i = 0; i < 4; ++i) number = number << 8 | static_cast<std::uint8_t>(name[i]);
  return number;
}

inline constexpr std::size_t kPngSignatureBytes = 8;
inline constexpr std::size_t kPngChunkBytes = 12;  // of a chunk, beside its contents

enum class PngCheck : std::uint8_t { all, all_but_data };

// The chunk at `offset`, which is at most the size of the file. all_but_data: do not check the checksum of IDAT.
Status read_png_chunk(Bytes file, std::size_t offset, PngCheck check, PngChunk& chunk) noexcept;

enum class PngExtent : std::uint8_t { head, file };

// Parse the chunks before the first IDAT, or all of them. Bytes behind IEND are ignored. Allocates nothing.
Status parse_png(Bytes file, PngExtent extent, PngHeader& header) noexcept;

}  // namespace headrace
