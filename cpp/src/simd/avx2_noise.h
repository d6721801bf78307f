// SPDX-License-Identifier: Apache-2.0
// The words of plain_noise.h for AVX2. Included inside a target's namespace.
//
// A lane of 64 bits holds a word of one block; the multiplication ignores its upper half, so that only shifts bring
// words down and nothing has to clear what lies above. Four registers of each word hide the latency of the rounds.

inline constexpr std::size_t kNoiseBlocks = 16;

// Sixteen blocks, from number `first` on.
inline void random_group(std::uint32_t key0, std::uint32_t key1, std::uint64_t first, std::uint32_t* out) {
  constexpr int kRegisters = 4;
  const __m256i multiplier0 = _mm256_set1_epi64x(0xD2511F53), multiplier1 = _mm256_set1_epi64x(0xCD9E8D57);
  __m256i c0[kRegisters], c1[kRegisters], c2[kRegisters], c3[kRegisters];
  for (int r = 0; r < kRegisters; ++r) {
    c0[r] = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(first + 4 * static_cast<std::uint64_t>(r))),
                             _mm256_setr_epi64x(0, 1, 2, 3));
    c1[r] = _mm256_srli_epi64(c0[r], 32);
    c2[r] = c3[r] = _mm256_setzero_si256();
  }
  std::uint32_t k0 = key0, k1 = key1;
  for (int round = 0; round < 10; ++round) {
    const __m256i added0 = _mm256_set1_epi64x(k0), added1 = _mm256_set1_epi64x(k1);
    for (int r = 0; r < kRegisters; ++r) {
      const __m256i p0 = _mm256_mul_epu32(c0[r], multiplier0), p1 = _mm256_mul_epu32(c2[r], multiplier1);
      c0[r] = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(c1[r], added0));
      c1[r] = p1;
      c2[r] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(c3[r], added1));
      c3[r] = p0;
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int r = 0; r < kRegisters; ++r) {
    const __m256i first_two = _mm256_blend_epi32(c0[r], _mm256_slli_epi64(c1[r], 32), 0xAA);
    const __m256i last_two = _mm256_blend_epi32(c2[r], _mm256_slli_epi64(c3[r], 32), 0xAA);
    const __m256i even = _mm256_unpacklo_epi64(first_two, last_two), odd = _mm256_unpackhi_epi64(first_two, last_two);
    auto* const to = reinterpret_cast<__m256i*>(out + 16 * r);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
}

inline void random_words(std::uint32_t key0, std::uint32_t key1, std::uint64_t first, std::size_t blocks,
                         std::uint32_t* out) noexcept {
  std::size_t at = 0;
  for (; blocks - at >= kNoiseBlocks; at += kNoiseBlocks) random_group(key0, key1, first + at, out + 4 * at);
  if (at == blocks) return;
  std::uint32_t last[4 * kNoiseBlocks];
  random_group(key0, key1, first + at, last);
  std::memcpy(out + 4 * at, last, 16 * (blocks - at));
}
