// SPDX-License-Identifier: Apache-2.0
// The sums of plain_pixels.h for AVX2, with the wider registers of AVX-512 where they serve. Included inside a target's
// namespace, after plain_pixels.h in a namespace `plain`, whose loops take what is too short for a register.

inline std::int32_t weight_pair(const std::int16_t* weights) {
  std::int32_t pair;
  std::memcpy(&pair, weights, 4);
  return pair;
}

// Bytes of two rows are interleaved and widened, so that one multiplication adds a tap of both.
#if defined(__AVX512BW__)
inline constexpr std::size_t kRowChunk = 64;

inline void sum_row_chunk(const std::uint8_t* const* rows, std::size_t at, const std::int16_t* weights,
                          std::uint32_t taps, std::int16_t* out) {
  constexpr int kShift = kWeightBits - kMiddleBits;
  const __m512i zero = _mm512_setzero_si512();
  __m512i s0 = _mm512_set1_epi32(1 << (kShift - 1)), s1 = s0, s2 = s0, s3 = s0;
  for (std::uint32_t k = 0; k < taps; k += 2) {
    const __m512i a = _mm512_loadu_si512(rows[k] + at), b = _mm512_loadu_si512(rows[k + 1] + at);
    const __m512i w = _mm512_set1_epi32(weight_pair(weights + k));
    const __m512i lo = _mm512_unpacklo_epi8(a, b), hi = _mm512_unpackhi_epi8(a, b);
    s0 = _mm512_add_epi32(s0, _mm512_madd_epi16(_mm512_unpacklo_epi8(lo, zero), w));
    s1 = _mm512_add_epi32(s1, _mm512_madd_epi16(_mm512_unpackhi_epi8(lo, zero), w));
    s2 = _mm512_add_epi32(s2, _mm512_madd_epi16(_mm512_unpacklo_epi8(hi, zero), w));
    s3 = _mm512_add_epi32(s3, _mm512_madd_epi16(_mm512_unpackhi_epi8(hi, zero), w));
  }
  const __m512i lo = _mm512_packs_epi32(_mm512_srai_epi32(s0, kShift), _mm512_srai_epi32(s1, kShift));
  const __m512i hi = _mm512_packs_epi32(_mm512_srai_epi32(s2, kShift), _mm512_srai_epi32(s3, kShift));
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_storeu_si512(out + at, _mm512_permutex2var_epi64(lo, first, hi));
  _mm512_storeu_si512(out + at + 32, _mm512_permutex2var_epi64(lo, second, hi));
}
#else
inline constexpr std::size_t kRowChunk = 32;

inline void sum_row_chunk(const std::uint8_t* const* rows, std::size_t at, const std::int16_t* weights,
                          std::uint32_t taps, std::int16_t* out) {
  constexpr int kShift = kWeightBits - kMiddleBits;
  const __m256i zero = _mm256_setzero_si256();
  __m256i s0 = _mm256_set1_epi32(1 << (kShift - 1)), s1 = s0, s2 = s0, s3 = s0;
  for (std::uint32_t k = 0; k < taps; k += 2) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k] + at));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k + 1] + at));
    const __m256i w = _mm256_set1_epi32(weight_pair(weights + k));
    const __m256i lo = _mm256_unpacklo_epi8(a, b), hi = _mm256_unpackhi_epi8(a, b);
    s0 = _mm256_add_epi32(s0, _mm256_madd_epi16(_mm256_unpacklo_epi8(lo, zero), w));
    s1 = _mm256_add_epi32(s1, _mm256_madd_epi16(_mm256_unpackhi_epi8(lo, zero), w));
    s2 = _mm256_add_epi32(s2, _mm256_madd_epi16(_mm256_unpacklo_epi8(hi, zero), w));
    s3 = _mm256_add_epi32(s3, _mm256_madd_epi16(_mm256_unpackhi_epi8(hi, zero), w));
  }
  const __m256i lo = _mm256_packs_epi32(_mm256_srai_epi32(s0, kShift), _mm256_srai_epi32(s1, kShift));
  const __m256i hi = _mm256_packs_epi32(_mm256_srai_epi32(s2, kShift), _mm256_srai_epi32(s3, kShift));
  __m256i* const to = reinterpret_cast<__m256i*>(out + at);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(lo, hi, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(lo, hi, 0x31));
}
#endif

inline void sum_rows_8(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                       std::size_t samples, std::int16_t* out) noexcept {
  if (samples < kRowChunk) return plain::sum_rows_8(rows, weights, taps, samples, out);
  for (std::size_t at = 0; at + kRowChunk <= samples; at += kRowChunk) sum_row_chunk(rows, at, weights, taps, out);
  // The last chunk may overlap the one before it.
  if (samples % kRowChunk != 0) sum_row_chunk(rows, samples - kRowChunk, weights, taps, out);
}

inline void sum_numbers_8(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                          std::size_t samples, std::int16_t* out) noexcept {
  constexpr std::size_t kChunk = 16;
  if (samples < kChunk) return plain::sum_numbers_8(rows, weights, taps, samples, out);
  const std::size_t last = samples - kChunk;
  for (std::size_t next = 0; next < samples; next += kChunk) {
    const std::size_t at = next < last ? next : last;
    __m256i lo = _mm256_set1_epi32(1 << (kWeightBits - 1)), hi = lo;
    for (std::uint32_t k = 0; k < taps; k += 2) {
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k] + 2 * at));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k + 1] + 2 * at));
      const __m256i w = _mm256_set1_epi32(weight_pair(weights + k));
      lo = _mm256_add_epi32(lo, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w));
      hi = _mm256_add_epi32(hi, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at),
                        _mm256_packs_epi32(_mm256_srai_epi32(lo, kWeightBits), _mm256_srai_epi32(hi, kWeightBits)));
  }
}

#if defined(__AVX512BW__)
using PairSums = __m512i;
inline PairSums pair_sums(std::int32_t x) { return _mm512_set1_epi32(x); }
inline PairSums add_pair(PairSums sums, const std::int16_t* turned, PairSums weights) {
  return _mm512_add_epi32(sums, _mm512_madd_epi16(_mm512_load_si512(turned), weights));
}
inline void store_sums(std::uint8_t* out, PairSums sums) {
  const __m512i levels = _mm512_max_epi32(_mm512_srai_epi32(sums, kWeightBits + kMiddleBits), _mm512_setzero_si512());
  _mm_store_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtusepi32_epi8(levels));
}
inline void store_sums(std::int16_t* out, PairSums sums) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(_mm512_srai_epi32(sums, kWeightBits)));
}
#else
struct PairSums {
  __m256i lo, hi;
};
inline PairSums pair_sums(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline PairSums add_pair(PairSums sums, const std::int16_t* turned, PairSums weights) {
  const __m256i* const at = reinterpret_cast<const __m256i*>(turned);
  return {_mm256_add_epi32(sums.lo, _mm256_madd_epi16(_mm256_load_si256(at), weights.lo)),
          _mm256_add_epi32(sums.hi, _mm256_madd_epi16(_mm256_load_si256(at + 1), weights.hi))};
}
inline __m256i shifted_words(PairSums sums, int shift) {
  return _mm256_permute4x64_epi64(
      _mm256_packs_epi32(_mm256_srai_epi32(sums.lo, shift), _mm256_srai_epi32(sums.hi, shift)), 0xD8);
}
inline void store_sums(std::uint8_t* out, PairSums sums) {
  const __m256i words = shifted_words(sums, kWeightBits + kMiddleBits);
  _mm_store_si128(reinterpret_cast<__m128i*>(out),
                  _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
inline void store_sums(std::int16_t* out, PairSums sums) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(out), shifted_words(sums, kWeightBits));
}
#endif

template <class Out>
inline void sum_pairs(const std::int16_t* turned, std::uint32_t channels, std::uint32_t pairs,
                      const std::int16_t* weights, Out* out) {
  constexpr std::int32_t kHalf = 1 << (sizeof(Out) == 1 ? kWeightBits + kMiddleBits - 1 : kWeightBits - 1);
  constexpr std::size_t kLanes = 2 * kBlockRows;
  std::uint32_t c = 0;
  for (; c + 3 <= channels; c += 3) {
    PairSums s0 = pair_sums(kHalf), s1 = s0, s2 = s0;
    const std::int16_t* at = turned + c * kLanes;
    for (std::uint32_t k = 0; k < pairs; ++k, at += channels * kLanes) {
      const PairSums w = pair_sums(weight_pair(weights + 2 * k));
      s0 = add_pair(s0, at, w);
      s1 = add_pair(s1, at + kLanes, w);
      s2 = add_pair(s2, at + 2 * kLanes, w);
    }
    store_sums(out + c * kBlockRows, s0);
    store_sums(out + (c + 1) * kBlockRows, s1);
    store_sums(out + (c + 2) * kBlockRows, s2);
  }
  for (; c < channels; ++c) {
    PairSums s = pair_sums(kHalf);
    const std::int16_t* at = turned + c * kLanes;
    for (std::uint32_t k = 0; k < pairs; ++k, at += channels * kLanes)
      s = add_pair(s, at, pair_sums(weight_pair(weights + 2 * k)));
    store_sums(out + c * kBlockRows, s);
  }
}
