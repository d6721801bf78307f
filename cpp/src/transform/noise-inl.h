// SPDX-License-Identifier: Apache-2.0
// Long runs of random numbers: Philox words from a key of their own, and normal numbers from words. Included inside a
// target's namespace; loops without branches, so that compilers vectorise them.

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

// Twice the middle of the word's first 24 bits, taken as a signed number: odd, below 2^24 in size.
inline float centered(std::uint32_t word) {
  return (static_cast<float>(static_cast<std::int32_t>(word) >> 8) + 0.5f) * 0x1p-23f;
}

// The natural logarithm of a positive number that is not subnormal, to 2e-7 (Cephes' logf).
inline float log_of(float x) {
  const std::int32_t bits = __builtin_bit_cast(std::int32_t, x) - 0x3F3504F3;  // of the root of 1/2
  const float e = static_cast<float>(bits >> 23);
  const float m = __builtin_bit_cast(float, (bits & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
  const float square = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  return (m + ((p * m * square + e * -2.12194440e-4f) - 0.5f * square)) + e * 0.693359375f;
}

// The inverse of the normal distribution, to 1e-6 relatively, by the polynomials of Giles, "Approximating the erfinv
// function" (2010). The tail, 0.3 % of all numbers, is done apart: its root would keep the loop from being vectorised.
inline void normal_numbers(const std::uint32_t* words, std::size_t n, float* out) noexcept {
  constexpr float kRoot2 = 1.41421356f, kTail = 0.99662536f;  // 1 - kTail^2 = e^-5
  for (std::size_t i = 0; i < n; ++i) {
    const float x = centered(words[i]);
    const float w = -log_of((1.0f - x) * (1.0f + x)) - 2.5f;
    float p = 2.81022636e-08f;
    p = p * w + 3.43273939e-07f;
    p = p * w - 3.5233877e-06f;
    p = p * w - 4.39150654e-06f;
    p = p * w + 0.00021858087f;
    p = p * w - 0.00125372503f;
    p = p * w - 0.00417768164f;
    p = p * w + 0.246640727f;
    p = p * w + 1.50140941f;
    out[i] = p * x * kRoot2;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const float x = centered(words[i]);
    if (x < kTail && x > -kTail) continue;
    const float w = __builtin_sqrtf(-log_of((1.0f - x) * (1.0f + x))) - 3.0f;
    float p = -0.000200214257f;
    p = p * w + 0.000100950558f;
    p = p * w + 0.00134934322f;
    p = p * w - 0.00367342844f;
    p = p * w + 0.00573950773f;
    p = p * w - 0.0076224613f;
    p = p * w + 0.00943887047f;
    p = p * w + 1.00167406f;
    p = p * w + 2.83297682f;
    out[i] = p * x * kRoot2;
  }
}

inline void write_halves(const float* in, std::size_t n, std::uint16_t* out) noexcept { to_halves(in, n, out); }
