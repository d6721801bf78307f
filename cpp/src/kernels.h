// SPDX-License-Identifier: Apache-2.0
// What a SIMD target offers to the rest of the core: the hot loops over tiles, as a table of functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/codec.h"
#include "layout.h"
#include "png/filter.h"
#include "png/unfilter.h"
#include "transform/pixel_kernels.h"

namespace headrace {

// Tiles that lie side by side are predicted in one wave of at most this many columns: the 62 steps in which not all
// lanes have work are then paid once. 3 planes of bytes of this width are 57 KB.
inline constexpr std::uint32_t kGroupColumns = 512;
static_assert(kMaxTileWidth <= kGroupColumns);

// Kernels may read this far beyond the end of a tile; a tile that lies closer to the end of the file is copied first.
inline constexpr std::size_t kOverread = 128;

// A run of tiles of one tile row, and where the part of them that lies in the region goes.
struct DecodeTiles {
  const ImageHeader* header;
  const std::uint8_t* first;  // first byte of the first tile
  const std::uint8_t* end;    // of the last tile
  const std::uint8_t* file_end;
  std::uint32_t tile_x;
  std::uint32_t tile_y;
  std::uint32_t count;  // at most kGroupColumns / tile_width
  Region region;
  std::uint8_t* out;  // of the region's first pixel
  std::ptrdiff_t row_stride;
  const std::uint16_t* values;  // the sample for each rank; null without ranks
  std::uint8_t* scratch;        // scratch_bytes() bytes, 64-byte aligned, initialised once; a thread's own
};

struct EncodeTile {
  const Pixels* pixels;
  Mode mode;
  std::uint32_t x, y, w, h;  // in pixels
  std::uint32_t coded_bits;
  const std::uint16_t* ranks;  // the rank for each carried value; null without ranks
  std::uint8_t* scratch;
  std::uint8_t* out;  // room for encode_tile_bound() bytes
};

// How checksums are taken with a target: by tables, by the CPU's own instruction, by wide carry-less products. Where
// the CPU lacks one of these, the one before it serves.
enum Checksums : std::uint8_t { kTables, kInstruction, kProducts };

struct Kernels {
  const char* name;
  Checksums checksums;
  std::size_t (*decode_scratch_bytes)(const ImageHeader& header) noexcept;
  // Null, or what is wrong with tile `bad` of the run.
  const char* (*decode_tiles)(const DecodeTiles& job, std::uint32_t& bad) noexcept;
  std::size_t (*encode_scratch_bytes)(std::uint32_t channels, std::uint32_t coded_bits) noexcept;
  // Returns the tile's length.
  std::size_t (*encode_tile)(const EncodeTile& job) noexcept;
  void (*unfilter_rows)(const UnfilterRows& job) noexcept;
  void (*filter_row)(const FilterRow& job) noexcept;
  PixelKernels pixels;
};

// Room that encode_tile may write to: the raw tile plus what a coding may overshoot it by before it is given up.
inline constexpr std::size_t encode_tile_bound(std::uint32_t tile_width, std::uint32_t channels,
                                               std::uint32_t coded_bits) {
  return 4 * std::size_t{tile_width} * kTileHeight * channels * (coded_bits / 8) + 4096 + 64 * channels;
}

const Kernels& kernels() noexcept;  // of the active target

const Kernels* scalar_kernels() noexcept;
#if defined(HEADRACE_X86)
const Kernels* avx2_kernels() noexcept;
const Kernels* avx2_bmi2_kernels() noexcept;
const Kernels* avx512_kernels() noexcept;
#endif
#if defined(HEADRACE_NEON)
const Kernels* neon_kernels() noexcept;
#endif

}  // namespace headrace
