// SPDX-License-Identifier: Apache-2.0
// Rows of samples for noise and sharpness. Included inside a target's namespace; plain loops that compilers vectorise.

inline std::int32_t floor_level(float x) {
  const auto whole = static_cast<std::int32_t>(x);
  return whole - (static_cast<float>(whole) > x ? 1 : 0);
}

// Add scale * numbers[i] + shift, clamp and round. The product and the sums are rounded apart.
template <class Sample>
inline void add_numbers_to(Sample* samples, const float* numbers, std::size_t n, float scale, float shift, float lowest,
                           float highest) {
  for (std::size_t i = 0; i < n; ++i) {
    float x = static_cast<float>(samples[i]) + (numbers[i] * scale + shift);
    x = x > lowest ? x : lowest;
    x = x < highest ? x : highest;
    samples[i] = static_cast<Sample>(floor_level(x + 0.5f));
  }
}

inline void add_numbers(std::uint8_t* samples, PixelType type, const float* numbers, std::size_t n, float scale,
                        float shift) noexcept {
  if (type.depth == 8)
    add_numbers_to(samples, numbers, n, scale, shift, 0, 255);
  else if (type.is_signed)
    add_numbers_to(reinterpret_cast<std::int16_t*>(samples), numbers, n, scale, shift, -32768, 32767);
  else
    add_numbers_to(reinterpret_cast<std::uint16_t*>(samples), numbers, n, scale, shift, 0, 65535);
}

// Pillow's SMOOTH, (1 1 1; 1 5 1; 1 1 1) / 13 rounded, and its blend with the sample. The rows begin at a sample that
// has neighbors on all sides.
template <class Sample>
inline void sharpen_samples(const std::uint8_t* const* rows, std::size_t channels, std::size_t n, float factor,
                            float lowest, float highest, std::uint8_t* to) {
  const auto* const above = reinterpret_cast<const Sample*>(rows[0]);
  const auto* const row = reinterpret_cast<const Sample*>(rows[1]);
  const auto* const below = reinterpret_cast<const Sample*>(rows[2]);
  auto* const out = reinterpret_cast<Sample*>(to);
  const auto c = static_cast<std::ptrdiff_t>(channels);
  for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(n); ++i) {
    const std::int32_t sum = above[i - c] + above[i] + above[i + c] + row[i - c] + 5 * row[i] + row[i + c] +
                             below[i - c] + below[i] + below[i + c];
    // Divided as a positive number, which cuts off. With 8 bits 20165 / 2^19 is 1 / 26 for all sums there are.
    const std::int32_t smooth =
        sizeof(Sample) == 1 ? ((2 * sum + 13) * 20165) >> 19 : (2 * sum + 13 + 26 * 65536) / 26 - 65536;
    float x = static_cast<float>(smooth) + factor * static_cast<float>(row[i] - smooth);
    x = x > lowest ? x : lowest;
    x = x < highest ? x : highest;
    out[i] = static_cast<Sample>(floor_level(x));
  }
}

inline void sharpen(const std::uint8_t* const* rows, PixelType type, std::size_t n, float factor,
                    std::uint8_t* out) noexcept {
  if (type.depth == 8)
    sharpen_samples<std::uint8_t>(rows, type.channels, n, factor, 0, 255, out);
  else if (type.is_signed)
    sharpen_samples<std::int16_t>(rows, type.channels, n, factor, -32768, 32767, out);
  else
    sharpen_samples<std::uint16_t>(rows, type.channels, n, factor, 0, 65535, out);
}
