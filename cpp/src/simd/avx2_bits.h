// SPDX-License-Identifier: Apache-2.0
// Bit strings to lanes and back, for AVX2. Included inside a target's namespace.

// Sixteen samples of `bits` <= 8 bits each in 16-bit lanes, the sample's top bit at bit 15. Reads 16 bytes.
inline __m256i spread(const std::uint8_t* from, unsigned bits) {
  const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m256i pairs =
      _mm256_shuffle_epi8(bytes, _mm256_load_si256(reinterpret_cast<const __m256i*>(kSpread.shuffle[bits])));
  return _mm256_mullo_epi16(pairs, _mm256_load_si256(reinterpret_cast<const __m256i*>(kSpread.multiply[bits])));
}

// Thirty-two samples of `bits` <= 8 bits. Reads up to 16 bytes past their end.
inline U8 unpack(const std::uint8_t* from, unsigned bits) {
  const __m128i count = _mm_cvtsi32_si128(static_cast<int>(16 - bits));
  const __m256i a = _mm256_srl_epi16(spread(from, bits), count);
  const __m256i b = _mm256_srl_epi16(spread(from + 2 * bits, bits), count);
  return {_mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xD8)};
}

// Four groups of 4x4 signed samples, side by side: four rows of sixteen. `bits` are the groups' widths, `from` their first bytes.
inline void unpack_groups(const std::uint8_t* const* from, const std::uint8_t* bits, std::uint8_t* to,
                          std::ptrdiff_t pitch) {
  __m256i s[4];
  for (int g = 0; g < 4; ++g)
    s[g] = _mm256_sra_epi16(spread(from[g], bits[g]), _mm_cvtsi32_si128(16 - bits[g]));
  const __m256i x = _mm256_shuffle_epi32(_mm256_packs_epi16(s[0], s[1]), 0xD8);
  const __m256i y = _mm256_shuffle_epi32(_mm256_packs_epi16(s[2], s[3]), 0xD8);
  const __m256i even = _mm256_unpacklo_epi64(x, y), odd = _mm256_unpackhi_epi64(x, y);
  store_halves(to, to + 2 * pitch, even);
  store_halves(to + pitch, to + 3 * pitch, odd);
}
inline void unpack_group(const std::uint8_t* from, unsigned bits, std::uint16_t* to, std::ptrdiff_t pitch) {
  __m256i s;
  if (bits <= 8) {
    s = _mm256_sra_epi16(spread(from, bits), _mm_cvtsi32_si128(static_cast<int>(16 - bits)));
  } else {
    const __m256i low = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __m256i high = _mm256_sra_epi16(spread(from + 16, bits - 8), _mm_cvtsi32_si128(static_cast<int>(24 - bits)));
    s = _mm256_or_si256(_mm256_slli_epi16(high, 8), low);
  }
  const __m128i lo = _mm256_castsi256_si128(s), hi = _mm256_extracti128_si256(s, 1);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), lo);
  _mm_storeh_pd(reinterpret_cast<double*>(to + pitch), _mm_castsi128_pd(lo));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 2 * pitch), hi);
  _mm_storeh_pd(reinterpret_cast<double*>(to + 3 * pitch), _mm_castsi128_pd(hi));
}

// The positions, modulo 256, of the one bits of n bytes. Writes up to 8 bytes past the last.
inline void positions(const std::uint8_t* from, std::size_t n, std::uint8_t* to) {
  const __m128i step = _mm_set1_epi8(64);
  __m128i base[8];
  for (int k = 0; k < 8; ++k) base[k] = _mm_set1_epi8(static_cast<char>(8 * k));
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    std::uint64_t word = load_le<std::uint64_t>(from + i);
    for (int k = 0; k < 8; ++k) {
      const std::size_t byte = word & 0xFF;
      word >>= 8;
      const __m128i ones = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kOnes.position[byte]));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_add_epi8(ones, base[k]));
      to += kOnes.count[byte];
      base[k] = _mm_add_epi8(base[k], step);
    }
  }
  for (int k = 0; i < n; ++i, ++k) {
    const __m128i ones = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kOnes.position[from[i]]));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_add_epi8(ones, base[k]));
    to += kOnes.count[from[i]];
  }
}

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
