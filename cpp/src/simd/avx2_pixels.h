// SPDX-License-Identifier: Apache-2.0
// The operations of plain_pixels.h for AVX2, with the wider registers of AVX-512 where they serve. Included inside a
// target's namespace, after plain_pixels.h in a namespace `plain`, whose loops take what is too short for a register.

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

// Sixteen bytes of a row hold up to four lanes' worth of pairs: the words of a pair are brought together, then four
// rows are transposed in each half of a register.
inline void turn_pairs(const std::int16_t* const* rows, std::uint32_t channels, std::size_t begin, std::size_t end,
                       std::int16_t* turned) {
  if (channels > 4) return plain::turn_pairs(rows, channels, begin, end, turned);
  const __m256i together = _mm256_broadcastsi128_si256(
      channels == 1   ? _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
      : channels == 2 ? _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15)
      : channels == 3 ? _mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1)
                      : _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
  const std::size_t step = channels == 3 ? 3 : 4;  // lanes' worth, two words each
  const std::size_t last = end * channels;
  for (std::size_t at = begin * channels; at < last; at += step, turned += step * 2 * kBlockRows)
    for (std::uint32_t half = 0; half < 2; ++half) {
      __m256i v[4];
      for (std::uint32_t i = 0; i < 4; ++i) {
        const std::int16_t* const upper = rows[8 * half + i] + 2 * at;
        const std::int16_t* const lower = rows[8 * half + 4 + i] + 2 * at;
        const __m256i both =
            _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(upper))),
                                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower)), 1);
        v[i] = _mm256_shuffle_epi8(both, together);
      }
      const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpacklo_epi32(v[2], v[3]);
      const __m256i c = _mm256_unpackhi_epi32(v[0], v[1]), d = _mm256_unpackhi_epi32(v[2], v[3]);
      __m256i* const to = reinterpret_cast<__m256i*>(turned) + half;
      _mm256_store_si256(to, _mm256_unpacklo_epi64(a, b));
      _mm256_store_si256(to + 2, _mm256_unpackhi_epi64(a, b));
      _mm256_store_si256(to + 4, _mm256_unpacklo_epi64(c, d));
      if (step == 4) _mm256_store_si256(to + 6, _mm256_unpackhi_epi64(c, d));
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

// A 16 x 16 transposition of bytes: four times, each register is interleaved with the one half the block away.
inline void turn_back(const std::uint8_t* turned, std::size_t samples, std::uint32_t count, std::uint8_t* out,
                      std::ptrdiff_t row_stride) {
  std::size_t at = 0;
  for (; at + 16 <= samples; at += 16, turned += 16 * kBlockRows) {
    __m128i v[16], u[16];
    for (int i = 0; i < 16; ++i) v[i] = _mm_load_si128(reinterpret_cast<const __m128i*>(turned) + i);
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 8; ++i) {
        u[2 * i] = _mm_unpacklo_epi8(v[i], v[i + 8]);
        u[2 * i + 1] = _mm_unpackhi_epi8(v[i], v[i + 8]);
      }
      for (int i = 0; i < 8; ++i) {
        v[2 * i] = _mm_unpacklo_epi8(u[i], u[i + 8]);
        v[2 * i + 1] = _mm_unpackhi_epi8(u[i], u[i + 8]);
      }
    }
    std::uint8_t* to = out + at;
    for (std::uint32_t r = 0; r < count; ++r, to += row_stride) _mm_storeu_si128(reinterpret_cast<__m128i*>(to), v[r]);
  }
  plain::turn_back(turned, samples - at, count, out + at, row_stride);
}

// Two transpositions of 8 x 8 words.
inline void turn_back(const std::int16_t* turned, std::size_t samples, std::uint32_t count, std::uint8_t* out,
                      std::ptrdiff_t row_stride) {
  std::size_t at = 0;
  for (; at + 8 <= samples; at += 8, turned += 8 * kBlockRows)
    for (std::uint32_t half = 0; half < count; half += 8) {
      __m128i v[8], u[8];
      for (int i = 0; i < 8; ++i)
        v[i] = _mm_load_si128(reinterpret_cast<const __m128i*>(turned + i * kBlockRows + half));
      for (int i = 0; i < 4; ++i) {
        u[2 * i] = _mm_unpacklo_epi16(v[i], v[i + 4]);
        u[2 * i + 1] = _mm_unpackhi_epi16(v[i], v[i + 4]);
      }
      for (int i = 0; i < 4; ++i) {
        v[2 * i] = _mm_unpacklo_epi16(u[i], u[i + 4]);
        v[2 * i + 1] = _mm_unpackhi_epi16(u[i], u[i + 4]);
      }
      for (int i = 0; i < 4; ++i) {
        u[2 * i] = _mm_unpacklo_epi16(v[i], v[i + 4]);
        u[2 * i + 1] = _mm_unpackhi_epi16(v[i], v[i + 4]);
      }
      for (std::uint32_t r = half; r < count && r < half + 8; ++r)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r * row_stride + 2 * at), u[r - half]);
    }
  plain::turn_back(turned, samples - at, count, out + 2 * at, row_stride);
}

inline void transpose_4(__m128 v[4]) {
  const __m128 a = _mm_unpacklo_ps(v[0], v[1]), b = _mm_unpacklo_ps(v[2], v[3]);
  const __m128 c = _mm_unpackhi_ps(v[0], v[1]), d = _mm_unpackhi_ps(v[2], v[3]);
  v[0] = _mm_movelh_ps(a, b);
  v[1] = _mm_movehl_ps(b, a);
  v[2] = _mm_movelh_ps(c, d);
  v[3] = _mm_movehl_ps(d, c);
}

inline void turn_back(const float* turned, std::size_t samples, std::uint32_t count, std::uint8_t* out,
                      std::ptrdiff_t row_stride) {
  std::size_t at = 0;
  for (; at + 4 <= samples; at += 4, turned += 4 * kBlockRows)
    for (std::uint32_t quarter = 0; quarter < count; quarter += 4) {
      __m128 v[4];
      for (int i = 0; i < 4; ++i) v[i] = _mm_load_ps(turned + i * kBlockRows + quarter);
      transpose_4(v);
      for (std::uint32_t r = quarter; r < count && r < quarter + 4; ++r)
        _mm_storeu_ps(reinterpret_cast<float*>(out + r * row_stride) + at, v[r - quarter]);
    }
  plain::turn_back(turned, samples - at, count, out + 4 * at, row_stride);
}

inline void turn_numbers(const float* const* rows, std::size_t begin, std::size_t end, float* turned) {
  for (; begin + 4 <= end; begin += 4, turned += 4 * kBlockRows)
    for (std::uint32_t quarter = 0; quarter < kBlockRows; quarter += 4) {
      __m128 v[4];
      for (int i = 0; i < 4; ++i) v[i] = _mm_loadu_ps(rows[quarter + i] + begin);
      transpose_4(v);
      for (int i = 0; i < 4; ++i) _mm_store_ps(turned + i * kBlockRows + quarter, v[i]);
    }
  plain::turn_numbers(rows, begin, end, turned);
}

// For each channel and each third of 48 bytes, where its bytes are; the second table mirrors.
struct SplitTables {
  std::int8_t index[2][3][3][16];
  constexpr SplitTables() : index() {
    for (int mirrored = 0; mirrored < 2; ++mirrored)
      for (int c = 0; c < 3; ++c)
        for (int third = 0; third < 3; ++third)
          for (int i = 0; i < 16; ++i) {
            const int from = 3 * (mirrored ? 15 - i : i) + c - 16 * third;
            index[mirrored][c][third][i] = static_cast<std::int8_t>(from >= 0 && from < 16 ? from : -1);
          }
  }
};
inline constexpr SplitTables kSplitTables;

inline void split_rgb(const std::uint8_t* in, std::size_t pixels, bool reversed, std::uint8_t* const* planes) {
  const auto pair_at = [](const std::uint8_t* low, const std::uint8_t* high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
                                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
  };
  const auto& index = kSplitTables.index[reversed];
  std::size_t at = 0;
  for (; at + 32 <= pixels; at += 32) {
    const std::uint8_t* const from = in + 3 * (reversed ? pixels - 32 - at : at);
    const std::uint8_t* const low = from + (reversed ? 48 : 0);
    const std::uint8_t* const high = from + (reversed ? 0 : 48);
    const __m256i a = pair_at(low, high), b = pair_at(low + 16, high + 16), c = pair_at(low + 32, high + 32);
    for (int k = 0; k < 3; ++k) {
      const auto pick = [&](__m256i bytes, int third) {
        const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(index[k][third]));
        return _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(table));
      };
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(planes[k] + at),
                          _mm256_or_si256(_mm256_or_si256(pick(a, 0), pick(b, 1)), pick(c, 2)));
    }
  }
  if (at == pixels) return;
  std::uint8_t* const rest[3] = {planes[0] + at, planes[1] + at, planes[2] + at};
  plain::split_rgb(reversed ? in : in + 3 * at, pixels - at, reversed, rest);
}

#if defined(__AVX512F__)
inline void to_halves(const float* in, std::size_t n, std::uint16_t* out) {
  std::size_t at = 0;
  for (; at + 16 <= n; at += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at),
                        _mm512_cvtps_ph(_mm512_loadu_ps(in + at), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  plain::to_halves(in + at, n - at, out + at);
}
#else
using plain::to_halves;  // AVX2 alone does not promise F16C
#endif
