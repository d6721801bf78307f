// SPDX-License-Identifier: Apache-2.0
// Color steps over the rows of a picture. Included inside a target's namespace, after resample-inl.h.
//
// A piece of a row is split into planes of float32, taken through all steps while it is in the first-level cache, and
// rounded once. With neither one, three nor four channels all samples are alike and a row is one plane.

inline constexpr std::size_t kColorPiece = 256;

struct ColorPlanes {
  alignas(64) float of[3][kColorPiece];
  std::size_t n;          // pixels
  std::uint32_t planes;   // 1 or 3
  float lowest, highest;  // levels
};

inline float clamped(float x, float lowest, float highest) {
  x = x > lowest ? x : lowest;
  return x < highest ? x : highest;
}

// Pillow's weights of 16 bits; exact for 8-bit levels, whose weighted sum is below 2^24.
inline float gray_of(float r, float g, float b) { return (19595.0f * r + 38470.0f * g + 7471.0f * b) * 0x1p-16f; }

inline void scale_planes(ColorPlanes& p, float factor, float added) {
  for (std::uint32_t c = 0; c < p.planes; ++c)
    for (std::size_t i = 0; i < p.n; ++i) p.of[c][i] = clamped(p.of[c][i] * factor + added, p.lowest, p.highest);
}

inline void saturate(ColorPlanes& p, float factor, float share) {
  for (std::size_t i = 0; i < p.n; ++i) {
    const float r = p.of[0][i], g = p.of[1][i], b = p.of[2][i];
    const float gray = gray_of(r, g, b) * share;
    p.of[0][i] = clamped(r * factor + gray, p.lowest, p.highest);
    p.of[1][i] = clamped(g * factor + gray, p.lowest, p.highest);
    p.of[2][i] = clamped(b * factor + gray, p.lowest, p.highest);
  }
}

// As Pillow's ImageEnhance.Color. All numbers are exact for 8-bit levels, and no others come here.
inline void blend_gray(ColorPlanes& p, float factor) {
  for (std::size_t i = 0; i < p.n; ++i) {
    const float r = p.of[0][i], g = p.of[1][i], b = p.of[2][i];
    const auto gray = static_cast<float>(
        static_cast<std::int32_t>((19595.0f * r + 38470.0f * g + 7471.0f * b + 32768.0f) * 0x1p-16f));
    p.of[0][i] =
        static_cast<float>(static_cast<std::int32_t>(clamped(gray + factor * (r - gray), p.lowest, p.highest)));
    p.of[1][i] =
        static_cast<float>(static_cast<std::int32_t>(clamped(gray + factor * (g - gray), p.lowest, p.highest)));
    p.of[2][i] =
        static_cast<float>(static_cast<std::int32_t>(clamped(gray + factor * (b - gray), p.lowest, p.highest)));
  }
}

inline void make_gray(ColorPlanes& p) {
  for (std::size_t i = 0; i < p.n; ++i) {
    const float gray = clamped(gray_of(p.of[0][i], p.of[1][i], p.of[2][i]), p.lowest, p.highest);
    p.of[0][i] = p.of[1][i] = p.of[2][i] = gray;
  }
}

// A channel of the color that has this hue (in sixths of a turn from the channel's own zero), greatest value and
// chroma: the value less the chroma times a trapezoid.
inline float channel_of_hue(float at, float value, float chroma) {
  at = at >= 6 ? at - 6 : at;
  const float falling = 4 - at;
  float ramp = at < falling ? at : falling;
  ramp = ramp > 0 ? ramp : 0;
  ramp = ramp < 1 ? ramp : 1;
  return value - chroma * ramp;
}

inline void shift_hue(ColorPlanes& p, float sixths) {
  for (std::size_t i = 0; i < p.n; ++i) {
    const float r = p.of[0][i], g = p.of[1][i], b = p.of[2][i];
    const float rg = r > g ? r : g, low_rg = r < g ? r : g;
    const float value = rg > b ? rg : b, low = low_rg < b ? low_rg : b;
    const float chroma = value - low, divisor = chroma > 0 ? chroma : 1;
    const float from = value == r ? g - b : value == g ? b - r : r - g;
    const float base = value == r ? 6.0f : value == g ? 2.0f : 4.0f;
    float hue = base + from / divisor;
    hue = hue >= 6 ? hue - 6 : hue;
    hue += sixths;
    hue = hue >= 6 ? hue - 6 : hue;
    p.of[0][i] = clamped(channel_of_hue(hue + 5, value, chroma), p.lowest, p.highest);
    p.of[1][i] = clamped(channel_of_hue(hue + 3, value, chroma), p.lowest, p.highest);
    p.of[2][i] = clamped(channel_of_hue(hue + 1, value, chroma), p.lowest, p.highest);
  }
}

inline void run_steps(const ColorRun& job, ColorPlanes& p) {
  for (std::uint32_t k = 0; k < job.count; ++k) {
    const ColorFactor& step = job.steps[k];
    if (step.kind == ColorKind::brightness || step.kind == ColorKind::contrast)
      scale_planes(p, step.factor, step.added);
    else if (p.planes == 1)
      continue;
    else if (step.kind == ColorKind::enhance_saturation)
      blend_gray(p, step.factor);
    else if (step.kind == ColorKind::saturation)
      saturate(p, step.factor, step.added);
    else if (step.kind == ColorKind::hue)
      shift_hue(p, step.factor);
    else
      make_gray(p);
  }
}

template <class Sample>
inline std::int64_t sum_grays(const ColorPlanes& p) {
  std::int32_t sum = 0;
  static_assert(kColorPiece * 65536 < 2147483648U, "a piece's sum fits 32 bits");
  if (p.planes == 1)
    for (std::size_t i = 0; i < p.n; ++i) sum += nearest_level<Sample>(p.of[0][i]);
  else
    for (std::size_t i = 0; i < p.n; ++i) sum += nearest_level<Sample>(gray_of(p.of[0][i], p.of[1][i], p.of[2][i]));
  return sum;
}

// The channels are the compiler's to know: it vectorises constant strides.
template <std::size_t kStep, class Sample>
inline void load_planes(const Sample* row, ColorPlanes& p) {
  if constexpr (kStep == 3 && sizeof(Sample) == 1) {
    std::uint8_t bytes[3][kColorPiece];
    std::uint8_t* const planes[3] = {bytes[0], bytes[1], bytes[2]};
    split_rgb(row, p.n, false, planes);
    for (int c = 0; c < 3; ++c)
      for (std::size_t i = 0; i < p.n; ++i) p.of[c][i] = static_cast<float>(bytes[c][i]);
  } else {
    for (std::size_t c = 0; c < (kStep == 1 ? 1 : 3); ++c)
      for (std::size_t i = 0; i < p.n; ++i) p.of[c][i] = static_cast<float>(row[i * kStep + c]);
  }
}

template <std::size_t kStep, class Sample>
inline void store_planes(const ColorPlanes& p, Sample* row) {
  constexpr std::size_t kPlanes = kStep == 1 ? 1 : 3;
  Sample levels[kPlanes][kColorPiece];
  for (std::size_t c = 0; c < kPlanes; ++c)
    for (std::size_t i = 0; i < p.n; ++i) levels[c][i] = static_cast<Sample>(nearest_level<Sample>(p.of[c][i]));
  for (std::size_t i = 0; i < p.n; ++i)
    for (std::size_t c = 0; c < kPlanes; ++c) row[i * kStep + c] = levels[c][i];
}

template <std::size_t kStep, std::size_t kOutStep, class Sample>
inline void color_row(ColorRun& job, Sample* row, std::size_t pixels, ColorPlanes& p) {
  p.planes = kStep == 1 ? 1 : 3;
  for (std::size_t x = 0; x < pixels; x += kColorPiece) {
    p.n = pixels - x < kColorPiece ? pixels - x : kColorPiece;
    load_planes<kStep>(row + x * kStep, p);
    run_steps(job, p);
    if (job.measures)
      job.sum += sum_grays<Sample>(p);
    else
      store_planes<kOutStep>(p, row + x * kOutStep);
  }
}

template <class Sample>
inline void color_all(ColorRun& job, float lowest, float highest) {
  ColorPlanes planes;
  planes.lowest = lowest;
  planes.highest = highest;
  const std::uint32_t channels = job.picture.type.channels;
  const std::size_t width = job.picture.width;
  for (std::uint32_t y = 0; y < job.picture.height; ++y) {
    Sample* const row =
        reinterpret_cast<Sample*>(job.picture.first + static_cast<std::ptrdiff_t>(y) * job.picture.stride);
    if (channels == 3 && job.out_channels == 3)
      color_row<3, 3>(job, row, width, planes);
    else if (channels == 3)
      color_row<3, 1>(job, row, width, planes);
    else if (channels == 4 && job.out_channels == 4)
      color_row<4, 4>(job, row, width, planes);
    else if (channels == 4)
      color_row<4, 1>(job, row, width, planes);
    else
      color_row<1, 1>(job, row, width * channels, planes);
  }
}

inline void color_rows(ColorRun& job) noexcept {
  if (job.picture.type.depth == 8)
    color_all<std::uint8_t>(job, 0, 255);
  else if (job.picture.type.is_signed)
    color_all<std::int16_t>(job, -32768, 32767);
  else
    color_all<std::uint16_t>(job, 0, 65535);
}
