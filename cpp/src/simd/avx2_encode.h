// SPDX-License-Identifier: Apache-2.0
// Vector operations that only the encoder needs, for AVX2. Included inside a target's namespace.

inline U8 bit_or(U8 a, U8 b) { return {_mm256_or_si256(a.v, b.v)}; }
inline U16 bit_or(U16 a, U16 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
inline U8 do_zigzag(U8 r) {
  return {_mm256_xor_si256(_mm256_add_epi8(r.v, r.v), _mm256_cmpgt_epi8(_mm256_setzero_si256(), r.v))};
}
inline U16 do_zigzag(U16 r) {
  return {_mm256_xor_si256(_mm256_add_epi16(r.lo, r.lo), _mm256_srai_epi16(r.lo, 15)),
          _mm256_xor_si256(_mm256_add_epi16(r.hi, r.hi), _mm256_srai_epi16(r.hi, 15))};
}
inline std::uint32_t sum_lanes(U8 a, U8 b) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i s = _mm256_add_epi32(_mm256_sad_epu8(a.v, zero), _mm256_sad_epu8(b.v, zero));
  const __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(t) + _mm_extract_epi32(t, 2));
}
// Sums of neighbours, limited to 255, in any order.
inline U8 pair_sums(U8 a, U8 b) {
  const __m256i one = _mm256_set1_epi8(1);
  return {_mm256_packus_epi16(_mm256_maddubs_epi16(a.v, one), _mm256_maddubs_epi16(b.v, one))};
}

// Sums of absolute residuals of four blocks of eight columns. Words above 32767 count as 32767.
template <class S>
struct BlockSums;

template <>
struct BlockSums<std::uint8_t> {
  __m256i sum = _mm256_setzero_si256();

  void add_absolute(U8 r) {
    const __m256i zero = _mm256_setzero_si256();
    sum = _mm256_add_epi64(sum, _mm256_sad_epu8(_mm256_min_epu8(r.v, _mm256_sub_epi8(zero, r.v)), zero));
  }
  void get(std::uint32_t* four) const {
    alignas(32) std::uint64_t s[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(s), sum);
    for (int k = 0; k < 4; ++k) four[k] = static_cast<std::uint32_t>(s[k]);
  }
};

template <>
struct BlockSums<std::uint16_t> {
  __m256i lo = _mm256_setzero_si256(), hi = _mm256_setzero_si256();

  static __m256i absolute_pairs(__m256i r) {
    const __m256i a = _mm256_min_epu16(r, _mm256_sub_epi16(_mm256_setzero_si256(), r));
    return _mm256_madd_epi16(_mm256_min_epu16(a, _mm256_set1_epi16(32767)), _mm256_set1_epi16(1));
  }
  void add_absolute(U16 r) {
    lo = _mm256_add_epi32(lo, absolute_pairs(r.lo));
    hi = _mm256_add_epi32(hi, absolute_pairs(r.hi));
  }
  void get(std::uint32_t* four) const {
    alignas(32) std::uint32_t s[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(s), lo);
    _mm256_store_si256(reinterpret_cast<__m256i*>(s + 8), hi);
    for (int k = 0; k < 4; ++k) four[k] = s[4 * k] + s[4 * k + 1] + s[4 * k + 2] + s[4 * k + 3];
  }
};

// Thirty-two pixels of three bytes, apart. Each half of a register takes sixteen pixels: 48 bytes, from three loads.
inline void load_interleaved3(const std::uint8_t* p, U8& r, U8& g, U8& b) {
  const __m256i x = load_halves(p, p + 48), y = load_halves(p + 16, p + 64), z = load_halves(p + 32, p + 80);
  U8* const to[3] = {&r, &g, &b};
  for (int c = 0; c < 3; ++c) {
    const auto from = [c](int k, __m256i v) {
      return _mm256_shuffle_epi8(
          v, _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kThree.split[c][k]))));
    };
    to[c]->v = _mm256_or_si256(_mm256_or_si256(from(0, x), from(1, y)), from(2, z));
  }
}
