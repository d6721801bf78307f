// SPDX-License-Identifier: Apache-2.0
// Makes the checksums of a mutated file match again, so that the fuzzer's bytes reach the code behind them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headrace/codec.h"

namespace headrace::fuzz {

inline std::uint32_t load_le(const std::uint8_t* at, unsigned n_bytes) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < n_bytes; ++i) value |= std::uint32_t{at[i]} << (8 * i);
  return value;
}

inline void store_le32(std::uint8_t* at, std::uint32_t value) {
  for (unsigned i = 0; i < 4; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

// Where the index of a file lies, as far as its fixed header can be believed.
struct Index {
  std::uint64_t tiles = 0;
  std::uint64_t lengths = 0;     // offset of the tile lengths
  std::uint64_t sums = 0;        // offset of the tile sums
  std::uint64_t header_sum = 0;  // offset of the header sum
  std::uint64_t body = 0;        // offset of the first tile
};

// Nothing is checked but what is needed to stay within the file: bad fields must reach the decoder.
inline std::optional<Index> locate_index(const std::vector<std::uint8_t>& file) {
  if (file.size() < kFixedHeaderBytes) return std::nullopt;
  const std::uint64_t width = load_le(&file[8], 2), height = load_le(&file[10], 2);
  const unsigned tile_width_log2 = file[12];
  if (width == 0 || height == 0 || tile_width_log2 > 16) return std::nullopt;
  const std::uint64_t tile_width = std::uint64_t{1} << tile_width_log2;
  Index index;
  index.tiles = ((width + tile_width - 1) / tile_width) * ((height + kTileHeight - 1) / kTileHeight);
  index.lengths = std::uint64_t{kFixedHeaderBytes} + load_le(&file[16], 4) + load_le(&file[20], 4);
  index.sums = index.lengths + 4 * index.tiles;
  index.header_sum = index.sums + 4 * index.tiles;
  index.body = index.header_sum + 4;
  if (index.body > file.size()) return std::nullopt;
  return index;
}

// Give the last tile whatever bytes the others leave, so that inserted and erased bytes do not end at the header.
inline void repair_last_length(std::vector<std::uint8_t>& file, const Index& index) {
  std::uint64_t others = 0;
  for (std::uint64_t tile = 0; tile + 1 < index.tiles; ++tile) others += load_le(&file[index.lengths + 4 * tile], 4);
  const std::uint64_t body_bytes = file.size() - index.body;
  if (others >= body_bytes) return;
  store_le32(&file[index.lengths + 4 * (index.tiles - 1)], static_cast<std::uint32_t>(body_bytes - others));
}

// Recompute every sum that the lengths allow. With `repair` the magic, version and last length are set right as well.
inline void seal(std::vector<std::uint8_t>& file, bool repair) {
  const auto index = locate_index(file);
  if (!index) return;
  if (repair) {
    store_le32(&file[0], 0x49524889u);
    file[4] = kVersionByte;
    repair_last_length(file, *index);
  }
  std::uint64_t offset = index->body;
  for (std::uint64_t tile = 0; tile < index->tiles; ++tile) {
    const std::uint64_t n_bytes = load_le(&file[index->lengths + 4 * tile], 4);
    if (n_bytes > file.size() - offset) break;
    store_le32(&file[index->sums + 4 * tile], crc32c(Bytes(file).subspan(offset, n_bytes)));
    offset += n_bytes;
  }
  store_le32(&file[index->header_sum], crc32c(Bytes(file).first(index->header_sum)));
}

}  // namespace headrace::fuzz
