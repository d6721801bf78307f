// SPDX-License-Identifier: Apache-2.0
// The constants of tiles (spec/image.md §5 and §6), shared by decoder and encoder. Plain data: safe to include in every
// target.
#pragma once

#include <array>
#include <cstdint>

#include "bytes.h"
#include "headrace/image.h"

namespace headrace {

enum TileKind : std::uint8_t { kConstant = 0, kRaw = 1, kPalette = 2, kPacked = 3, kCoded = 4 };

inline constexpr std::uint32_t kMaxTileWidth = 1U << kMaxTileWidthLog2;
inline constexpr std::uint32_t kStrip = 32;      // columns that share a predictor in a coded tile
inline constexpr std::uint32_t kFirstClass = 8;  // what the first block of a plane is predicted from
inline constexpr std::uint32_t kFirstWidth = 4;
inline constexpr std::uint32_t kEscape = 12;      // numbers from here on are escapes in blocks of 16-bit values
inline constexpr std::uint32_t kMaxColors = 255;  // of a palette tile

enum Predictor : std::uint8_t { kAvg = 0, kMed = 1, kMedAvg = 2, kAvgNe = 3, kMedAvgNe = 4, kPredictors = 5 };

// How the numbers of a block's unary section stand for its values (spec §6.5).
enum Code8 : std::uint8_t { kPlain, kHalf, kDouble, kTail, kPairs, kCodes };

struct CodeTable {
  std::array<std::uint8_t, 16> extra;   // extra bits that a number reads; the last entry serves all larger numbers
  std::array<std::uint8_t, 16> adjust;  // base - number; likewise
};

constexpr CodeTable make_code(std::array<int, 4> first) {
  CodeTable t{};
  int base = 0;
  for (std::size_t q = 0; q < 16; ++q) {
    const int e = q < 4 ? first[q] : 0;
    t.extra[q] = static_cast<std::uint8_t>(e);
    t.adjust[q] = static_cast<std::uint8_t>(base - static_cast<int>(q));
    base += 1 << e;
  }
  return t;
}

inline constexpr std::array<CodeTable, kCodes> kCodeTables = {
    make_code({0, 0, 0, 0}),
    make_code({1, 0, 0, 0}),
    make_code({1, 1, 0, 0}),
    make_code({0, 1, 1, 0}),
    CodeTable{{0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4}, {}},
};

struct BlockClass {
  std::uint8_t raw_bits;  // s of the spec
  Code8 code;
  std::uint8_t numbers;  // of the unary section: 64, 32 or 0
};

inline constexpr std::uint32_t kClasses8 = 16;
inline constexpr std::uint32_t kClasses16 = 32;

constexpr std::array<BlockClass, kClasses16> make_classes(std::uint32_t bits) {
  std::array<BlockClass, kClasses16> t{};
  t[0] = {0, kPlain, 0};
  t[1] = {0, kPairs, 32};
  t[2] = {0, kPlain, 64};
  t[3] = {0, kTail, 64};
  t[4] = {0, kHalf, 64};
  t[5] = {0, kDouble, 64};
  std::uint32_t c = 6;
  const std::uint32_t halves = bits == 8 ? 3 : 12;
  for (std::uint8_t s = 1; s <= halves; ++s) {
    t[c++] = {s, kPlain, 64};
    t[c++] = {s, kHalf, 64};
  }
  const std::uint32_t last = bits == 8 ? kClasses8 : kClasses16;
  for (std::uint8_t s = static_cast<std::uint8_t>(halves + 1); c < last - 1; ++s) t[c++] = {s, kPlain, 64};
  t[last - 1] = {static_cast<std::uint8_t>(bits), kPlain, 0};
  return t;
}

inline constexpr auto kClassTable8 = make_classes(8);
inline constexpr auto kClassTable16 = make_classes(16);

template <unsigned Bits>
inline constexpr const std::array<BlockClass, kClasses16>& class_table() {
  if constexpr (Bits == 8)
    return kClassTable8;
  else
    return kClassTable16;
}

// Channels in the order in which they are coded.
inline constexpr std::uint32_t coded_channel(std::uint32_t plane, std::uint32_t channels) {
  return channels > 1 && plane < 2 ? 1 - plane : plane;
}

inline constexpr std::uint32_t zigzag8(std::int32_t d) {
  return static_cast<std::uint32_t>(d >= 0 ? 2 * d : -2 * d - 1);
}

inline constexpr std::uint8_t unzigzag8(std::uint32_t z) {
  return static_cast<std::uint8_t>((z >> 1) ^ (0U - (z & 1)));
}

}  // namespace headrace
