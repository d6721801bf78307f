// SPDX-License-Identifier: Apache-2.0
// Rows into the batch. Included inside a target's namespace, after its operations on samples.
//
// Two steps a piece of a row, with the piece in the first-level cache: samples are arranged as the layout, the flip and
// the channels ask, then converted in one run. Where nothing is to be arranged, or nothing to be converted, one step.

struct Half {
  std::uint16_t bits;
};

// Integers keep their share of the range that is not negative: 8, 16 or 15 bits of it.
template <class To, class From>
inline To converted(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else {
    const std::int32_t level = x < 0 ? 0 : static_cast<std::int32_t>(x);
    constexpr int kFrom = sizeof(From) == 1 ? 8 : std::is_signed_v<From> ? 15 : 16;
    constexpr int kTo = sizeof(To) == 1 ? 8 : std::is_signed_v<To> ? 15 : 16;
    if constexpr (kFrom == 8 && kTo == 16)
      return static_cast<To>(level * 257);
    else if constexpr (kFrom > kTo)
      return static_cast<To>(level >> (kFrom - kTo));
    else
      return static_cast<To>(level << (kTo - kFrom));
  }
}

template <class To>
inline constexpr bool kIsFloat = std::is_same_v<To, float> || std::is_same_v<To, Half>;

// A run of samples; scale(i) and shift(i) are those of sample i.
template <class To, class From, class Scale, class Shift>
[[gnu::always_inline]] inline void convert_run(const From* in, std::size_t n, const Scale& scale, const Shift& shift,
                                               To* out) {
  if constexpr (std::is_same_v<To, Half>) {
    constexpr std::size_t kFew = 128;
    float floats[kFew];
    for (std::size_t at = 0; at < n; at += kFew) {
      const std::size_t few = n - at < kFew ? n - at : kFew;
      for (std::size_t i = 0; i < few; ++i) floats[i] = static_cast<float>(in[at + i]) * scale(at + i) + shift(at + i);
      to_halves(floats, few, &out[at].bits);
    }
  } else if constexpr (std::is_same_v<To, float>) {
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]) * scale(i) + shift(i);
  } else {
    for (std::size_t i = 0; i < n; ++i) out[i] = converted<To>(in[i]);
  }
}

// Of one channel.
template <class To, class From>
inline void convert_channel(const From* in, std::size_t n, float scale, float shift, To* out) {
  convert_run(in, n, [=](std::size_t) { return scale; }, [=](std::size_t) { return shift; }, out);
}

inline constexpr std::size_t kPiece = 256;         // pixels, of one channel or three
inline constexpr std::size_t kPieceSamples = 768;  // interleaved; at least kMaxChannels

// The channel of the rows that channel c of the result is.
inline std::uint32_t source_channel(std::uint32_t channels, std::uint32_t c) { return channels == 1 ? 0 : c; }

template <class From>
inline void pick_channel(const From* in, std::uint32_t channels, std::size_t n, bool reversed, From* out) {
  const std::ptrdiff_t step = reversed ? -static_cast<std::ptrdiff_t>(channels) : static_cast<std::ptrdiff_t>(channels);
  if (reversed) in += (n - 1) * channels;
  for (std::size_t i = 0; i < n; ++i, in += step) out[i] = *in;
}

template <class To, class From>
inline void finish_planes(const FinishRows& job, const From* row, std::size_t y) {
  const Finish& finish = *job.finish;
  const std::uint32_t channels = job.type.channels;
  const std::size_t plane = std::size_t{job.height} * job.width;
  To* const out = reinterpret_cast<To*>(job.out) + y * job.width;
  From piece[3 * kPiece];
  for (std::size_t x = 0; x < job.width; x += kPiece) {
    const std::size_t n = job.width - x < kPiece ? job.width - x : kPiece;
    const From* const in = row + (job.flip_columns ? job.width - x - n : x) * channels;
    if constexpr (sizeof(From) == 1) {
      if (channels == 3) {
        constexpr bool kDirect = std::is_same_v<To, From>;
        From* planes[3];
        for (std::uint32_t c = 0; c < 3; ++c) {
          if constexpr (kDirect)
            planes[c] = out + c * plane + x;
          else
            planes[c] = piece + c * kPiece;
        }
        split_rgb(in, n, job.flip_columns, planes);
        if constexpr (!kDirect)
          for (std::uint32_t c = 0; c < 3; ++c)
            convert_channel(planes[c], n, finish.scale[c], finish.shift[c], out + c * plane + x);
        continue;
      }
    }
    for (std::uint32_t c = 0; c < finish.channels; ++c) {
      const From* run = in;
      if (channels > 1 || job.flip_columns) {
        if (channels > 1 || c == 0)
          pick_channel(in + source_channel(channels, c), channels, n, job.flip_columns, piece);
        run = piece;
      }
      convert_channel(run, n, finish.scale[c], finish.shift[c], out + c * plane + x);
    }
  }
}

// What interleaved samples are multiplied by and shifted by, repeated over a piece.
struct Pattern {
  float scale[kPieceSamples];
  float shift[kPieceSamples];

  explicit Pattern(const Finish& finish) {
    for (std::size_t i = 0; i < kPieceSamples; i += finish.channels)
      for (std::size_t c = 0; c < finish.channels && i + c < kPieceSamples; ++c) {
        scale[i + c] = finish.scale[c];
        shift[i + c] = finish.shift[c];
      }
  }
};

// Pixels as the result wants them; from the right to the left if reversed. Where the compiler
// knows the channels, it unrolls the inner loop.
template <std::uint32_t kIn, std::uint32_t kOut, class From>
inline void arrange_as(const From* in, std::uint32_t channels, std::uint32_t out_channels, std::size_t n, bool reversed,
                       From* out) {
  if (kIn != 0) channels = kIn;
  if (kOut != 0) out_channels = kOut;
  const std::ptrdiff_t step = reversed ? -static_cast<std::ptrdiff_t>(channels) : static_cast<std::ptrdiff_t>(channels);
  if (reversed) in += (n - 1) * channels;
  for (std::size_t i = 0; i < n; ++i, in += step, out += out_channels)
    for (std::uint32_t c = 0; c < out_channels; ++c) out[c] = in[source_channel(channels, c)];
}

template <class From>
inline void arrange(const From* in, std::uint32_t channels, std::uint32_t out_channels, std::size_t n, bool reversed,
                    From* out) {
  if (channels == 3)
    arrange_as<3, 3>(in, channels, out_channels, n, reversed, out);
  else if (channels == 4 && out_channels == 3)
    arrange_as<4, 3>(in, channels, out_channels, n, reversed, out);
  else if (channels == 1 && out_channels == 1)
    arrange_as<1, 1>(in, channels, out_channels, n, reversed, out);
  else
    arrange_as<0, 0>(in, channels, out_channels, n, reversed, out);
}

template <class To, class From>
inline void finish_interleaved(const FinishRows& job, const From* row, std::size_t y, const Pattern* pattern) {
  const std::uint32_t channels = job.type.channels, out_channels = job.finish->channels;
  To* out = reinterpret_cast<To*>(job.out) + y * job.width * out_channels;
  const std::size_t max_pixels = kPieceSamples / out_channels;
  From piece[kPieceSamples];
  for (std::size_t x = 0; x < job.width; x += max_pixels) {
    const std::size_t n = job.width - x < max_pixels ? job.width - x : max_pixels, samples = n * out_channels;
    const From* in = row + (job.flip_columns ? job.width - x - n : x) * channels;
    if (job.flip_columns || channels != out_channels) {
      arrange(in, channels, out_channels, n, job.flip_columns, piece);
      in = piece;
    }
    convert_run(
        in, samples, [=](std::size_t i) { return pattern->scale[i]; }, [=](std::size_t i) { return pattern->shift[i]; },
        out);
    out += samples;
  }
}

template <class To, class From>
void finish_as(const FinishRows& job) {
  const auto each_row = [&](const auto& f) {
    for (std::uint32_t i = 0; i < job.rows.count; ++i) {
      const std::size_t y = job.flip_rows ? job.height - 1 - job.y - i : job.y + i;
      f(reinterpret_cast<const From*>(job.rows.row(i)), y);
    }
  };
  if (job.finish->layout == Layout::chw)
    return each_row([&](const From* row, std::size_t y) { finish_planes<To, From>(job, row, y); });
  if constexpr (kIsFloat<To>) {
    const Pattern pattern(*job.finish);
    each_row([&](const From* row, std::size_t y) { finish_interleaved<To, From>(job, row, y, &pattern); });
  } else {
    each_row([&](const From* row, std::size_t y) { finish_interleaved<To, From>(job, row, y, nullptr); });
  }
}

template <class From>
void finish_from(const FinishRows& job) {
  switch (job.finish->dtype) {
    case DType::uint8:
      return finish_as<std::uint8_t, From>(job);
    case DType::uint16:
      return finish_as<std::uint16_t, From>(job);
    case DType::int16:
      return finish_as<std::int16_t, From>(job);
    case DType::float16:
      return finish_as<Half, From>(job);
    case DType::float32:
      return finish_as<float, From>(job);
  }
}

inline void finish_rows(const FinishRows& job) noexcept {
  if (job.type.depth == 8)
    finish_from<std::uint8_t>(job);
  else if (job.type.is_signed)
    finish_from<std::int16_t>(job);
  else
    finish_from<std::uint16_t>(job);
}
