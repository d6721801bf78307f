// SPDX-License-Identifier: Apache-2.0
// What a decoder on a device is told of a batch: a table with a column for each tile that a region touches, and one
// with a column for each image. The rows are those of headrace/kernels/_fields.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headrace/codec.h"

namespace headrace::device {

enum TileRow : std::size_t {
  kTileAt,
  kTileLength,
  kTileImage,
  kTileNumber,
  kTileKind,
  kTileBits,
  kTileChannels,
  kTileHeightRow,
  kTileWidthRow,
  kTileTop,
  kTileLeft,
  kTileValues,
  kTileEntries,
  kTileNumbers,
  kTileSource,
  kTileSum,
  kTileRows
};

enum ImageRow : std::size_t {
  kImageHeight,
  kImageWidth,
  kImageChannels,
  kImageDType,
  kImageRanks,
  kImageRankCount,
  kImageOut,
  kImageStrideC,
  kImageStrideY,
  kImageStrideX,
  kImageFlip,
  kImageRows
};

// A borrowed table, row by row.
struct Table {
  std::int64_t* data = nullptr;
  std::size_t columns = 0;

  std::int64_t& at(std::size_t row, std::size_t column) const noexcept { return data[row * columns + column]; }
};

// An image of which only the beginning is at hand, and the part of it that is wanted. After open_region returned ok the
// header is that of parse_header and the region is not empty and lies within the image.
struct Wanted {
  ImageHeader header;
  Region region;

  std::uint32_t first_row() const noexcept { return region.top / kTileHeight; }
  std::uint32_t first_column() const noexcept { return region.left / header.tile_width; }
  std::uint32_t rows() const noexcept { return (region.top + region.height - 1) / kTileHeight + 1 - first_row(); }
  std::uint32_t columns() const noexcept {
    return (region.left + region.width - 1) / header.tile_width + 1 - first_column();
  }
  std::uint64_t tiles() const noexcept { return std::uint64_t{rows()} * columns(); }
};

// The kind of an image's samples: 0 for uint8, 1 for uint16, 2 for int16.
inline std::int64_t sample_kind(const ImageHeader& header) noexcept {
  return header.depth == 8 ? 0 : header.is_signed ? 2 : 1;
}

inline constexpr std::int64_t kWholeImage = INT64_MIN;

// `asked` is top, left, height and width; kWholeImage for a height stands for the whole image. A region that is not
// within the image is Code::bad_argument, one of more than `max_pixels` Code::too_large.
Status open_region(Bytes beginning, std::uint64_t file_size, const std::int64_t asked[4], std::uint64_t max_pixels,
                   Wanted& wanted) noexcept;

// Fill the columns of the tiles of image number `image`, `wanted.tiles()` of them, from `column` on. `at` is where the
// next tile goes in the payload. Kinds are not known before the tiles are read and stay as they were, like what hangs
// on the scratch.
void list_tiles(const Wanted& wanted, std::size_t image, const Table& tiles, std::size_t column,
                std::int64_t& at) noexcept;

// Fill an image's column and append its ranks. Needs memory, so it may throw std::bad_alloc.
void list_image(const Wanted& wanted, std::size_t image, const Table& images, std::vector<std::int32_t>& ranks);

// Is the kind of a tile of `length` bytes one of the mode's, and the length one that the kind has? The tile has
// `pixels` of `pixel_bytes` each. What is wrong, or null.
const char* wrong_kind(Mode mode, std::uint8_t kind, std::uint64_t length, std::uint64_t pixels,
                       std::uint64_t pixel_bytes) noexcept;

// How much scratch a batch needs, in elements.
struct Scratch {
  std::int64_t values = 0, entries = 0, numbers = 0;
};

// Give each tile its places in the scratch, by its kind and its sides: fills the rows of the table that name them.
// Trusts the sides no more than that they are those of list_tiles.
Scratch lay_out_scratch(const Table& tiles) noexcept;

// The tiles of a kind, and of each of its chains the tile and then, behind all of those, the plane. A chain is a plane
// of a tile; a palette has one. Needs memory, so it may throw std::bad_alloc.
void list_chains(const Table& tiles, std::uint8_t kind, std::vector<std::int32_t>& own,
                 std::vector<std::int32_t>& chains);

}  // namespace headrace::device
