// SPDX-License-Identifier: Apache-2.0
// Turned and distorted pictures, a piece of a row at a time. Included inside a target's namespace, after
// resample-inl.h and bend-inl.h.
//
// For each piece the positions of its pixels are worked out as planes of float64, which compilers vectorise; then the
// samples around them are gathered into planes, and weighted in float32. All targets do the same operations in the same
// order, so that they agree to the last bit.

inline std::int32_t within_part(std::int32_t at, std::int32_t begin, std::int32_t count) {
  at = at < begin ? begin : at;
  return (at < begin + count ? at : begin + count - 1) - begin;
}

// Which positions lie in the input, and behind no gate. `step` is the distance of the center from the pixel's corner.
inline void show_positions(const WarpRun& job, double at_x, double at_y, WarpPiece& p) {
  const double width = job.width, height = job.height;
  for (std::size_t i = 0; i < p.n; ++i)
    p.shown[i] &= (p.x[i] >= 0) & (p.x[i] < width) & (p.y[i] >= 0) & (p.y[i] < height);
  for (std::uint32_t k = job.warp->elastic.gate_count; k < job.warp->gate_count; ++k) {
    const double a = job.warp->gates[k][0], b = job.warp->gates[k][1], c = job.warp->gates[k][2];
    for (std::size_t i = 0; i < p.n; ++i) p.shown[i] &= a * (at_x + static_cast<double>(i)) + b * at_y + c >= 0;
  }
  std::int32_t any = 0;
  for (std::size_t i = 0; i < p.n; ++i) {
    any |= p.shown[i];
    p.x[i] = p.shown[i] ? p.x[i] : 0;
    p.y[i] = p.shown[i] ? p.y[i] : 0;
  }
  p.any = any != 0;
}

// at_x and at_y: the first position on the canvas.
inline void real_positions(const WarpRun& job, double at_x, double at_y, WarpPiece& p) {
  const auto& m = job.warp->map;
  for (std::size_t i = 0; i < p.n; ++i) {
    const double x = at_x + static_cast<double>(i);
    p.x[i] = m[0] * x + m[1] * at_y + m[2];
    p.y[i] = m[3] * x + m[4] * at_y + m[5];
    p.shown[i] = 1;
  }
  if (m[6] != 0 || m[7] != 0 || m[8] != 1)
    for (std::size_t i = 0; i < p.n; ++i) {
      const double w = m[6] * (at_x + static_cast<double>(i)) + m[7] * at_y + m[8];
      p.x[i] = p.x[i] / w;
      p.y[i] = p.y[i] / w;
      p.shown[i] = w > 0;
    }
  if (job.field != nullptr) bend_positions(job, p);
  show_positions(job, at_x, at_y, p);
}

inline std::int64_t fixed_of(double v) {
  v = v * 65536.0 + 0.5;
  const auto whole = static_cast<std::int64_t>(v);
  return static_cast<double>(whole) > v ? whole - 1 : whole;
}

// Positions of a row in whole numbers of 2^-16 pixels, rounded down to pixels.
inline void fixed_positions(const WarpRun& job, std::uint32_t y, std::size_t from, WarpPiece& p) {
  const auto& m = job.warp->map;
  const std::int64_t across = fixed_of(m[0]), down = fixed_of(m[3]);
  const std::int64_t x =
      fixed_of(m[2] + m[0] * 0.5 + m[1] * 0.5) + fixed_of(m[1]) * y + across * static_cast<std::int64_t>(from);
  const std::int64_t z =
      fixed_of(m[5] + m[3] * 0.5 + m[4] * 0.5) + fixed_of(m[4]) * y + down * static_cast<std::int64_t>(from);
  for (std::size_t i = 0; i < p.n; ++i) {
    p.x[i] = static_cast<double>(static_cast<std::int32_t>((x + across * static_cast<std::int64_t>(i)) >> 16));
    p.y[i] = static_cast<double>(static_cast<std::int32_t>((z + down * static_cast<std::int64_t>(i)) >> 16));
    p.shown[i] = 1;
  }
  show_positions(job, static_cast<double>(from) + 0.5, y + 0.5, p);
}

template <std::size_t kBytes>
inline void copy_nearest_pixels(const WarpRun& job, const WarpPiece& p, const std::uint8_t* fill, std::uint8_t* out) {
  const std::size_t bytes = kBytes != 0 ? kBytes : job.type.pixel_bytes();
  for (std::size_t i = 0; i < p.n; ++i, out += bytes) {
    const std::int32_t x = within_part(static_cast<std::int32_t>(p.x[i]), job.left, job.columns);
    const std::int32_t y = within_part(static_cast<std::int32_t>(p.y[i]), job.top, job.rows);
    const std::uint8_t* const from = p.shown[i] ? job.source + static_cast<std::ptrdiff_t>(y) * job.source_stride +
                                                      static_cast<std::size_t>(x) * bytes
                                                : fill;
    if constexpr (kBytes != 0)
      __builtin_memcpy(out, from, kBytes);
    else
      for (std::size_t b = 0; b < bytes; ++b) out[b] = from[b];
  }
}

inline void nearest_pixels(const WarpRun& job, const WarpPiece& p, const std::uint8_t* fill, std::uint8_t* out) {
  switch (job.type.pixel_bytes()) {
    case 1:
      return copy_nearest_pixels<1>(job, p, fill, out);
    case 2:
      return copy_nearest_pixels<2>(job, p, fill, out);
    case 3:
      return copy_nearest_pixels<3>(job, p, fill, out);
    case 4:
      return copy_nearest_pixels<4>(job, p, fill, out);
    case 6:
      return copy_nearest_pixels<6>(job, p, fill, out);
    default:
      return copy_nearest_pixels<0>(job, p, fill, out);
  }
}

// Rows of whole-number positions without gates: the usual case of masks and of nearest rotations.
template <std::size_t kBytes>
inline void copy_fixed_row(const WarpRun& job, std::uint32_t y, const std::uint8_t* fill, std::uint8_t* out) {
  const std::size_t bytes = kBytes != 0 ? kBytes : job.type.pixel_bytes();
  const auto& m = job.warp->map;
  const std::int64_t across = fixed_of(m[0]), down = fixed_of(m[3]);
  std::int64_t at_x = fixed_of(m[2] + m[0] * 0.5 + m[1] * 0.5) + fixed_of(m[1]) * y;
  std::int64_t at_y = fixed_of(m[5] + m[3] * 0.5 + m[4] * 0.5) + fixed_of(m[4]) * y;
  const auto width = static_cast<std::uint64_t>(job.width), height = static_cast<std::uint64_t>(job.height);
  for (std::uint32_t i = 0; i < job.canvas_width; ++i, out += bytes, at_x += across, at_y += down) {
    const std::int64_t x = at_x >> 16, z = at_y >> 16;
    const std::uint8_t* from = fill;
    if (static_cast<std::uint64_t>(x) < width && static_cast<std::uint64_t>(z) < height)
      from = job.source +
             static_cast<std::ptrdiff_t>(within_part(static_cast<std::int32_t>(z), job.top, job.rows)) *
                 job.source_stride +
             static_cast<std::size_t>(within_part(static_cast<std::int32_t>(x), job.left, job.columns)) * bytes;
    if constexpr (kBytes != 0)
      __builtin_memcpy(out, from, kBytes);
    else
      for (std::size_t b = 0; b < bytes; ++b) out[b] = from[b];
  }
}

inline void fixed_row(const WarpRun& job, std::uint32_t y, const std::uint8_t* fill, std::uint8_t* out) {
  switch (job.type.pixel_bytes()) {
    case 1:
      return copy_fixed_row<1>(job, y, fill, out);
    case 2:
      return copy_fixed_row<2>(job, y, fill, out);
    case 3:
      return copy_fixed_row<3>(job, y, fill, out);
    case 4:
      return copy_fixed_row<4>(job, y, fill, out);
    default:
      return copy_fixed_row<0>(job, y, fill, out);
  }
}

// The samples around each position: kTaps columns, as samples from the start of a row, and rows; and how much each of
// them counts. A row has fewer than 2^31 samples: 2^24 pixels of at most 64 channels.
template <int kTaps>
struct WarpTaps {
  std::int32_t column[kTaps][kWarpPiece], row[kTaps][kWarpPiece];
  alignas(64) float across[kTaps][kWarpPiece], down[kTaps][kWarpPiece];
};

// Keys' cubic with a = -1, as in Pillow's transforms.
inline void cubic_weights(float d, float& a, float& b, float& c, float& e) {
  const float square = d * d, cube = square * d;
  a = 2 * square - d - cube;
  b = 1 - 2 * square + cube;
  c = d + square - cube;
  e = cube - square;
}

template <int kTaps>
inline void find_taps(const WarpRun& job, const WarpPiece& p, WarpTaps<kTaps>& taps) {
  const auto step = static_cast<std::int32_t>(job.type.channels);
  for (std::size_t i = 0; i < p.n; ++i) {
    const double x = p.x[i] + 0.5, y = p.y[i] + 0.5;
    const auto column = static_cast<std::int32_t>(x), row = static_cast<std::int32_t>(y);
    const auto right = static_cast<float>(x - column), below = static_cast<float>(y - row);
    for (int k = 0; k < kTaps; ++k) {
      taps.column[k][i] = within_part(column + k - kTaps / 2, job.left, job.columns) * step;
      taps.row[k][i] = within_part(row + k - kTaps / 2, job.top, job.rows);
    }
    if constexpr (kTaps == 2) {
      taps.across[0][i] = 1 - right;
      taps.across[1][i] = right;
      taps.down[0][i] = 1 - below;
      taps.down[1][i] = below;
    } else {
      cubic_weights(right, taps.across[0][i], taps.across[1][i], taps.across[2][i], taps.across[3][i]);
      cubic_weights(below, taps.down[0][i], taps.down[1][i], taps.down[2][i], taps.down[3][i]);
    }
  }
}

template <std::size_t kChannels>
struct WarpSums {
  alignas(64) float of[kChannels][kWarpPiece];
};

// Adds what channels [channel, channel + kChannels) are at each position, or the fill. Pixels of three or four bytes
// are gathered as words of four.
template <class Sample, std::size_t kChannels, int kTaps>
inline void add_samples(const WarpRun& job, const WarpPiece& p, const WarpTaps<kTaps>& taps, std::size_t channel,
                        const float* fill, WarpSums<kChannels>& sums) {
  constexpr bool kWords = sizeof(Sample) == 1 && kChannels >= 3;
  static_assert(!kWords || 4 - kChannels <= kWarpOverread);
  using Gathered = std::conditional_t<kWords, std::uint32_t, Sample>;
  Gathered gathered[kTaps][kWords ? 1 : kChannels][kWarpPiece];
  alignas(64) float values[kChannels][kWarpPiece];
  for (int j = 0; j < kTaps; ++j) {
    for (std::size_t i = 0; i < p.n; ++i) {
      const auto* const row = reinterpret_cast<const Sample*>(job.source + static_cast<std::ptrdiff_t>(taps.row[j][i]) *
                                                                               job.source_stride) +
                              channel;
      for (int k = 0; k < kTaps; ++k) {
        const Sample* const at = row + taps.column[k][i];
        if constexpr (kWords)
          __builtin_memcpy(&gathered[k][0][i], at, 4);
        else
          for (std::size_t c = 0; c < kChannels; ++c) gathered[k][c][i] = at[c];
      }
    }
    for (std::size_t c = 0; c < kChannels; ++c)
      for (std::size_t i = 0; i < p.n; ++i) {
        const auto level = [&](int k) {
          if constexpr (kWords)
            return static_cast<float>(static_cast<std::int32_t>(gathered[k][0][i] >> (8 * c) & 255));
          else
            return static_cast<float>(gathered[k][c][i]);
        };
        float sum = level(0) * taps.across[0][i];
        for (int k = 1; k < kTaps; ++k) sum += level(k) * taps.across[k][i];
        values[c][i] = (j == 0 ? 0.0f : values[c][i]) + sum * taps.down[j][i];
      }
  }
  for (std::size_t c = 0; c < kChannels; ++c)
    for (std::size_t i = 0; i < p.n; ++i) sums.of[c][i] += p.shown[i] ? values[c][i] : fill[c];
}

template <class Sample, std::size_t kChannels, int kTaps>
inline void warp_channels(const WarpRun& job, std::size_t channel, const float* fill) {
  WarpPiece p;
  WarpTaps<kTaps> taps;
  WarpSums<kChannels> sums;
  const std::size_t step = kChannels > 1 ? kChannels : job.type.channels;
  const float share = 1.0f / static_cast<float>(job.samples * job.samples);
  const double part = 1.0 / job.samples;
  for (std::uint32_t y = 0; y < job.canvas_height; ++y) {
    Sample* const row = reinterpret_cast<Sample*>(job.out + static_cast<std::ptrdiff_t>(y) * job.out_stride) + channel;
    for (std::size_t x = 0; x < job.canvas_width; x += kWarpPiece) {
      p.n = job.canvas_width - x < kWarpPiece ? job.canvas_width - x : kWarpPiece;
      for (std::size_t c = 0; c < kChannels; ++c)
        for (std::size_t i = 0; i < p.n; ++i) sums.of[c][i] = 0;
      for (std::uint32_t v = 0; v < job.samples; ++v)
        for (std::uint32_t u = 0; u < job.samples; ++u) {
          real_positions(job, static_cast<double>(x) + (u + 0.5) * part, y + (v + 0.5) * part, p);
          if (p.any) {
            find_taps<kTaps>(job, p, taps);
            add_samples<Sample, kChannels, kTaps>(job, p, taps, channel, fill + channel, sums);
          } else {
            for (std::size_t c = 0; c < kChannels; ++c)
              for (std::size_t i = 0; i < p.n; ++i) sums.of[c][i] += fill[channel + c];
          }
        }
      for (std::size_t c = 0; c < kChannels; ++c)
        for (std::size_t i = 0; i < p.n; ++i)
          row[(x + i) * step + c] = static_cast<Sample>(nearest_level<Sample>(sums.of[c][i] * share));
    }
  }
}

template <class Sample>
inline void warp_samples(const WarpRun& job) {
  constexpr float kMin = std::is_signed_v<Sample> ? -32768 : 0;
  constexpr float kMax = sizeof(Sample) == 1 ? 255 : std::is_signed_v<Sample> ? 32767 : 65535;
  const std::size_t channels = job.type.channels;
  float fill[kMaxChannels];
  Sample levels[kMaxChannels];
  for (std::size_t c = 0; c < channels; ++c) {
    fill[c] = clamped(static_cast<float>(job.warp->fill[c < 3 ? c : 2]), kMin, kMax);
    levels[c] = static_cast<Sample>(fill[c]);
  }
  if (job.filter != Filter::nearest) {
    const bool cubic = job.filter == Filter::bicubic;
    const std::size_t group = channels == 3 || channels == 4 ? channels : 1;
    for (std::size_t c = 0; c < channels; c += group) {
      if (group == 3)
        cubic ? warp_channels<Sample, 3, 4>(job, c, fill) : warp_channels<Sample, 3, 2>(job, c, fill);
      else if (group == 4)
        cubic ? warp_channels<Sample, 4, 4>(job, c, fill) : warp_channels<Sample, 4, 2>(job, c, fill);
      else
        cubic ? warp_channels<Sample, 1, 4>(job, c, fill) : warp_channels<Sample, 1, 2>(job, c, fill);
    }
    return;
  }
  WarpPiece p;
  const auto& m = job.warp->map;
  double row_y = m[5] + m[4] * 0.5;
  for (std::uint32_t y = 0; y < job.canvas_height; ++y, row_y += m[4]) {
    double row_x = m[2] + m[0] * 0.5;
    std::uint8_t* const row = job.out + static_cast<std::ptrdiff_t>(y) * job.out_stride;
    if (job.positions == WarpPositions::fixed && job.warp->gate_count == 0) {
      fixed_row(job, y, reinterpret_cast<const std::uint8_t*>(levels), row);
      continue;
    }
    for (std::size_t x = 0; x < job.canvas_width; x += kWarpPiece) {
      p.n = job.canvas_width - x < kWarpPiece ? job.canvas_width - x : kWarpPiece;
      if (job.positions == WarpPositions::fixed) {
        fixed_positions(job, y, x, p);
      } else if (job.positions == WarpPositions::steps) {
        for (std::size_t i = 0; i < p.n; ++i, row_x += m[0]) {
          p.x[i] = row_x;
          p.y[i] = row_y;
          p.shown[i] = 1;
        }
        show_positions(job, static_cast<double>(x) + 0.5, y + 0.5, p);
      } else {
        real_positions(job, static_cast<double>(x) + 0.5, y + 0.5, p);
      }
      nearest_pixels(job, p, reinterpret_cast<const std::uint8_t*>(levels), row + x * job.type.pixel_bytes());
    }
  }
}

inline void warp_rows(const WarpRun& job) noexcept {
  if (job.type.depth == 8)
    warp_samples<std::uint8_t>(job);
  else if (job.type.is_signed)
    warp_samples<std::int16_t>(job);
  else
    warp_samples<std::uint16_t>(job);
}
