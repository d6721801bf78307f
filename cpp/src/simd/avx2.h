// SPDX-License-Identifier: Apache-2.0
// The vector operations that the kernels are written in, for AVX2 (no BMI2: pdep is microcode on Zen 1 and 2). Included
// inside a target's namespace. A U8 has 32 lanes of a byte, a U16 32 lanes of 16 bits: a lane is a row of a tile.

struct U8 {
  __m256i v;
};
struct U16 {
  __m256i lo, hi;  // lanes 0 to 15, 16 to 31
};

inline U8 load(const std::uint8_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
inline void store(std::uint8_t* p, U8 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v); }
inline U8 set_all(std::uint8_t x) { return {_mm256_set1_epi8(static_cast<char>(x))}; }
inline U8 add(U8 a, U8 b) { return {_mm256_add_epi8(a.v, b.v)}; }
inline U8 sub(U8 a, U8 b) { return {_mm256_sub_epi8(a.v, b.v)}; }
inline U8 min(U8 a, U8 b) { return {_mm256_min_epu8(a.v, b.v)}; }
inline U8 max(U8 a, U8 b) { return {_mm256_max_epu8(a.v, b.v)}; }
inline U8 avg(U8 a, U8 b) { return {_mm256_avg_epu8(a.v, b.v)}; }
inline U8 bit_and(U8 a, U8 b) { return {_mm256_and_si256(a.v, b.v)}; }
inline U8 bit_xor(U8 a, U8 b) { return {_mm256_xor_si256(a.v, b.v)}; }
inline U8 equal(U8 a, U8 b) { return {_mm256_cmpeq_epi8(a.v, b.v)}; }
// For masks of whole lanes. With AVX-512 one instruction of three inputs.
inline __m256i select(__m256i mask, __m256i yes, __m256i no) {
#if defined(__AVX512VL__)
  return _mm256_ternarylogic_epi32(mask, yes, no, 0xCA);
#else
  return _mm256_blendv_epi8(no, yes, mask);
#endif
}
inline U8 select(U8 mask, U8 yes, U8 no) { return {select(mask.v, yes.v, no.v)}; }
inline U8 shift_left(U8 a, unsigned n) {
  const __m256i keep = _mm256_set1_epi8(static_cast<char>(0xFF << n));
  return {_mm256_and_si256(_mm256_sll_epi16(a.v, _mm_cvtsi32_si128(static_cast<int>(n))), keep)};
}
inline U8 shift_right(U8 a, unsigned n) {
  const __m256i keep = _mm256_set1_epi8(static_cast<char>(0xFF >> n));
  return {_mm256_and_si256(_mm256_srl_epi16(a.v, _mm_cvtsi32_si128(static_cast<int>(n))), keep)};
}
// -1 for odd lanes, 0 for even ones.
inline U8 odd_mask(U8 a) {
  return {_mm256_sub_epi8(_mm256_setzero_si256(), _mm256_and_si256(a.v, _mm256_set1_epi8(1)))};
}
// table[index] for indices below 16.
inline U8 lookup(const std::uint8_t* table, U8 index) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(t, index.v)};
}
inline bool any(U8 a) { return _mm256_testz_si256(a.v, a.v) == 0; }
inline std::uint32_t sum_lanes(U8 a) {
  const __m256i s = _mm256_sad_epu8(a.v, _mm256_setzero_si256());
  const __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(t) + _mm_extract_epi32(t, 2));
}
// Lane r gets lane r - 1; lane 0 gets 0.
inline U8 from_lane_above(U8 a) {
#if defined(__AVX512VBMI__)
  const __m256i index = _mm256_setr_epi8(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                         21, 22, 23, 24, 25, 26, 27, 28, 29, 30);
  return {_mm256_maskz_permutexvar_epi8(0xFFFFFFFE, index, a.v)};
#else
  return {_mm256_alignr_epi8(a.v, _mm256_permute2x128_si256(a.v, a.v, 0x08), 15)};
#endif
}
inline void zip(U8 a, U8 b, U8& first, U8& second) {
  const __m256i lo = _mm256_unpacklo_epi8(a.v, b.v);
  const __m256i hi = _mm256_unpackhi_epi8(a.v, b.v);
  first.v = _mm256_permute2x128_si256(lo, hi, 0x20);
  second.v = _mm256_permute2x128_si256(lo, hi, 0x31);
}

inline U16 load(const std::uint16_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
}
inline void store(std::uint16_t* p, U16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), a.hi);
}
inline U16 set_all(std::uint16_t x) {
  const __m256i v = _mm256_set1_epi16(static_cast<short>(x));
  return {v, v};
}
inline U16 add(U16 a, U16 b) { return {_mm256_add_epi16(a.lo, b.lo), _mm256_add_epi16(a.hi, b.hi)}; }
inline U16 sub(U16 a, U16 b) { return {_mm256_sub_epi16(a.lo, b.lo), _mm256_sub_epi16(a.hi, b.hi)}; }
inline U16 min(U16 a, U16 b) { return {_mm256_min_epu16(a.lo, b.lo), _mm256_min_epu16(a.hi, b.hi)}; }
inline U16 max(U16 a, U16 b) { return {_mm256_max_epu16(a.lo, b.lo), _mm256_max_epu16(a.hi, b.hi)}; }
inline U16 avg(U16 a, U16 b) { return {_mm256_avg_epu16(a.lo, b.lo), _mm256_avg_epu16(a.hi, b.hi)}; }
inline U16 bit_and(U16 a, U16 b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
inline U16 bit_xor(U16 a, U16 b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
inline U16 equal(U16 a, U16 b) { return {_mm256_cmpeq_epi16(a.lo, b.lo), _mm256_cmpeq_epi16(a.hi, b.hi)}; }
inline U16 select(U16 m, U16 yes, U16 no) { return {select(m.lo, yes.lo, no.lo), select(m.hi, yes.hi, no.hi)}; }
inline U16 shift_left(U16 a, unsigned n) {
  const __m128i c = _mm_cvtsi32_si128(static_cast<int>(n));
  return {_mm256_sll_epi16(a.lo, c), _mm256_sll_epi16(a.hi, c)};
}
inline U16 shift_right(U16 a, unsigned n) {
  const __m128i c = _mm_cvtsi32_si128(static_cast<int>(n));
  return {_mm256_srl_epi16(a.lo, c), _mm256_srl_epi16(a.hi, c)};
}
inline U16 odd_mask(U16 a) {
  const __m256i one = _mm256_set1_epi16(1), zero = _mm256_setzero_si256();
  return {_mm256_sub_epi16(zero, _mm256_and_si256(a.lo, one)), _mm256_sub_epi16(zero, _mm256_and_si256(a.hi, one))};
}
inline U16 from_lane_above(U16 a) {
  return {_mm256_alignr_epi8(a.lo, _mm256_permute2x128_si256(a.lo, a.lo, 0x08), 14),
          _mm256_alignr_epi8(a.hi, _mm256_permute2x128_si256(a.lo, a.hi, 0x21), 14)};
}
inline U16 widen(U8 a) {
  return {_mm256_cvtepu8_epi16(_mm256_castsi256_si128(a.v)), _mm256_cvtepu8_epi16(_mm256_extracti128_si256(a.v, 1))};
}
inline U16 widen_signed(U8 a) {
  return {_mm256_cvtepi8_epi16(_mm256_castsi256_si128(a.v)), _mm256_cvtepi8_epi16(_mm256_extracti128_si256(a.v, 1))};
}

// Each of n samples becomes the sum of all up to it. May also change the samples up to the next multiple of 16.
inline void sum_along(std::uint8_t* p, std::uint32_t n) {
  const __m128i last = _mm_set1_epi8(15);
  __m128i carry = _mm_setzero_si128();
  for (std::uint32_t i = 0; i < n; i += 16) {
    __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i));
    x = _mm_add_epi8(x, _mm_slli_si128(x, 1));
    x = _mm_add_epi8(x, _mm_slli_si128(x, 2));
    x = _mm_add_epi8(x, _mm_slli_si128(x, 4));
    x = _mm_add_epi8(_mm_add_epi8(x, _mm_slli_si128(x, 8)), carry);
    carry = _mm_shuffle_epi8(x, last);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + i), x);
  }
}
inline void sum_along(std::uint16_t* p, std::uint32_t n) {
  const __m128i last = _mm_set1_epi16(0x0F0E);
  __m128i carry = _mm_setzero_si128();
  for (std::uint32_t i = 0; i < n; i += 8) {
    __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i));
    x = _mm_add_epi16(x, _mm_slli_si128(x, 2));
    x = _mm_add_epi16(x, _mm_slli_si128(x, 4));
    x = _mm_add_epi16(_mm_add_epi16(x, _mm_slli_si128(x, 8)), carry);
    carry = _mm_shuffle_epi8(x, last);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + i), x);
  }
}

// Four rows of eight samples, `pitch` samples apart.
inline void store_rows(std::uint8_t* p, std::ptrdiff_t pitch, U8 a) {
  const __m128i lo = _mm256_castsi256_si128(a.v), hi = _mm256_extracti128_si256(a.v, 1);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), lo);
  _mm_storeh_pd(reinterpret_cast<double*>(p + pitch), _mm_castsi128_pd(lo));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p + 2 * pitch), hi);
  _mm_storeh_pd(reinterpret_cast<double*>(p + 3 * pitch), _mm_castsi128_pd(hi));
}
inline void store_rows(std::uint16_t* p, std::ptrdiff_t pitch, U16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(a.lo));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + pitch), _mm256_extracti128_si256(a.lo, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 2 * pitch), _mm256_castsi256_si128(a.hi));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 3 * pitch), _mm256_extracti128_si256(a.hi, 1));
}

// Rotate the bits of the index of 2^k registers by one, k times: a transpose of bytes (k = 4) or 16-bit lanes (k = 3)
// within each 128-bit half.
inline void transpose_bytes(__m256i (&a)[16]) {
  __m256i b[16];
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 8]);
      b[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 8]);
    }
    for (int i = 0; i < 8; ++i) {
      a[2 * i] = _mm256_unpacklo_epi8(b[i], b[i + 8]);
      a[2 * i + 1] = _mm256_unpackhi_epi8(b[i], b[i + 8]);
    }
  }
}
inline void transpose_words(__m256i (&a)[8]) {
  __m256i b[8];
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm256_unpacklo_epi16(a[i], a[i + 4]);
    b[2 * i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_epi16(b[i], b[i + 4]);
    a[2 * i + 1] = _mm256_unpackhi_epi16(b[i], b[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm256_unpacklo_epi16(a[i], a[i + 4]);
    b[2 * i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 4]);
  }
  for (int i = 0; i < 8; ++i) a[i] = b[i];
}
inline __m256i load_halves(const void* lo, const void* hi) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(lo))),
                                 _mm_loadu_si128(static_cast<const __m128i*>(hi)), 1);
}
inline void store_halves(void* lo, void* hi, __m256i a) {
  _mm_storeu_si128(static_cast<__m128i*>(lo), _mm256_castsi256_si128(a));
  _mm_storeu_si128(static_cast<__m128i*>(hi), _mm256_extracti128_si256(a, 1));
}

// Sixteen steps of the wave: step k has in lane r the sample of row r at column k - skew * r, relative to `p`.
inline void gather_steps(const std::uint8_t* p, std::ptrdiff_t row, U8* steps) {
  __m256i a[16];
  for (int i = 0; i < 16; ++i) a[i] = load_halves(p + i * row, p + (i + 16) * row);
  transpose_bytes(a);
  for (int i = 0; i < 16; ++i) steps[i].v = a[i];
}
inline void scatter_steps(const U8* steps, std::uint8_t* p, std::ptrdiff_t row) {
  __m256i a[16];
  for (int i = 0; i < 16; ++i) a[i] = steps[i].v;
  transpose_bytes(a);
  for (int i = 0; i < 16; ++i) store_halves(p + i * row, p + (i + 16) * row, a[i]);
}
inline void gather_steps(const std::uint16_t* p, std::ptrdiff_t row, U16* steps) {
  for (int half = 0; half < 2; ++half, p += 8, steps += 8) {
    __m256i a[8], b[8];
    for (int i = 0; i < 8; ++i) {
      a[i] = load_halves(p + i * row, p + (i + 8) * row);
      b[i] = load_halves(p + (i + 16) * row, p + (i + 24) * row);
    }
    transpose_words(a);
    transpose_words(b);
    for (int i = 0; i < 8; ++i) steps[i] = {a[i], b[i]};
  }
}
inline void scatter_steps(const U16* steps, std::uint16_t* p, std::ptrdiff_t row) {
  for (int half = 0; half < 2; ++half, p += 8, steps += 8) {
    __m256i a[8], b[8];
    for (int i = 0; i < 8; ++i) {
      a[i] = steps[i].lo;
      b[i] = steps[i].hi;
    }
    transpose_words(a);
    transpose_words(b);
    for (int i = 0; i < 8; ++i) {
      store_halves(p + i * row, p + (i + 8) * row, a[i]);
      store_halves(p + (i + 16) * row, p + (i + 24) * row, b[i]);
    }
  }
}

// Thirty-two pixels of three or four interleaved bytes.
inline void store_interleaved3(std::uint8_t* p, U8 r, U8 g, U8 b) {
  __m256i part[3];
  for (int k = 0; k < 3; ++k) {
    const auto from = [k](int c, __m256i v) {
      return _mm256_shuffle_epi8(
          v, _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kThree.join[k][c]))));
    };
    part[k] = _mm256_or_si256(_mm256_or_si256(from(0, r.v), from(1, g.v)), from(2, b.v));
  }
  for (int k = 0; k < 3; ++k) store_halves(p + 16 * k, p + 48 + 16 * k, part[k]);
}
inline void store_interleaved4(std::uint8_t* p, U8 r, U8 g, U8 b, U8 a) {
  const __m256i rg0 = _mm256_unpacklo_epi8(r.v, g.v), rg1 = _mm256_unpackhi_epi8(r.v, g.v);
  const __m256i ba0 = _mm256_unpacklo_epi8(b.v, a.v), ba1 = _mm256_unpackhi_epi8(b.v, a.v);
  const __m256i x0 = _mm256_unpacklo_epi16(rg0, ba0), x1 = _mm256_unpackhi_epi16(rg0, ba0);
  const __m256i x2 = _mm256_unpacklo_epi16(rg1, ba1), x3 = _mm256_unpackhi_epi16(rg1, ba1);
  __m256i* q = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(q, _mm256_permute2x128_si256(x0, x1, 0x20));
  _mm256_storeu_si256(q + 1, _mm256_permute2x128_si256(x2, x3, 0x20));
  _mm256_storeu_si256(q + 2, _mm256_permute2x128_si256(x0, x1, 0x31));
  _mm256_storeu_si256(q + 3, _mm256_permute2x128_si256(x2, x3, 0x31));
}
