// SPDX-License-Identifier: Apache-2.0
// Positions of one bits, for AVX2. Included inside a target's namespace.

// The positions, modulo 256, of the one bits of n bytes. Writes up to 8 bytes past the last.
HR_STAGE void positions(const std::uint8_t* from, std::size_t n, std::uint8_t* to) {
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
