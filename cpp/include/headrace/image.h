// SPDX-License-Identifier: Apache-2.0
// The parsed and validated head of an `.hri` file (spec/image.md §1 to §4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/status.h"

namespace headrace {

using Bytes = std::span<const std::uint8_t>;

enum class Mode : std::uint8_t { fast = 0, dense = 1 };

// Version 1, with bit 7 set so that the number of one bits is even: no single flipped bit passes for another version.
inline constexpr std::uint8_t kVersionByte = 0x81;
inline constexpr std::uint32_t kTileHeight = 32;
inline constexpr std::uint32_t kMinTileWidthLog2 = 5;
inline constexpr std::uint32_t kMaxTileWidthLog2 = 8;
inline constexpr std::uint32_t kMaxChannels = 64;
inline constexpr std::uint32_t kFixedHeaderBytes = 24;

// Invariants after parse_header returned ok: every field is within the limits of the spec, the spans lie within the
// file, the header checksum matches, and the tile lengths add up to the rest of the file, each within its bounds.
struct ImageHeader {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t channels = 0;
  std::uint32_t depth = 0;  // bits a sample, 8 or 16
  bool is_signed = false;
  Mode mode = Mode::fast;
  std::uint32_t tile_width = 0;
  std::uint32_t tiles_x = 0;
  std::uint32_t tiles_y = 0;
  std::uint32_t rank_count = 0;  // 0: the file has no ranks
  std::uint32_t coded_bits = 0;  // n of the spec: 8 or 16
  Bytes metadata;                // the whole section, entries validated
  Bytes ranks;
  Bytes tile_lengths;  // 4 bytes a tile, unaligned
  Bytes tile_sums;
  std::uint64_t tiles_offset = 0;  // of the first tile's first byte

  std::uint64_t tiles() const noexcept { return std::uint64_t{tiles_x} * tiles_y; }
  std::uint32_t sample_bytes() const noexcept { return depth / 8; }
  std::uint32_t pixel_bytes() const noexcept { return channels * sample_bytes(); }
};

// Parse and validate everything before the first tile. Allocates nothing. Thread-safe.
Status parse_header(Bytes file, ImageHeader& header) noexcept;

// The same with only the beginning of a file of `file_size` bytes at hand.
Status parse_header(Bytes beginning, std::uint64_t file_size, ImageHeader& header) noexcept;

// How many bytes come before the first tile, as the first kFixedHeaderBytes claim; 0 if they are no header.
std::uint64_t claimed_head_bytes(Bytes beginning) noexcept;

struct MetadataEntry {
  Bytes key;
  Bytes value;
};

// Step through a validated metadata section: sets `entry`, shortens `rest`, returns false at the end.
bool next_metadata(Bytes& rest, MetadataEntry& entry) noexcept;

// Check a metadata section that a caller hands to the encoder.
Status check_metadata(Bytes section) noexcept;

}  // namespace headrace
