// SPDX-License-Identifier: Apache-2.0
// How samples change places and formats, for AVX2: the other half of plain_pixels.h. Included inside a target's
// namespace.

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
