// SPDX-License-Identifier: Apache-2.0
// Parsing and validating the head of a file (spec/image.md §1 to §4). Nothing here trusts a length: every one is
// compared with what is left of the file before it is used, in 64 bits.
#include "headrace/image.h"

#include <algorithm>
#include <bit>

#include "bytes.h"
#include "headrace/codec.h"

namespace headrace {
namespace {

constexpr std::uint8_t kMagic[4] = {0x89, 'H', 'R', 'I'};

Status corrupt(const char* what, std::uint64_t offset) noexcept { return {Code::corrupt, what, offset, -1}; }

bool ascending(Bytes a, Bytes b) noexcept {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

// Is it valid UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF?
bool is_utf8(Bytes text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const std::uint32_t first = text[i++];
    if (first < 0x80) continue;
    const int more = std::countl_one(static_cast<std::uint8_t>(first)) - 1;  // bytes that follow
    if (more < 1 || more > 3 || text.size() - i < static_cast<std::size_t>(more)) return false;
    std::uint32_t point = first & (0x3FU >> more);
    for (int k = 0; k < more; ++k) {
      if ((text[i] & 0xC0) != 0x80) return false;
      point = point << 6 | (text[i++] & 0x3FU);
    }
    constexpr std::uint32_t kMin[] = {0x80, 0x800, 0x10000};  // that need so many bytes
    if (point < kMin[more - 1] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return false;
  }
  return true;
}

// Sets header.rank_count from a section of at least one byte.
Status parse_ranks(Bytes section, std::uint64_t offset, ImageHeader& header) noexcept {
  const std::uint64_t levels = std::uint64_t{1} << header.depth;
  const std::uint32_t size = header.sample_bytes();
  std::uint64_t count = 0;
  if (section[0] == 0) {
    if (section.size() < 5) return corrupt("the list of ranks is cut short", offset);
    count = load_le<std::uint32_t>(&section[1]);
    if (count > levels || section.size() != 5 + count * size)
      return corrupt("the list of ranks does not have its stated length", offset);
    std::uint32_t last = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint8_t* p = &section[5 + i * size];
      const std::uint32_t value = size == 1 ? *p : load_le<std::uint16_t>(p);
      if (i > 0 && value <= last) return corrupt("the list of ranks is not strictly ascending", offset + 5 + i * size);
      last = value;
    }
  } else if (section[0] == 1) {
    if (section.size() < 4) return corrupt("the bitmap of ranks is cut short", offset);
    const std::uint64_t first = load_le<std::uint16_t>(&section[1]);
    const Bytes bits = section.subspan(3);
    if ((bits.front() & 1) == 0 || bits.back() == 0)
      return corrupt("the bitmap of ranks does not begin and end with a value", offset);
    const std::uint64_t last = first + 8 * (bits.size() - 1) + std::bit_width(unsigned{bits.back()}) - 1;
    if (last >= levels) return corrupt("the bitmap of ranks exceeds the depth", offset);
    for (const std::uint8_t b : bits) count += static_cast<std::uint64_t>(std::popcount(b));
  } else {
    return corrupt("the ranks are of an unknown form", offset);
  }
  if (count < 2) return corrupt("the ranks hold fewer than two values", offset);
  header.rank_count = static_cast<std::uint32_t>(count);
  return {};
}

// The tile lengths must add up to the rest of the file, each within its bounds (spec §2).
Status check_lengths(std::uint64_t file_size, const ImageHeader& header, std::uint64_t offset) noexcept {
  const std::uint64_t value_bytes = std::uint64_t{header.channels} * (header.coded_bits / 8);
  const std::uint8_t* p = header.tile_lengths.data();
  std::uint64_t sum = 0;
  std::int64_t tile = 0;
  for (std::uint32_t y = 0; y < header.tiles_y; ++y) {
    const std::uint64_t h = std::min(kTileHeight, header.height - y * kTileHeight);
    for (std::uint32_t x = 0; x < header.tiles_x; ++x, ++tile, p += 4) {
      const std::uint64_t w = std::min(header.tile_width, header.width - x * header.tile_width);
      const std::uint64_t length = load_le<std::uint32_t>(p);
      if (length < 2 || length > 1 + h * w * value_bytes)
        return {Code::corrupt, "a tile length is out of bounds", offset + 4 * static_cast<std::uint64_t>(tile), tile};
      sum += length;
    }
  }
  if (sum != file_size - header.tiles_offset)
    return corrupt("the tile lengths do not add up to the size of the file", offset);
  return {};
}

}  // namespace

bool next_metadata(Bytes& rest, MetadataEntry& entry) noexcept {
  if (rest.empty()) return false;
  const std::size_t key_bytes = rest[0];
  entry.key = rest.subspan(1, key_bytes);
  const std::size_t value_bytes = load_le<std::uint32_t>(&rest[1 + key_bytes]);
  entry.value = rest.subspan(5 + key_bytes, value_bytes);
  rest = rest.subspan(5 + key_bytes + value_bytes);
  return true;
}

Status check_metadata(Bytes section) noexcept {
  Bytes last;
  std::size_t at = 0;
  while (at < section.size()) {
    const std::size_t key_bytes = section[at];
    if (key_bytes == 0) return corrupt("a metadata key is empty", at);
    if (section.size() - at < 5 + key_bytes) return corrupt("the metadata is cut short", at);
    const std::size_t value_bytes = load_le<std::uint32_t>(&section[at + 1 + key_bytes]);
    if (section.size() - at - 5 - key_bytes < value_bytes) return corrupt("the metadata is cut short", at);
    const Bytes key = section.subspan(at + 1, key_bytes);
    if (!is_utf8(key)) return corrupt("a metadata key is not UTF-8", at);
    if (at > 0 && !ascending(last, key)) return corrupt("the metadata keys are not strictly ascending", at);
    last = key;
    at += 5 + key_bytes + value_bytes;
  }
  return {};
}

std::uint64_t claimed_head_bytes(Bytes beginning) noexcept {
  if (beginning.size() < kFixedHeaderBytes || !std::equal(kMagic, kMagic + 4, beginning.data())) return 0;
  const std::uint8_t* p = beginning.data();
  if (p[12] < kMinTileWidthLog2 || p[12] > kMaxTileWidthLog2) return 0;
  const std::uint64_t tiles = std::uint64_t{ceil_div(load_le<std::uint16_t>(p + 8), 1U << p[12])} *
                              ceil_div(load_le<std::uint16_t>(p + 10), kTileHeight);
  return kFixedHeaderBytes + std::uint64_t{load_le<std::uint32_t>(p + 16)} + load_le<std::uint32_t>(p + 20) +
         8 * tiles + 4;
}

Status parse_header(Bytes file, ImageHeader& header) noexcept { return parse_header(file, file.size(), header); }

Status parse_header(Bytes file, std::uint64_t file_size, ImageHeader& header) noexcept {
  header = {};
  if (file.size() < kFixedHeaderBytes) return corrupt("the file is shorter than a header", file.size());
  const std::uint8_t* p = file.data();
  if (!std::equal(kMagic, kMagic + 4, p)) return corrupt("this is not an .hri file", 0);
  if (std::popcount(p[4]) % 2 != 0) return corrupt("the version byte is damaged", 4);
  if (p[4] != kVersionByte)
    return {Code::unsupported, "the file has a format version that this release does not read", 4, -1};
  const std::uint8_t flags = p[5];
  header.mode = (flags & 1) ? Mode::dense : Mode::fast;
  header.is_signed = (flags & 2) != 0;
  header.depth = p[6];
  header.channels = p[7];
  header.width = load_le<std::uint16_t>(p + 8);
  header.height = load_le<std::uint16_t>(p + 10);
  const std::uint32_t tile_width_log2 = p[12];
  if ((flags & ~3U) != 0) return corrupt("unknown flags are set", 5);
  if (header.depth != 8 && header.depth != 16) return corrupt("the depth is neither 8 nor 16", 6);
  if (header.is_signed && header.depth != 16) return corrupt("signed samples need a depth of 16", 5);
  if (header.channels < 1 || header.channels > kMaxChannels) return corrupt("the number of channels is not 1 to 64", 7);
  if (header.width == 0 || header.height == 0) return corrupt("a side of the image is 0", 8);
  if (tile_width_log2 < kMinTileWidthLog2 || tile_width_log2 > kMaxTileWidthLog2)
    return corrupt("the tile width is not 32 to 256", 12);
  if ((p[13] | p[14] | p[15]) != 0) return corrupt("reserved bytes are not 0", 13);
  header.tile_width = 1U << tile_width_log2;
  header.tiles_x = ceil_div(header.width, header.tile_width);
  header.tiles_y = ceil_div(header.height, kTileHeight);

  const std::uint64_t metadata_bytes = load_le<std::uint32_t>(p + 16);
  const std::uint64_t rank_bytes = load_le<std::uint32_t>(p + 20);
  const std::uint64_t index_offset = kFixedHeaderBytes + metadata_bytes + rank_bytes;
  const std::uint64_t sum_offset = index_offset + 8 * header.tiles();
  header.tiles_offset = sum_offset + 4;
  if (header.tiles_offset > file.size()) return corrupt("the file ends within its header or index", file.size());
  if (crc32c(file.first(sum_offset)) != load_le<std::uint32_t>(p + sum_offset))
    return corrupt("the checksum of the header does not match", sum_offset);

  header.metadata = file.subspan(kFixedHeaderBytes, metadata_bytes);
  header.ranks = file.subspan(kFixedHeaderBytes + metadata_bytes, rank_bytes);
  header.tile_lengths = file.subspan(index_offset, 4 * header.tiles());
  header.tile_sums = file.subspan(index_offset + 4 * header.tiles(), 4 * header.tiles());
  if (Status s = check_metadata(header.metadata); !s) {
    s.offset += kFixedHeaderBytes;
    return s;
  }
  header.coded_bits = header.depth;
  if (rank_bytes > 0) {
    if (Status s = parse_ranks(header.ranks, kFixedHeaderBytes + metadata_bytes, header); !s) return s;
    if (header.rank_count <= 256) header.coded_bits = 8;
  }
  return check_lengths(file_size, header, index_offset);
}

}  // namespace headrace
