// SPDX-License-Identifier: Apache-2.0
// The operations on samples that resizing and finishing are written in, as plain loops that compilers vectorise: for
// the scalar target and NEON. Included inside a target's namespace.

template <int kShift, class Sample>
inline void sum_rows_of(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                        std::size_t samples, std::int16_t* out) {
  constexpr std::size_t kChunk = 512;
  std::int32_t sums[kChunk];
  for (std::size_t at = 0; at < samples; at += kChunk) {
    const std::size_t n = samples - at < kChunk ? samples - at : kChunk;
    for (std::size_t i = 0; i < n; ++i) sums[i] = 1 << (kShift - 1);
    for (std::uint32_t k = 0; k < taps; k += 2) {
      const Sample* const a = reinterpret_cast<const Sample*>(rows[k]) + at;
      const Sample* const b = reinterpret_cast<const Sample*>(rows[k + 1]) + at;
      const std::int16_t u = weights[k], v = weights[k + 1];
      for (std::size_t i = 0; i < n; ++i)
        sums[i] += static_cast<std::int16_t>(a[i]) * u + static_cast<std::int16_t>(b[i]) * v;
    }
    for (std::size_t i = 0; i < n; ++i) out[at + i] = static_cast<std::int16_t>(sums[i] >> kShift);
  }
}

inline void sum_rows_8(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                       std::size_t samples, std::int16_t* out) noexcept {
  sum_rows_of<kWeightBits - kMiddleBits, std::uint8_t>(rows, weights, taps, samples, out);
}

inline void sum_numbers_8(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                          std::size_t samples, std::int16_t* out) noexcept {
  sum_rows_of<kWeightBits, std::int16_t>(rows, weights, taps, samples, out);
}

// Pairs of neighbouring pixels [begin, end) of all rows: of each channel, each row's pair as one lane.
inline void turn_pairs(const std::int16_t* const* rows, std::uint32_t channels, std::size_t begin, std::size_t end,
                       std::int16_t* turned) {
  for (std::size_t pair = begin; pair < end; ++pair)
    for (std::uint32_t c = 0; c < channels; ++c, turned += 2 * kBlockRows)
      for (std::uint32_t r = 0; r < kBlockRows; ++r) {
        turned[2 * r] = rows[r][2 * pair * channels + c];
        turned[2 * r + 1] = rows[r][(2 * pair + 1) * channels + c];
      }
}

// The pixel that `pairs` turned pairs make: of each channel, a level or a number for each row.
template <class Out>
inline void sum_pairs(const std::int16_t* turned, std::uint32_t channels, std::uint32_t pairs,
                      const std::int16_t* weights, Out* out) {
  constexpr bool kRounds = sizeof(Out) == 1;
  constexpr int kShift = kRounds ? kWeightBits + kMiddleBits : kWeightBits;
  for (std::uint32_t c = 0; c < channels; ++c, turned += 2 * kBlockRows, out += kBlockRows) {
    std::int32_t sums[kBlockRows];
    for (std::uint32_t r = 0; r < kBlockRows; ++r) sums[r] = 1 << (kShift - 1);
    const std::int16_t* at = turned;
    for (std::uint32_t k = 0; k < pairs; ++k, at += std::size_t{channels} * 2 * kBlockRows)
      for (std::uint32_t r = 0; r < kBlockRows; ++r)
        sums[r] += at[2 * r] * weights[2 * k] + at[2 * r + 1] * weights[2 * k + 1];
    for (std::uint32_t r = 0; r < kBlockRows; ++r) {
      const std::int32_t x = sums[r] >> kShift;
      out[r] = static_cast<Out>(!kRounds ? x : x < 0 ? 0 : x > 255 ? 255 : x);
    }
  }
}

// `samples` times a number for each row, back to rows of which `count` are wanted.
template <class Number>
inline void turn_back(const Number* turned, std::size_t samples, std::uint32_t count, std::uint8_t* out,
                      std::ptrdiff_t row_stride) {
  for (std::uint32_t r = 0; r < count; ++r, out += row_stride)
    for (std::size_t i = 0; i < samples; ++i) reinterpret_cast<Number*>(out)[i] = turned[i * kBlockRows + r];
}

// Numbers [begin, end) of all rows, each row's as one lane.
inline void turn_numbers(const float* const* rows, std::size_t begin, std::size_t end, float* turned) {
  for (std::size_t i = begin; i < end; ++i, turned += kBlockRows)
    for (std::uint32_t r = 0; r < kBlockRows; ++r) turned[r] = rows[r][i];
}

// Three interleaved channels apart; from the right to the left if reversed.
inline void split_rgb(const std::uint8_t* in, std::size_t pixels, bool reversed, std::uint8_t* const* planes) {
  const std::ptrdiff_t step = reversed ? -3 : 3;
  if (reversed) in += 3 * (pixels - 1);
  for (std::size_t i = 0; i < pixels; ++i, in += step) {
    planes[0][i] = in[0];
    planes[1][i] = in[1];
    planes[2][i] = in[2];
  }
}

// To the nearest half, ties to even, without branches, so that compilers vectorise it.
inline std::uint16_t half_of(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t sign = bits & 0x80000000U, magnitude = bits ^ sign;
  // Below 2^-14 halves have a fixed step: adding 0.5 leaves just their bits in the fraction, rounded by the addition.
  const std::uint32_t small =
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3F000000U;
  const std::uint32_t normal = (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13 & 1)) >> 13;
  const std::uint32_t large = magnitude > 0x7F800000U ? 0x7E00U : 0x7C00U;
  const std::uint32_t half = magnitude < 0x38800000U ? small : magnitude < 0x47800000U ? normal : large;
  return static_cast<std::uint16_t>(half | sign >> 16);
}

inline void to_halves(const float* in, std::size_t n, std::uint16_t* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = half_of(in[i]);
}
