// SPDX-License-Identifier: Apache-2.0
// Small constant tables that several targets look things up in. Computed by the compiler.
#pragma once

#include <cstdint>

namespace headrace {

// For bytes: where their one bits are, and how many.
struct OnesTable {
  alignas(64) std::uint8_t position[256][8];
  std::uint8_t count[256];
  alignas(16) std::uint8_t low_bits[16];  // low_bits[e] = 2^e - 1, for e <= 8
};

constexpr OnesTable make_ones() {
  OnesTable t{};
  for (unsigned b = 0; b < 256; ++b)
    for (unsigned k = 0; k < 8; ++k)
      if ((b >> k) & 1) t.position[b][t.count[b]++] = static_cast<std::uint8_t>(k);
  for (unsigned e = 0; e <= 8; ++e) t.low_bits[e] = static_cast<std::uint8_t>((1U << e) - 1);
  return t;
}
inline constexpr OnesTable kOnes = make_ones();

// For sixteen packed samples of b <= 8 bits: which two bytes hold sample i (as a byte shuffle within halves of eight
// samples), the factor that moves its top bit to bit 15, and the factor whose high product moves it back with its sign.
// A sample never spans more than two bytes: its shift is at most 7, and 7 + 8 <= 16. One row a width, so that one index
// finds all three.
struct SpreadRow {
  alignas(32) std::uint8_t shuffle[32];
  alignas(32) std::uint16_t up[16];
  alignas(32) std::uint16_t down[16];
  std::uint8_t padding[32];  // a row is 128 bytes
};
struct SpreadTable {
  SpreadRow row[9];
};

constexpr SpreadTable make_spread() {
  SpreadTable t{};
  for (unsigned b = 0; b <= 8; ++b)
    for (unsigned i = 0; i < 16; ++i) {
      const unsigned byte = (i * b) / 8, shift = (i * b) % 8;
      t.row[b].shuffle[2 * i] = static_cast<std::uint8_t>(byte);
      t.row[b].shuffle[2 * i + 1] = static_cast<std::uint8_t>((byte + 1) & 15);
      t.row[b].up[i] = b == 0 ? 0 : static_cast<std::uint16_t>(1U << (16 - b - shift));
      t.row[b].down[i] = static_cast<std::uint16_t>(1U << b);
    }
  return t;
}
inline constexpr SpreadTable kSpread = make_spread();

// Sixteen pixels of three bytes are 48 bytes in three registers. split[c][k] picks channel c's samples out of register
// k, join[k][c] puts them there; 0x80 leaves a byte 0.
struct ThreeTable {
  alignas(16) std::uint8_t split[3][3][16];
  alignas(16) std::uint8_t join[3][3][16];
};

constexpr ThreeTable make_three() {
  ThreeTable t{};
  for (unsigned c = 0; c < 3; ++c)
    for (unsigned k = 0; k < 3; ++k)
      for (unsigned i = 0; i < 16; ++i) {
        const unsigned byte = 3 * i + c;  // of pixel i's channel c
        t.split[c][k][i] = static_cast<std::uint8_t>(byte / 16 == k ? byte % 16 : 0x80);
        const unsigned pixel = (16 * k + i) / 3, channel = (16 * k + i) % 3;
        t.join[k][c][i] = static_cast<std::uint8_t>(channel == c ? pixel : 0x80);
      }
  return t;
}
inline constexpr ThreeTable kThree = make_three();

}  // namespace headrace
