// SPDX-License-Identifier: Apache-2.0
// Vector operations that only the encoder needs, for NEON. Included inside a target's namespace.

inline U8 bit_or(U8 a, U8 b) { return {vorrq_u8(a.lo, b.lo), vorrq_u8(a.hi, b.hi)}; }
inline U16 bit_or(U16 a, U16 b) {
  return each([](uint16x8_t x, uint16x8_t y) { return vorrq_u16(x, y); }, a, b);
}
inline U8 do_zigzag(U8 r) {
  const auto f = [](uint8x16_t x) {
    return veorq_u8(vaddq_u8(x, x), vreinterpretq_u8_s8(vshrq_n_s8(vreinterpretq_s8_u8(x), 7)));
  };
  return {f(r.lo), f(r.hi)};
}
inline U16 do_zigzag(U16 r) {
  const auto f = [](uint16x8_t x) {
    return veorq_u16(vaddq_u16(x, x), vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(x), 15)));
  };
  return each(f, r);
}
inline std::uint32_t sum_lanes(U8 a, U8 b) {
  return vaddvq_u16(vaddq_u16(vpadalq_u8(vpaddlq_u8(a.lo), a.hi), vpadalq_u8(vpaddlq_u8(b.lo), b.hi)));
}
// Sums of neighbours, limited to 255, in any order.
inline U8 pair_sums(U8 a, U8 b) {
  return {vqaddq_u8(vuzp1q_u8(a.lo, a.hi), vuzp2q_u8(a.lo, a.hi)),
          vqaddq_u8(vuzp1q_u8(b.lo, b.hi), vuzp2q_u8(b.lo, b.hi))};
}

// Sums of absolute residuals of four blocks of eight columns. Words above 32767 count as 32767.
template <class S>
struct BlockSums;

template <>
struct BlockSums<std::uint8_t> {
  uint16x8_t lo = vdupq_n_u16(0), hi = vdupq_n_u16(0);  // of pairs: room for 255 rows of twice 128

  static uint8x16_t absolute(uint8x16_t r) { return vreinterpretq_u8_s8(vabsq_s8(vreinterpretq_s8_u8(r))); }
  void add_absolute(U8 r) {
    lo = vpadalq_u8(lo, absolute(r.lo));
    hi = vpadalq_u8(hi, absolute(r.hi));
  }
  void get(std::uint32_t* four) const { vst1q_u32(four, vpaddq_u32(vpaddlq_u16(lo), vpaddlq_u16(hi))); }
};

template <>
struct BlockSums<std::uint16_t> {
  uint32x4_t a = vdupq_n_u32(0), b = a, c = a, d = a;

  static uint16x8_t absolute(uint16x8_t r) { return vreinterpretq_u16_s16(vqabsq_s16(vreinterpretq_s16_u16(r))); }
  void add_absolute(U16 r) {
    a = vpadalq_u16(a, absolute(r.v[0]));
    b = vpadalq_u16(b, absolute(r.v[1]));
    c = vpadalq_u16(c, absolute(r.v[2]));
    d = vpadalq_u16(d, absolute(r.v[3]));
  }
  void get(std::uint32_t* four) const { vst1q_u32(four, vpaddq_u32(vpaddq_u32(a, b), vpaddq_u32(c, d))); }
};

// Thirty-two pixels of three bytes, apart.
inline void load_interleaved3(const std::uint8_t* p, U8& r, U8& g, U8& b) {
  const uint8x16x3_t lo = vld3q_u8(p), hi = vld3q_u8(p + 48);
  r = {lo.val[0], hi.val[0]};
  g = {lo.val[1], hi.val[1]};
  b = {lo.val[2], hi.val[2]};
}
