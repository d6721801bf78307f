// SPDX-License-Identifier: Apache-2.0
// The vector operations that the kernels are written in, for NEON on AArch64. Included inside a target's namespace. A
// U8 has 32 lanes of a byte, a U16 32 lanes of 16 bits: a lane is a row of a tile.

struct U8 {
  uint8x16_t lo, hi;  // lanes 0 to 15, 16 to 31
};
struct U16 {
  uint16x8_t v[4];  // eight lanes each
};

// f of each register of U16s.
template <class F, class... V>
inline U16 each(F f, V... a) {
  return {{f(a.v[0]...), f(a.v[1]...), f(a.v[2]...), f(a.v[3]...)}};
}

inline U8 load(const std::uint8_t* p) { return {vld1q_u8(p), vld1q_u8(p + 16)}; }
inline void store(std::uint8_t* p, U8 a) {
  vst1q_u8(p, a.lo);
  vst1q_u8(p + 16, a.hi);
}
inline U8 set_all(std::uint8_t x) { return {vdupq_n_u8(x), vdupq_n_u8(x)}; }
inline U8 add(U8 a, U8 b) { return {vaddq_u8(a.lo, b.lo), vaddq_u8(a.hi, b.hi)}; }
inline U8 sub(U8 a, U8 b) { return {vsubq_u8(a.lo, b.lo), vsubq_u8(a.hi, b.hi)}; }
inline U8 min(U8 a, U8 b) { return {vminq_u8(a.lo, b.lo), vminq_u8(a.hi, b.hi)}; }
inline U8 max(U8 a, U8 b) { return {vmaxq_u8(a.lo, b.lo), vmaxq_u8(a.hi, b.hi)}; }
inline U8 avg(U8 a, U8 b) { return {vrhaddq_u8(a.lo, b.lo), vrhaddq_u8(a.hi, b.hi)}; }
inline U8 bit_and(U8 a, U8 b) { return {vandq_u8(a.lo, b.lo), vandq_u8(a.hi, b.hi)}; }
inline U8 bit_xor(U8 a, U8 b) { return {veorq_u8(a.lo, b.lo), veorq_u8(a.hi, b.hi)}; }
inline U8 equal(U8 a, U8 b) { return {vceqq_u8(a.lo, b.lo), vceqq_u8(a.hi, b.hi)}; }
inline U8 select(U8 mask, U8 yes, U8 no) {
  return {vbslq_u8(mask.lo, yes.lo, no.lo), vbslq_u8(mask.hi, yes.hi, no.hi)};
}
// NEON shifts each lane by a signed count, to the right if it is negative; a shift by all bits of a lane leaves 0.
inline U8 shift_left(U8 a, unsigned n) {
  const int8x16_t c = vdupq_n_s8(static_cast<std::int8_t>(n));
  return {vshlq_u8(a.lo, c), vshlq_u8(a.hi, c)};
}
inline U8 shift_right(U8 a, unsigned n) {
  const int8x16_t c = vdupq_n_s8(static_cast<std::int8_t>(-static_cast<int>(n)));
  return {vshlq_u8(a.lo, c), vshlq_u8(a.hi, c)};
}
// -1 for odd lanes, 0 for even ones.
inline U8 odd_mask(U8 a) {
  const uint8x16_t one = vdupq_n_u8(1);
  return {vtstq_u8(a.lo, one), vtstq_u8(a.hi, one)};
}
// table[index] for indices below 16.
inline U8 lookup(const std::uint8_t* table, U8 index) {
  const uint8x16_t t = vld1q_u8(table);
  return {vqtbl1q_u8(t, index.lo), vqtbl1q_u8(t, index.hi)};
}
inline bool any(U8 a) { return vmaxvq_u32(vreinterpretq_u32_u8(vorrq_u8(a.lo, a.hi))) != 0; }
inline std::uint32_t sum_lanes(U8 a) { return vaddvq_u16(vpadalq_u8(vpaddlq_u8(a.lo), a.hi)); }
// Lane r gets lane r - 1; lane 0 gets 0.
inline U8 from_lane_above(U8 a) { return {vextq_u8(vdupq_n_u8(0), a.lo, 15), vextq_u8(a.lo, a.hi, 15)}; }
inline void zip(U8 a, U8 b, U8& first, U8& second) {
  first = {vzip1q_u8(a.lo, b.lo), vzip2q_u8(a.lo, b.lo)};
  second = {vzip1q_u8(a.hi, b.hi), vzip2q_u8(a.hi, b.hi)};
}

inline U16 load(const std::uint16_t* p) {
  return {{vld1q_u16(p), vld1q_u16(p + 8), vld1q_u16(p + 16), vld1q_u16(p + 24)}};
}
inline void store(std::uint16_t* p, U16 a) {
  vst1q_u16(p, a.v[0]);
  vst1q_u16(p + 8, a.v[1]);
  vst1q_u16(p + 16, a.v[2]);
  vst1q_u16(p + 24, a.v[3]);
}
inline U16 set_all(std::uint16_t x) {
  const uint16x8_t v = vdupq_n_u16(x);
  return {{v, v, v, v}};
}
inline U16 add(U16 a, U16 b) {
  return each([](uint16x8_t x, uint16x8_t y) { return vaddq_u16(x, y); }, a, b);
}
inline U16 sub(U16 a, U16 b) {
  return each([](uint16x8_t x, uint16x8_t y) { return vsubq_u16(x, y); }, a, b);
}
inline U16 min(U16 a, U16 b) {
  return each([](uint16x8_t x, uint16x8_t y) { return vminq_u16(x, y); }, a, b);
}
inline U16 max(U16 a, U16 b) {
  return each([](uint16x8_t x, uint16x8_t y) { return vmaxq_u16(x, y); }, a, b);
}
inline U16 avg(U16 a, U16 b) {
  return each([](uint16x8_t x, uint16x8_t y) { return vrhaddq_u16(x, y); }, a, b);
}
inline U16 bit_and(U16 a, U16 b) {
  return each([](uint16x8_t x, uint16x8_t y) { return vandq_u16(x, y); }, a, b);
}
inline U16 bit_xor(U16 a, U16 b) {
  return each([](uint16x8_t x, uint16x8_t y) { return veorq_u16(x, y); }, a, b);
}
inline U16 equal(U16 a, U16 b) {
  return each([](uint16x8_t x, uint16x8_t y) { return vceqq_u16(x, y); }, a, b);
}
inline U16 select(U16 mask, U16 yes, U16 no) {
  return each([](uint16x8_t m, uint16x8_t x, uint16x8_t y) { return vbslq_u16(m, x, y); }, mask, yes, no);
}
inline U16 shift_left(U16 a, unsigned n) {
  const int16x8_t c = vdupq_n_s16(static_cast<std::int16_t>(n));
  return each([c](uint16x8_t x) { return vshlq_u16(x, c); }, a);
}
inline U16 shift_right(U16 a, unsigned n) {
  const int16x8_t c = vdupq_n_s16(static_cast<std::int16_t>(-static_cast<int>(n)));
  return each([c](uint16x8_t x) { return vshlq_u16(x, c); }, a);
}
inline U16 odd_mask(U16 a) {
  const uint16x8_t one = vdupq_n_u16(1);
  return each([one](uint16x8_t x) { return vtstq_u16(x, one); }, a);
}
inline U16 from_lane_above(U16 a) {
  return {{vextq_u16(vdupq_n_u16(0), a.v[0], 7), vextq_u16(a.v[0], a.v[1], 7), vextq_u16(a.v[1], a.v[2], 7),
           vextq_u16(a.v[2], a.v[3], 7)}};
}
inline U16 widen(U8 a) {
  return {{vmovl_u8(vget_low_u8(a.lo)), vmovl_high_u8(a.lo), vmovl_u8(vget_low_u8(a.hi)), vmovl_high_u8(a.hi)}};
}
inline U16 widen_signed(U8 a) {
  const int8x16_t lo = vreinterpretq_s8_u8(a.lo), hi = vreinterpretq_s8_u8(a.hi);
  return {{vreinterpretq_u16_s16(vmovl_s8(vget_low_s8(lo))), vreinterpretq_u16_s16(vmovl_high_s8(lo)),
           vreinterpretq_u16_s16(vmovl_s8(vget_low_s8(hi))), vreinterpretq_u16_s16(vmovl_high_s8(hi))}};
}

// Each lane becomes the sum of all up to it.
inline uint8x16_t sum_up(uint8x16_t x) {
  const uint8x16_t zero = vdupq_n_u8(0);
  x = vaddq_u8(x, vextq_u8(zero, x, 15));
  x = vaddq_u8(x, vextq_u8(zero, x, 14));
  x = vaddq_u8(x, vextq_u8(zero, x, 12));
  return vaddq_u8(x, vextq_u8(zero, x, 8));
}
inline uint16x8_t sum_up(uint16x8_t x) {
  const uint16x8_t zero = vdupq_n_u16(0);
  x = vaddq_u16(x, vextq_u16(zero, x, 7));
  x = vaddq_u16(x, vextq_u16(zero, x, 6));
  return vaddq_u16(x, vextq_u16(zero, x, 4));
}

// Each of n samples becomes the sum of all up to it. May also change the samples up to the next multiple of 16.
inline void sum_along(std::uint8_t* p, std::uint32_t n) {
  uint8x16_t carry = vdupq_n_u8(0);
  for (std::uint32_t i = 0; i < n; i += 16) {
    const uint8x16_t x = vaddq_u8(sum_up(vld1q_u8(p + i)), carry);
    carry = vdupq_laneq_u8(x, 15);
    vst1q_u8(p + i, x);
  }
}
inline void sum_along(std::uint16_t* p, std::uint32_t n) {
  uint16x8_t carry = vdupq_n_u16(0);
  for (std::uint32_t i = 0; i < n; i += 8) {
    const uint16x8_t x = vaddq_u16(sum_up(vld1q_u16(p + i)), carry);
    carry = vdupq_laneq_u16(x, 7);
    vst1q_u16(p + i, x);
  }
}

// Four rows of eight samples, `pitch` samples apart.
inline void store_rows(std::uint8_t* p, std::ptrdiff_t pitch, U8 a) {
  vst1_u8(p, vget_low_u8(a.lo));
  vst1_u8(p + pitch, vget_high_u8(a.lo));
  vst1_u8(p + 2 * pitch, vget_low_u8(a.hi));
  vst1_u8(p + 3 * pitch, vget_high_u8(a.hi));
}
inline void store_rows(std::uint16_t* p, std::ptrdiff_t pitch, U16 a) {
  vst1q_u16(p, a.v[0]);
  vst1q_u16(p + pitch, a.v[1]);
  vst1q_u16(p + 2 * pitch, a.v[2]);
  vst1q_u16(p + 3 * pitch, a.v[3]);
}

// Rotate the bits of the index of 2^k registers by one, k times: a transpose of bytes (k = 4) or 16-bit lanes (k = 3).
inline void transpose(uint8x16_t (&a)[16]) {
  uint8x16_t b[16];
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = vzip1q_u8(a[i], a[i + 8]);
      b[2 * i + 1] = vzip2q_u8(a[i], a[i + 8]);
    }
    for (int i = 0; i < 8; ++i) {
      a[2 * i] = vzip1q_u8(b[i], b[i + 8]);
      a[2 * i + 1] = vzip2q_u8(b[i], b[i + 8]);
    }
  }
}
inline void transpose(uint16x8_t (&a)[8]) {
  uint16x8_t b[8];
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = vzip1q_u16(a[i], a[i + 4]);
    b[2 * i + 1] = vzip2q_u16(a[i], a[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = vzip1q_u16(b[i], b[i + 4]);
    a[2 * i + 1] = vzip2q_u16(b[i], b[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = vzip1q_u16(a[i], a[i + 4]);
    b[2 * i + 1] = vzip2q_u16(a[i], a[i + 4]);
  }
  for (int i = 0; i < 8; ++i) a[i] = b[i];
}

// Sixteen steps of the wave: step k has in lane r the sample of row r at column k - skew * r, relative to `p`.
inline void gather_steps(const std::uint8_t* p, std::ptrdiff_t row, U8* steps) {
  uint8x16_t a[16];
  for (int i = 0; i < 16; ++i) a[i] = vld1q_u8(p + i * row);
  transpose(a);
  for (int i = 0; i < 16; ++i) steps[i].lo = a[i];
  for (int i = 0; i < 16; ++i) a[i] = vld1q_u8(p + (i + 16) * row);
  transpose(a);
  for (int i = 0; i < 16; ++i) steps[i].hi = a[i];
}
inline void scatter_steps(const U8* steps, std::uint8_t* p, std::ptrdiff_t row) {
  uint8x16_t a[16];
  for (int i = 0; i < 16; ++i) a[i] = steps[i].lo;
  transpose(a);
  for (int i = 0; i < 16; ++i) vst1q_u8(p + i * row, a[i]);
  for (int i = 0; i < 16; ++i) a[i] = steps[i].hi;
  transpose(a);
  for (int i = 0; i < 16; ++i) vst1q_u8(p + (i + 16) * row, a[i]);
}
inline void gather_steps(const std::uint16_t* p, std::ptrdiff_t row, U16* steps) {
  for (int k = 0; k < 16; k += 8)
    for (int q = 0; q < 4; ++q) {
      uint16x8_t a[8];
      for (int i = 0; i < 8; ++i) a[i] = vld1q_u16(p + (8 * q + i) * row + k);
      transpose(a);
      for (int i = 0; i < 8; ++i) steps[k + i].v[q] = a[i];
    }
}
inline void scatter_steps(const U16* steps, std::uint16_t* p, std::ptrdiff_t row) {
  for (int k = 0; k < 16; k += 8)
    for (int q = 0; q < 4; ++q) {
      uint16x8_t a[8];
      for (int i = 0; i < 8; ++i) a[i] = steps[k + i].v[q];
      transpose(a);
      for (int i = 0; i < 8; ++i) vst1q_u16(p + (8 * q + i) * row + k, a[i]);
    }
}

// Thirty-two pixels of three or four interleaved bytes. In clang the stores are macros, which take no braces.
inline void store_interleaved3(std::uint8_t* p, U8 r, U8 g, U8 b) {
  const uint8x16x3_t low{{r.lo, g.lo, b.lo}}, high{{r.hi, g.hi, b.hi}};
  vst3q_u8(p, low);
  vst3q_u8(p + 48, high);
}
inline void store_interleaved4(std::uint8_t* p, U8 r, U8 g, U8 b, U8 a) {
  const uint8x16x4_t low{{r.lo, g.lo, b.lo, a.lo}}, high{{r.hi, g.hi, b.hi, a.hi}};
  vst4q_u8(p, low);
  vst4q_u8(p + 64, high);
}
