// SPDX-License-Identifier: Apache-2.0
// The passes of a resize. Included inside a target's namespace, after its operations on samples.
//
// The horizontal pass turns a block of rows a group of columns at a time, so that each row is a lane, and turns what it
// made back. Neighbouring pixels of the result share most of their columns, so a group serves many of them.

// The end of the run of result pixels from x on whose columns fit one group.
inline std::uint32_t group_end(const Taps* taps, std::uint32_t width, std::uint32_t x, std::uint32_t columns) {
  const std::uint32_t limit = width - x < kGroupPixels ? width : x + kGroupPixels;
  const std::uint32_t begin = taps[x].first;
  std::uint32_t end = x + 1;
  while (end < limit && taps[end].first + taps[end].count - begin <= columns) ++end;
  return end;
}

template <class Number>
std::uint32_t max_taps_of(const ColumnSums<Number>& job) {
  std::uint32_t n_taps = 0;
  for (std::uint32_t x = 0; x < job.width; ++x) n_taps = job.taps[x].count > n_taps ? job.taps[x].count : n_taps;
  return n_taps;
}

// The end of the columns that result pixels [x, end) are made of.
inline std::uint32_t reach_of(const Taps* taps, std::uint32_t x, std::uint32_t end) {
  std::uint32_t reach = 0;
  for (; x < end; ++x) reach = taps[x].first + taps[x].count > reach ? taps[x].first + taps[x].count : reach;
  return reach;
}

template <class Out>
inline void sum_columns_as(const ColumnSums<std::int16_t>& job) {
  const std::uint32_t channels = job.type.channels, n_taps = max_taps_of(job), columns = column_group(channels, n_taps);
  auto* const turned = reinterpret_cast<std::int16_t*>(job.scratch);
  Out* const sums = reinterpret_cast<Out*>(job.scratch + turned_bytes(channels, n_taps));
  for (std::uint32_t x = 0, end; x < job.width; x = end) {
    end = group_end(job.taps, job.width, x, columns);
    const std::uint32_t begin = job.taps[x].first / 2;
    turn_pairs(job.rows, channels, begin, reach_of(job.taps, x, end) / 2, turned);
    Out* to = sums;
    for (std::uint32_t i = x; i < end; ++i, to += std::size_t{channels} * kBlockRows) {
      const std::size_t skipped = job.taps[i].first / 2 - begin;
      sum_pairs(turned + skipped * channels * 2 * kBlockRows, channels, job.taps[i].count / 2,
                job.weights + std::size_t{i} * job.weight_stride, to);
    }
    turn_back(sums, std::size_t{end - x} * channels, job.count, job.out + std::size_t{x} * channels * sizeof(Out),
              job.row_stride);
  }
}

inline void sum_columns_8(const ColumnSums<std::int16_t>& job) noexcept {
  if (job.rounds)
    sum_columns_as<std::uint8_t>(job);
  else
    sum_columns_as<std::int16_t>(job);
}

inline void clamp_8(std::int16_t* row, std::size_t samples) noexcept {
  constexpr std::int16_t kMax = 255 << kMiddleBits;
  for (std::size_t i = 0; i < samples; ++i) {
    const std::int16_t x = row[i] > 0 ? row[i] : std::int16_t{0};
    row[i] = x < kMax ? x : kMax;
  }
}

inline void round_8(const std::int16_t* in, std::size_t samples, std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < samples; ++i) {
    const int level = (in[i] + (1 << (kMiddleBits - 1))) >> kMiddleBits;
    out[i] = static_cast<std::uint8_t>(level < 0 ? 0 : level > 255 ? 255 : level);
  }
}

// Vectors of the compiler's own: each target gets its best instructions, and the sums stay in registers, where
// GCC 12 keeps arrays of floats in memory: 16 bits took three times as long.
#if defined(__AVX2__)
inline constexpr std::size_t kLanes = 8;
#else
inline constexpr std::size_t kLanes = 4;
#endif
using Floats [[gnu::vector_size(4 * kLanes)]] = float;
using Integers [[gnu::vector_size(4 * kLanes)]] = std::int32_t;

template <class Sample>
[[gnu::always_inline]] inline void load_floats(const Sample* from, Floats& to) {
  if constexpr (std::is_same_v<Sample, float>) {
    std::memcpy(&to, from, sizeof to);
  } else {
    using Samples [[gnu::vector_size(sizeof(Sample) * kLanes)]] = Sample;
    Samples samples;
    std::memcpy(&samples, from, sizeof samples);
    to = __builtin_convertvector(__builtin_convertvector(samples, Integers), Floats);
  }
}

// The weighted sum of kVectors vectors: the k-th of them lie at rows(k).
template <std::size_t kVectors, class F>
[[gnu::always_inline]] inline void weigh(const F& rows, const float* weights, std::uint32_t taps, float* out) {
  Floats sums[kVectors] = {};
  for (std::uint32_t k = 0; k < taps; ++k) {
    const auto* const from = rows(k);
    const float weight = weights[k];
    for (std::size_t i = 0; i < kVectors; ++i) {
      Floats x;
      load_floats(from + i * kLanes, x);
      sums[i] += x * weight;
    }
  }
  for (std::size_t i = 0; i < kVectors; ++i) std::memcpy(out + i * kLanes, &sums[i], sizeof sums[i]);
}

template <class Sample>
inline void weigh_rows(const std::uint8_t* const* rows, const float* weights, std::uint32_t taps, std::size_t samples,
                       float* out) {
  std::size_t at = 0;
  for (; at + 4 * kLanes <= samples; at += 4 * kLanes)
    weigh<4>([&](std::uint32_t k) { return reinterpret_cast<const Sample*>(rows[k]) + at; }, weights, taps, out + at);
  for (; at < samples; ++at) {
    float sum = 0;
    for (std::uint32_t k = 0; k < taps; ++k)
      sum += static_cast<float>(reinterpret_cast<const Sample*>(rows[k])[at]) * weights[k];
    out[at] = sum;
  }
}

inline void sum_rows_float(const std::uint8_t* const* rows, PixelType type, const float* weights, std::uint32_t taps,
                           std::size_t samples, float* out) noexcept {
  if (type.depth == 8)
    weigh_rows<std::uint8_t>(rows, weights, taps, samples, out);
  else if (type.is_signed)
    weigh_rows<std::int16_t>(rows, weights, taps, samples, out);
  else
    weigh_rows<std::uint16_t>(rows, weights, taps, samples, out);
}

inline void sum_numbers_float(const std::uint8_t* const* rows, const float* weights, std::uint32_t taps,
                              std::size_t samples, float* out) noexcept {
  weigh_rows<float>(rows, weights, taps, samples, out);
}

inline void clamp_float(float* row, PixelType type, std::size_t samples) noexcept {
  const float lowest = type.is_signed ? -32768 : 0, highest = type.depth == 8 ? 255 : type.is_signed ? 32767 : 65535;
  for (std::size_t i = 0; i < samples; ++i) {
    const float x = row[i] > lowest ? row[i] : lowest;
    row[i] = x < highest ? x : highest;
  }
}

// Half a level is rounded up. The smallest level is taken off first, so that cutting off the fraction rounds down.
template <class Sample>
inline std::int32_t nearest_level(float x) {
  constexpr float kMin = std::is_signed_v<Sample> ? -32768 : 0;
  constexpr float kMax = sizeof(Sample) == 1 ? 255 : std::is_signed_v<Sample> ? 32767 : 65535;
  x = x > kMin ? x : kMin;
  x = x < kMax ? x : kMax;
  return static_cast<std::int32_t>((x - kMin) + 0.5f) + static_cast<std::int32_t>(kMin);
}

template <class Sample>
inline void round_samples(const float* in, std::size_t samples, std::uint8_t* out) {
  Sample* const to = reinterpret_cast<Sample*>(out);
  for (std::size_t i = 0; i < samples; ++i) to[i] = static_cast<Sample>(nearest_level<Sample>(in[i]));
}

inline void round_float(const float* in, PixelType type, std::size_t samples, std::uint8_t* out) noexcept {
  if (type.depth == 8)
    round_samples<std::uint8_t>(in, samples, out);
  else if (type.is_signed)
    round_samples<std::int16_t>(in, samples, out);
  else
    round_samples<std::uint16_t>(in, samples, out);
}

// The pixel that `taps` turned columns make, a number for each channel and row.
inline void sum_turned(const float* turned, std::uint32_t channels, std::uint32_t taps, const float* weights,
                       float* out) {
  const std::size_t step = std::size_t{channels} * kBlockRows;
  for (std::uint32_t c = 0; c < channels; ++c, turned += kBlockRows, out += kBlockRows)
    weigh<kBlockRows / kLanes>([&](std::uint32_t k) { return turned + k * step; }, weights, taps, out);
}

inline void sum_columns_float(const ColumnSums<float>& job) noexcept {
  const std::uint32_t channels = job.type.channels, n_taps = max_taps_of(job), columns = column_group(channels, n_taps);
  float* const turned = reinterpret_cast<float*>(job.scratch);
  float* const sums = reinterpret_cast<float*>(job.scratch + turned_bytes(channels, n_taps));
  float* const back = sums + kGroupPixels * channels * kBlockRows;
  for (std::uint32_t x = 0, end; x < job.width; x = end) {
    end = group_end(job.taps, job.width, x, columns);
    const std::uint32_t begin = job.taps[x].first;
    turn_numbers(job.rows, std::size_t{begin} * channels, std::size_t{reach_of(job.taps, x, end)} * channels, turned);
    float* to = sums;
    for (std::uint32_t i = x; i < end; ++i, to += std::size_t{channels} * kBlockRows)
      sum_turned(turned + std::size_t{job.taps[i].first - begin} * channels * kBlockRows, channels, job.taps[i].count,
                 job.weights + std::size_t{i} * job.weight_stride, to);
    const std::size_t samples = std::size_t{end - x} * channels, row_bytes = samples * sizeof(float);
    if (job.rounds) {
      std::uint8_t* const out = job.out + std::size_t{x} * job.type.pixel_bytes();
      turn_back(sums, samples, job.count, reinterpret_cast<std::uint8_t*>(back),
                static_cast<std::ptrdiff_t>(row_bytes));
      for (std::uint32_t r = 0; r < job.count; ++r)
        round_float(back + r * samples, job.type, samples, out + static_cast<std::ptrdiff_t>(r) * job.row_stride);
    } else {
      turn_back(sums, samples, job.count, job.out + std::size_t{x} * channels * sizeof(float), job.row_stride);
    }
  }
}
