// SPDX-License-Identifier: Apache-2.0
// Normal numbers from long runs of random words (simd/plain_noise.h). Included inside a target's namespace; loops
// without branches, so that compilers vectorise them.

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
inline constexpr float kRoot2 = 1.41421356f, kTail = 0.99662536f;  // 1 - kTail^2 = e^-5

inline float normal_of_tail(float x) {
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
  return p * x * kRoot2;
}

// Returns whether one of them is of the tail.
inline bool normals_of_middle(const std::uint32_t* words, std::size_t n, float* out) {
  std::int32_t tails = 0;
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
    tails |= (x >= kTail ? 1 : 0) | (x <= -kTail ? 1 : 0);
  }
  return tails != 0;
}

// 32 at a time: nine of ten such pieces have no tail. To look at each number for itself took a third of the time.
inline void normal_numbers(const std::uint32_t* words, std::size_t n, float* out) noexcept {
  constexpr std::size_t kPiece = 32;
  for (std::size_t at = 0; at < n; at += kPiece) {
    const bool complete = n - at >= kPiece;
    const std::size_t count = complete ? kPiece : n - at;
    // A constant count is vectorised without a rest.
    if (!(complete ? normals_of_middle(words + at, kPiece, out + at) : normals_of_middle(words + at, count, out + at)))
      continue;
    for (std::size_t i = at; i < at + count; ++i) {
      const float x = centered(words[i]);
      if (x >= kTail || x <= -kTail) out[i] = normal_of_tail(x);
    }
  }
}

inline void write_halves(const float* in, std::size_t n, std::uint16_t* out) noexcept { to_halves(in, n, out); }
