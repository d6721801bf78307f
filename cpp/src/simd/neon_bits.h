// SPDX-License-Identifier: Apache-2.0
// Bit strings to lanes and back, for NEON. Included inside a target's namespace.

// For sixteen packed samples of b <= 8 bits: the byte that sample i begins in and the one after it, and how far each
// must move up so that together they have the sample's top bit at bit 7. A sample that does not reach the second byte
// moves that one out of its lane.
struct SpanRow {
  alignas(64) std::uint8_t first[16];
  std::uint8_t second[16];
  std::int8_t first_up[16];
  std::int8_t second_up[16];
};
struct SpanTable {
  SpanRow row[9];
};
constexpr SpanTable make_spans() {
  SpanTable t{};
  for (int b = 0; b <= 8; ++b)
    for (int i = 0; i < 16; ++i) {
      const int byte = (i * b) / 8, shift = (i * b) % 8;
      t.row[b].first[i] = static_cast<std::uint8_t>(byte);
      t.row[b].second[i] = static_cast<std::uint8_t>(byte + 1);
      t.row[b].first_up[i] = static_cast<std::int8_t>(8 - b - shift);
      t.row[b].second_up[i] = static_cast<std::int8_t>(16 - b - shift);
    }
  return t;
}
inline constexpr SpanTable kSpans = make_spans();

// Sixteen samples of `bits` <= 8 bits each, the sample's top bit at bit 7. Reads 16 bytes.
inline uint8x16_t spread(const std::uint8_t* from, std::size_t bits) {
  const SpanRow& row = kSpans.row[bits];
  const uint8x16_t bytes = vld1q_u8(from);
  const uint8x16_t first = vshlq_u8(vqtbl1q_u8(bytes, vld1q_u8(row.first)), vld1q_s8(row.first_up));
  const uint8x16_t second = vshlq_u8(vqtbl1q_u8(bytes, vld1q_u8(row.second)), vld1q_s8(row.second_up));
  return vorrq_u8(first, second);
}
inline int8x16_t down_from_top(std::size_t bits) {
  return vdupq_n_s8(static_cast<std::int8_t>(static_cast<int>(bits) - 8));
}
inline int8x16_t spread_signed(const std::uint8_t* from, std::size_t bits) {
  return vshlq_s8(vreinterpretq_s8_u8(spread(from, bits)), down_from_top(bits));
}

// Thirty-two samples of `bits` <= 8 bits. Reads up to 16 bytes past their end.
inline U8 unpack(const std::uint8_t* from, unsigned bits) {
  const int8x16_t down = down_from_top(bits);
  return {vshlq_u8(spread(from, bits), down), vshlq_u8(spread(from + 2 * bits, bits), down)};
}

// Four groups of 4x4 signed samples, side by side: four rows of sixteen. `widths` has a byte for each group. Returns
// the end of the groups.
inline const std::uint8_t* unpack_groups(const std::uint8_t* from, std::uint32_t widths, std::uint8_t* to,
                                         std::ptrdiff_t pitch) {
  const std::size_t w0 = widths & 0xFF, w1 = (widths >> 8) & 0xFF, w2 = (widths >> 16) & 0xFF, w3 = widths >> 24;
  const std::uint8_t* const from2 = from + 2 * (w0 + w1);
  const int32x4_t a = vreinterpretq_s32_s8(spread_signed(from, w0));
  const int32x4_t b = vreinterpretq_s32_s8(spread_signed(from + 2 * w0, w1));
  const int32x4_t c = vreinterpretq_s32_s8(spread_signed(from2, w2));
  const int32x4_t d = vreinterpretq_s32_s8(spread_signed(from2 + 2 * w2, w3));
  const auto put_row = [](std::uint8_t* at, int64x2_t row) { vst1q_u8(at, vreinterpretq_u8_s64(row)); };
  const int64x2_t ab01 = vreinterpretq_s64_s32(vzip1q_s32(a, b)), ab23 = vreinterpretq_s64_s32(vzip2q_s32(a, b));
  const int64x2_t cd01 = vreinterpretq_s64_s32(vzip1q_s32(c, d)), cd23 = vreinterpretq_s64_s32(vzip2q_s32(c, d));
  put_row(to, vzip1q_s64(ab01, cd01));
  put_row(to + pitch, vzip2q_s64(ab01, cd01));
  put_row(to + 2 * pitch, vzip1q_s64(ab23, cd23));
  put_row(to + 3 * pitch, vzip2q_s64(ab23, cd23));
  return from2 + 2 * (w2 + w3);
}
inline void unpack_group(const std::uint8_t* from, unsigned bits, std::uint16_t* to, std::ptrdiff_t pitch) {
  uint16x8_t rows01, rows23;
  if (bits <= 8) {
    const int8x16_t s = spread_signed(from, bits);
    rows01 = vreinterpretq_u16_s16(vmovl_s8(vget_low_s8(s)));
    rows23 = vreinterpretq_u16_s16(vmovl_high_s8(s));
  } else {
    const uint8x16_t low = vld1q_u8(from), high = vreinterpretq_u8_s8(spread_signed(from + 16, bits - 8));
    rows01 = vreinterpretq_u16_u8(vzip1q_u8(low, high));
    rows23 = vreinterpretq_u16_u8(vzip2q_u8(low, high));
  }
  vst1_u16(to, vget_low_u16(rows01));
  vst1_u16(to + pitch, vget_high_u16(rows01));
  vst1_u16(to + 2 * pitch, vget_low_u16(rows23));
  vst1_u16(to + 3 * pitch, vget_high_u16(rows23));
}

// The positions, modulo 256, of the one bits of n bytes. Writes up to 8 bytes past the last.
HR_STAGE void positions(const std::uint8_t* from, std::size_t n, std::uint8_t* to) {
  constexpr std::uint64_t ones = 0x0101010101010101U;
  // Eight positions in a word: three bits from the table, three for the byte's place in its word, two for the word's
  // among four.
  const auto at_byte = [](std::size_t byte, std::uint64_t place) {
    return load_le<std::uint64_t>(kOnes.position[byte]) | 8 * place * ones;
  };
  std::uint64_t word_base = 0;
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    std::uint64_t word = load_le<std::uint64_t>(from + i);
    // Where each byte's positions end, all at once, so that no store waits for the counts of the bytes before.
    const std::uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(word))), 0);
    const std::uint64_t ends = counts * ones;
    for (unsigned k = 0; k < 8; ++k, word >>= 8)
      store_le(to + (k == 0 ? 0 : (ends >> (8 * (k - 1))) & 0xFF), at_byte(word & 0xFF, k) | word_base);
    to += ends >> 56;
    word_base += 64 * ones;
    if (i % 32 == 24) word_base = 0;
  }
  for (unsigned k = 0; i < n; ++i, ++k) {
    store_le(to, at_byte(from[i], k) | word_base);
    to += kOnes.count[from[i]];
  }
}

// Where each lane's bits begin if lane 0's do at `first`, and the lanes' bits follow each other. At most 255.
inline U8 bits_begin(U8 n, unsigned first) {
  const uint8x16_t lo_end = vaddq_u8(sum_up(n.lo), vdupq_n_u8(static_cast<std::uint8_t>(first)));
  const uint8x16_t hi_end = vaddq_u8(sum_up(n.hi), vdupq_laneq_u8(lo_end, 15));
  return {vsubq_u8(lo_end, n.lo), vsubq_u8(hi_end, n.hi)};
}
// How far a bit must move down within its byte, as a count for vshlq.
inline int8x16_t down_to_bit_0(uint8x16_t bit) { return vnegq_s8(vreinterpretq_s8_u8(vandq_u8(bit, vdupq_n_u8(7)))); }

// The next extra[lane] <= 4 bits for each lane from a bit string; advances `at`. Reads 32 bytes: the lanes take at most
// 128 bits together, wherever in a byte they begin.
inline U8 take_bits(U8 extra, const std::uint8_t* bits, std::uint64_t& at) {
  const std::uint8_t* const from = bits + (at >> 3);
  const uint8x16x2_t bytes = {{vld1q_u8(from), vld1q_u8(from + 16)}};
  const U8 begin = bits_begin(extra, at & 7);
  at += vaddvq_u8(vaddq_u8(extra.lo, extra.hi));
  const auto take = [&bytes](uint8x16_t n, uint8x16_t bit) {
    const uint8x16_t byte = vshrq_n_u8(bit, 3);
    const int8x16_t down = down_to_bit_0(bit);
    const uint8x16_t first = vshlq_u8(vqtbl2q_u8(bytes, byte), down);
    const uint8x16_t second = vshlq_u8(vqtbl2q_u8(bytes, vaddq_u8(byte, vdupq_n_u8(1))), vaddq_s8(down, vdupq_n_s8(8)));
    return vbicq_u8(vorrq_u8(first, second), vshlq_u8(vdupq_n_u8(0xFF), vreinterpretq_s8_u8(n)));
  };
  return {take(extra.lo, begin.lo), take(extra.hi, begin.hi)};
}

// The same where no lane takes more than one bit. Reads 8 bytes. Some thirty instructions, where pdep takes one: too
// many to be spent in order to save a branch.
inline constexpr bool kTakesFlagsCheaply = false;
inline U8 take_flags(U8 extra, const std::uint8_t* bits, std::uint64_t& at) {
  const std::uint64_t word = load_le<std::uint64_t>(bits + (at >> 3)) >> (at & 7);
  const uint8x16_t bytes = vreinterpretq_u8_u64(vdupq_n_u64(word));
  const U8 begin = bits_begin(extra, 0);
  at += vaddvq_u8(vaddq_u8(extra.lo, extra.hi));
  const auto take = [bytes](uint8x16_t n, uint8x16_t bit) {
    return vandq_u8(vshlq_u8(vqtbl1q_u8(bytes, vshrq_n_u8(bit, 3)), down_to_bit_0(bit)), n);
  };
  return {take(extra.lo, begin.lo), take(extra.hi, begin.hi)};
}
