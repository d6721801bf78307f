// SPDX-License-Identifier: Apache-2.0
#include "device/tiles.h"

#include <algorithm>
#include <bit>

#include "bytes.h"
#include "layout.h"

namespace headrace::device {
namespace {

constexpr std::int64_t kAlignment = 16;         // of each tile in the payload and in the scratch
constexpr std::int64_t kGroup = 4, kBlock = 8;  // sides of the squares of packed and coded tiles
// What a coded tile keeps in its entries: some words of its own, some of each plane, some of each block.
constexpr std::int64_t kTileWords = 4, kPlaneWords = 12, kBlockWords = 4;

constexpr std::int64_t up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }
constexpr std::int64_t aligned(std::int64_t value) { return up(value, kAlignment) * kAlignment; }

bool within(const std::int64_t asked[4], std::int64_t height, std::int64_t width) noexcept {
  return asked[0] >= 0 && asked[1] >= 0 && asked[2] >= 1 && asked[3] >= 1 && asked[2] <= height && asked[3] <= width &&
         asked[0] <= height - asked[2] && asked[1] <= width - asked[3];
}

}  // namespace

Status open_region(Bytes beginning, std::uint64_t file_size, const std::int64_t asked[4], std::uint64_t max_pixels,
                   Wanted& wanted) noexcept {
  if (const Status status = parse_header(beginning, file_size, wanted.header); !status) return status;
  const ImageHeader& header = wanted.header;
  if (asked[2] == kWholeImage) {
    wanted.region = {0, 0, header.height, header.width};
  } else if (within(asked, header.height, header.width)) {
    wanted.region = {static_cast<std::uint32_t>(asked[0]), static_cast<std::uint32_t>(asked[1]),
                     static_cast<std::uint32_t>(asked[2]), static_cast<std::uint32_t>(asked[3])};
  } else {
    return {Code::bad_argument, "the region is not within the image, or is empty"};
  }
  if (std::uint64_t{wanted.region.height} * wanted.region.width > max_pixels)
    return {Code::too_large, "the region has more pixels than max_pixels"};
  return {};
}

void list_tiles(const Wanted& wanted, std::size_t image, const Table& tiles, std::size_t column,
                std::int64_t& at) noexcept {
  const ImageHeader& header = wanted.header;
  std::uint64_t source = header.tiles_offset;
  std::uint64_t summed = 0;  // tiles whose lengths are in `source`
  for (std::uint32_t y = wanted.first_row(); y < wanted.first_row() + wanted.rows(); ++y) {
    for (std::uint32_t x = wanted.first_column(); x < wanted.first_column() + wanted.columns(); ++x, ++column) {
      const std::uint64_t number = std::uint64_t{y} * header.tiles_x + x;
      for (; summed < number; ++summed) source += load_le<std::uint32_t>(&header.tile_lengths[4 * summed]);
      const std::int64_t length = load_le<std::uint32_t>(&header.tile_lengths[4 * number]);
      const auto set = [&](TileRow row, auto value) { tiles.at(row, column) = static_cast<std::int64_t>(value); };
      set(kTileAt, at);
      set(kTileLength, length);
      set(kTileImage, image);
      set(kTileNumber, number);
      set(kTileBits, header.coded_bits);
      set(kTileChannels, header.channels);
      set(kTileHeightRow, std::min(kTileHeight, header.height - y * kTileHeight));
      set(kTileWidthRow, std::min(header.tile_width, header.width - x * header.tile_width));
      set(kTileTop, std::int64_t{y} * kTileHeight - wanted.region.top);
      set(kTileLeft, std::int64_t{x} * header.tile_width - wanted.region.left);
      set(kTileSource, source);
      set(kTileSum, load_le<std::uint32_t>(&header.tile_sums[4 * number]));
      at += aligned(length);
    }
  }
}

void list_image(const Wanted& wanted, std::size_t image, const Table& images, std::vector<std::int32_t>& ranks) {
  const ImageHeader& header = wanted.header;
  const auto set = [&](ImageRow row, auto value) { images.at(row, image) = static_cast<std::int64_t>(value); };
  set(kImageHeight, wanted.region.height);
  set(kImageWidth, wanted.region.width);
  set(kImageChannels, header.channels);
  set(kImageDType, sample_kind(header));
  set(kImageRanks, ranks.size());
  set(kImageRankCount, header.rank_count);
  if (header.rank_count == 0) return;
  // The values in use, in ascending order (spec §4). parse_header has counted them.
  const Bytes section = header.ranks;
  ranks.reserve(ranks.size() + header.rank_count);
  if (section[0] == 0) {
    const std::uint32_t size = header.sample_bytes();
    for (std::size_t i = 0; i < header.rank_count; ++i) {
      const std::uint8_t* const p = &section[5 + i * size];
      ranks.push_back(size == 1 ? *p : load_le<std::uint16_t>(p));
    }
    return;
  }
  const std::int32_t first = load_le<std::uint16_t>(&section[1]);
  for (std::size_t i = 3; i < section.size(); ++i)
    for (unsigned bits = section[i]; bits != 0; bits &= bits - 1)
      ranks.push_back(first + static_cast<std::int32_t>(8 * (i - 3)) + std::countr_zero(bits));
}

const char* wrong_kind(Mode mode, std::uint8_t kind, std::uint64_t length, std::uint64_t pixels,
                       std::uint64_t pixel_bytes) noexcept {
  if (kind > kCoded || kind == (mode == Mode::fast ? kCoded : kPacked))
    return mode == Mode::fast ? "its kind is not one of mode fast" : "its kind is not one of mode dense";
  if ((kind == kConstant && length != 1 + pixel_bytes) || (kind == kRaw && length != 1 + pixels * pixel_bytes))
    return "it has another length than its kind";
  return nullptr;
}

Scratch lay_out_scratch(const Table& tiles) noexcept {
  Scratch used;
  for (std::size_t i = 0; i < tiles.columns; ++i) {
    const std::int64_t kind = tiles.at(kTileKind, i), channels = tiles.at(kTileChannels, i);
    const std::int64_t height = tiles.at(kTileHeightRow, i), width = tiles.at(kTileWidthRow, i);
    Scratch own;
    if (kind == kPalette || kind == kPacked || kind == kCoded) {
      const std::int64_t skew = kind == kCoded ? 2 : 1;  // columns that a lane is behind the one above it
      own.values = (kind == kPalette ? 1 : channels) * kTileHeight * (width + skew * (kTileHeight - 1));
    }
    if (kind == kPacked) own.entries = own.numbers = channels * up(height, kGroup) * up(width, kGroup);
    if (kind == kCoded) {
      const std::int64_t blocks = channels * up(height, kBlock) * up(width, kBlock);
      own.entries = kTileWords + kPlaneWords * channels + kBlockWords * blocks;
      own.numbers = blocks * (1 + kBlock * kBlock);
    }
    tiles.at(kTileValues, i) = used.values;
    tiles.at(kTileEntries, i) = used.entries;
    tiles.at(kTileNumbers, i) = used.numbers;
    used.values += aligned(own.values);
    used.entries += aligned(own.entries);
    used.numbers += aligned(own.numbers);
  }
  return used;
}

void list_chains(const Table& tiles, std::uint8_t kind, std::vector<std::int32_t>& own,
                 std::vector<std::int32_t>& chains) {
  const auto planes = [&](std::int32_t tile) {
    return kind == kPalette ? 1 : static_cast<std::int32_t>(tiles.at(kTileChannels, static_cast<std::size_t>(tile)));
  };
  for (std::size_t i = 0; i < tiles.columns; ++i)
    if (tiles.at(kTileKind, i) == kind) own.push_back(static_cast<std::int32_t>(i));
  for (const std::int32_t tile : own) chains.insert(chains.end(), static_cast<std::size_t>(planes(tile)), tile);
  chains.reserve(2 * chains.size());
  for (const std::int32_t tile : own)
    for (std::int32_t plane = 0; plane < planes(tile); ++plane) chains.push_back(plane);
}

}  // namespace headrace::device
