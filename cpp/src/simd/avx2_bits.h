// SPDX-License-Identifier: Apache-2.0
// Bit strings to lanes and back, for AVX2. Included inside a target's namespace.

inline __m256i table_row(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }

// Sixteen samples of `bits` <= 8 bits each in 16-bit lanes, the sample's top bit at bit 15. Reads 16 bytes.
inline __m256i spread(const std::uint8_t* from, const SpreadRow& row) {
  const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return _mm256_mullo_epi16(_mm256_shuffle_epi8(bytes, table_row(row.shuffle)), table_row(row.up));
}
inline __m256i spread_signed(const std::uint8_t* from, std::size_t bits) {
  const SpreadRow& row = kSpread.row[bits];
  return _mm256_mulhi_epi16(spread(from, row), table_row(row.down));
}

// Thirty-two samples of `bits` <= 8 bits. Reads up to 16 bytes past their end.
inline U8 unpack(const std::uint8_t* from, unsigned bits) {
  const SpreadRow& row = kSpread.row[bits];
  const __m256i a = _mm256_mulhi_epu16(spread(from, row), table_row(row.down));
  const __m256i b = _mm256_mulhi_epu16(spread(from + 2 * bits, row), table_row(row.down));
  return {_mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xD8)};
}

// Four groups of 4x4 signed samples, side by side: four rows of sixteen. `widths` has a byte for each group. Returns
// the end of the groups.
inline const std::uint8_t* unpack_groups(const std::uint8_t* from, std::uint32_t widths, std::uint8_t* to,
                                         std::ptrdiff_t pitch) {
  const std::size_t w0 = widths & 0xFF, w1 = (widths >> 8) & 0xFF, w2 = (widths >> 16) & 0xFF, w3 = widths >> 24;
  const std::uint8_t* const from2 = from + 2 * (w0 + w1);
  const __m256i a = spread_signed(from, w0), b = spread_signed(from + 2 * w0, w1);
  const __m256i c = spread_signed(from2, w2), d = spread_signed(from2 + 2 * w2, w3);
  const __m256i x = _mm256_shuffle_epi32(_mm256_packs_epi16(a, b), 0xD8);
  const __m256i y = _mm256_shuffle_epi32(_mm256_packs_epi16(c, d), 0xD8);
  const __m256i even = _mm256_unpacklo_epi64(x, y), odd = _mm256_unpackhi_epi64(x, y);
  store_halves(to, to + 2 * pitch, even);
  store_halves(to + pitch, to + 3 * pitch, odd);
  return from2 + 2 * (w2 + w3);
}
inline void unpack_group(const std::uint8_t* from, unsigned bits, std::uint16_t* to, std::ptrdiff_t pitch) {
  __m256i s;
  if (bits <= 8) {
    s = spread_signed(from, bits);
  } else {
    const __m256i low = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    s = _mm256_or_si256(_mm256_slli_epi16(spread_signed(from + 16, bits - 8), 8), low);
  }
  const __m128i lo = _mm256_castsi256_si128(s), hi = _mm256_extracti128_si256(s, 1);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), lo);
  _mm_storeh_pd(reinterpret_cast<double*>(to + pitch), _mm_castsi128_pd(lo));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 2 * pitch), hi);
  _mm_storeh_pd(reinterpret_cast<double*>(to + 3 * pitch), _mm_castsi128_pd(hi));
}

#if defined(__BMI2__)

// The next extra[lane] <= 4 bits for each lane from a bit string; advances `at`. Reads up to 8 bytes past the last bit.
inline U8 take_bits(U8 extra, const std::uint8_t* bits, std::uint64_t& at) {
  alignas(32) std::uint64_t mask[4], value[4];
  store(reinterpret_cast<std::uint8_t*>(mask), lookup(kOnes.low_bits, extra));
  for (int g = 0; g < 4; ++g) {
    value[g] = _pdep_u64(load_le<std::uint64_t>(bits + (at >> 3)) >> (at & 7), mask[g]);
    at += static_cast<std::uint64_t>(__builtin_popcountll(mask[g]));
  }
  return load(reinterpret_cast<const std::uint8_t*>(value));
}

// The same where no lane takes more than one bit. Cheaper than a branch that cannot be foreseen.
inline constexpr bool kTakesFlagsCheaply = true;
inline U8 take_flags(U8 extra, const std::uint8_t* bits, std::uint64_t& at) {
  const std::uint32_t takes = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_slli_epi16(extra.v, 7)));
  const std::uint32_t ahead = static_cast<std::uint32_t>(load_le<std::uint64_t>(bits + (at >> 3)) >> (at & 7));
  at += static_cast<std::uint64_t>(__builtin_popcount(takes));
  const __m256i set = _mm256_set1_epi32(static_cast<int>(_pdep_u32(ahead, takes)));
  const __m256i byte =
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201U));
  return {_mm256_min_epu8(_mm256_and_si256(_mm256_shuffle_epi8(set, byte), bit), _mm256_set1_epi8(1))};
}

#else

// The next extra[lane] <= 4 bits for each lane from a bit string; advances `at`. Reads up to 8 bytes past the last bit.
inline U8 take_bits(U8 extra, const std::uint8_t* bits, std::uint64_t& at) {
  alignas(32) std::uint64_t e[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(e), extra.v);
  __m256i x[4];
  const __m256i nibble = _mm256_set1_epi32(15);
  for (int g = 0; g < 4; ++g) {
    const std::uint64_t sums = e[g] * 0x0101010101010101U;  // inclusive prefix sums; each byte is at most 32
    const std::uint32_t word = static_cast<std::uint32_t>(load_le<std::uint64_t>(bits + (at >> 3)) >> (at & 7));
    const __m256i shift = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(sums - e[g])));
    x[g] = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(word)), shift), nibble);
    at += sums >> 56;
  }
  const __m256i packed = _mm256_packus_epi16(_mm256_packus_epi32(x[0], x[1]), _mm256_packus_epi32(x[2], x[3]));
  const __m256i ordered = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  return {_mm256_and_si256(ordered, lookup(kOnes.low_bits, extra).v)};
}

inline constexpr bool kTakesFlagsCheaply = false;
inline U8 take_flags(U8 extra, const std::uint8_t* bits, std::uint64_t& at) { return take_bits(extra, bits, at); }

#endif
