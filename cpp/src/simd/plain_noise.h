// SPDX-License-Identifier: Apache-2.0
// Long runs of random words, Philox 4x32-10 with a key of their own, for every target. Included inside a target's
// namespace.

// Words [4 first, 4 (first + blocks)) of the stream: block b is Philox 4x32-10 of the counter (b mod 2^32, b / 2^32,
// 0, 0).
inline void random_words(std::uint32_t key0, std::uint32_t key1, std::uint64_t first, std::size_t blocks,
                         std::uint32_t* out) noexcept {
  constexpr std::size_t kLanes = 16;
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  for (std::size_t at = 0; at < blocks; at += kLanes) {
    std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::uint64_t number = first + at + i;
      c0[i] = static_cast<std::uint32_t>(number);
      c1[i] = static_cast<std::uint32_t>(number >> 32);
      c2[i] = c3[i] = 0;
    }
    std::uint32_t k0 = key0, k1 = key1;
    for (int round = 0; round < 10; ++round) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        const std::uint64_t p0 = kMultiplier0 * c0[i], p1 = kMultiplier1 * c2[i];
        c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
        c1[i] = static_cast<std::uint32_t>(p1);
        c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
        c3[i] = static_cast<std::uint32_t>(p0);
      }
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    const std::size_t n = blocks - at < kLanes ? blocks - at : kLanes;
    for (std::size_t i = 0; i < n; ++i, out += 4) {
      out[0] = c0[i];
      out[1] = c1[i];
      out[2] = c2[i];
      out[3] = c3[i];
    }
  }
}
