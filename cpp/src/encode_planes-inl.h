// SPDX-License-Identifier: Apache-2.0
// Planes of a tile in the encoder: loading, the choice of color codes and predictors, residuals. Included inside a
// target's namespace.
//
// Prediction is easy in this direction: all neighbours are known, so 32 columns of a row are done at once. A plane is
// padded by repeating its first and last columns, which makes NE of the last column N, and keeps what vectors see
// beyond the edges a function of the tile.

template <class S>
struct PlaneSet {
  S* first;
  std::size_t stride;

  S* operator[](std::uint32_t c) const { return first + c * stride; }
};

template <class S>
HR_STAGE void pad_columns(S* plane, std::uint32_t w, std::uint32_t h) {
  const std::uint32_t end = (w + 31) / 32 * 32 + 1;
  for (std::uint32_t y = 0; y < h; ++y, plane += kEncodePitch) {
    plane[-1] = plane[0];
    for (std::uint32_t x = w; x < end; ++x) plane[x] = plane[w - 1];
  }
}

template <class S, class T>
inline void load_channel(const EncodeTile& job, std::uint32_t c, S* plane) {
  const Pixels& px = *job.pixels;
  const T flip = px.is_signed ? static_cast<T>(0x8000) : 0;
  for (std::uint32_t y = 0; y < job.h; ++y, plane += kEncodePitch) {
    const std::uint8_t* from = px.origin + static_cast<std::ptrdiff_t>(job.y + y) * px.row_stride +
                               static_cast<std::ptrdiff_t>(job.x) * px.column_stride +
                               static_cast<std::ptrdiff_t>(c) * px.channel_stride;
    if (job.ranks) {
      for (std::uint32_t x = 0; x < job.w; ++x, from += px.column_stride)
        plane[x] = static_cast<S>(job.ranks[static_cast<T>(load_le<T>(from) ^ flip)]);
    } else if (px.column_stride == sizeof(T)) {
      for (std::uint32_t x = 0; x < job.w; ++x) plane[x] = static_cast<S>(load_le<T>(from + x * sizeof(T)) ^ flip);
    } else {
      for (std::uint32_t x = 0; x < job.w; ++x, from += px.column_stride)
        plane[x] = static_cast<S>(load_le<T>(from) ^ flip);
    }
  }
}

template <class S>
HR_STAGE void load_tile(const EncodeTile& job, PlaneSet<S> planes) {
  const Pixels& px = *job.pixels;
  if constexpr (sizeof(S) == 1) {
    if (px.channels == 3 && px.depth == 8 && !job.ranks && px.column_stride == 3 && px.channel_stride == 1) {
      for (std::uint32_t y = 0; y < job.h; ++y) {
        const std::uint8_t* from =
            px.origin + static_cast<std::ptrdiff_t>(job.y + y) * px.row_stride + std::size_t{job.x} * 3;
        const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(y) * kEncodePitch;
        std::uint32_t x = 0;
        for (; x + 32 <= job.w; x += 32, from += 96) {
          U8 r, g, b;
          load_interleaved3(from, r, g, b);
          store(planes[0] + row + x, r);
          store(planes[1] + row + x, g);
          store(planes[2] + row + x, b);
        }
        for (; x < job.w; ++x, from += 3)
          for (std::uint32_t c = 0; c < 3; ++c) planes[c][row + x] = from[c];
      }
      return;
    }
  }
  for (std::uint32_t c = 0; c < px.channels; ++c) {
    if (px.depth == 8)
      load_channel<S, std::uint8_t>(job, c, planes[c]);
    else
      load_channel<S, std::uint16_t>(job, c, planes[c]);
  }
}

// Do enough neighbours agree that a palette may pay?
template <class S>
HR_STAGE bool has_runs(const S* plane, std::uint32_t w, std::uint32_t h) {
  std::uint32_t same = 0;
  for (std::uint32_t y = 0; y < h; y += 4)
    for (std::uint32_t x = 1; x < w; ++x) same += plane[y * kEncodePitch + x] == plane[y * kEncodePitch + x - 1];
  return 2 * same >= (w - 1) * ceil_div(h, 4);
}

template <class S>
HR_STAGE void subtract_reference(const S* plane, const S* previous, const S* before, std::uint32_t w, std::uint32_t h,
                                 S* to) {
  const Vector<S> mid = set_all(static_cast<S>(S{1} << (8 * sizeof(S) - 1)));
  for (std::uint32_t y = 0; y < h; ++y) {
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(y) * kEncodePitch;
    for (std::uint32_t x = 0; x < w; x += 32) {
      const Vector<S> ref = avg(load(previous + row + x), load(before + row + x));
      store(to + row + x, add(sub(load(plane + row + x), ref), mid));
    }
  }
}

// log2(v + 1) in 1/1024, exact enough to compare textures by, and the same on every machine.
inline std::uint32_t log2_fixed(std::uint32_t v) {
  const float f = static_cast<float>(v + 1);
  std::uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return (bits - (127U << 23)) >> 13;
}

// The sum over 8x8 blocks of log2 of the absolute residuals, where `residual(y, x)` gives 32 of row y from column x on.
template <class S, class Residual>
inline std::uint32_t texture(std::uint32_t x, std::uint32_t w, std::uint32_t h, const Residual& residual) {
  std::uint32_t total = 0;
  for (std::uint32_t y0 = 0; y0 < h; y0 += 8) {
    BlockSums<S> sums;
    for (std::uint32_t y = y0 == 0 ? 1 : y0; y < y0 + 8 && y < h; ++y) sums.add_absolute(residual(y, x));
    std::uint32_t four[4];
    sums.get(four);
    for (std::uint32_t k = 0; k < 4 && x + 8 * k < w; ++k) total += log2_fixed(four[k]);
  }
  return total;
}

// The code of each channel that leaves the least texture.
template <class S>
HR_STAGE void choose_colors(PlaneSet<S> planes, std::uint32_t channels, std::uint32_t w, std::uint32_t h,
                            std::uint8_t* codes) {
  using V = Vector<S>;
  for (std::uint32_t p = 0; p < channels; ++p) {
    const std::uint32_t c = coded_channel(p, channels);
    codes[c] = 0;
    if (p == 0) continue;
    const S* plane = planes[c];
    const S* previous = planes[c == 0 ? 1 : c - 1];
    const S* before = c >= 2 ? planes[c - 2] : previous;
    std::uint32_t cost[3] = {0, 0, 0};
    const unsigned highest = c == 0 ? 1 : 2;
    for (unsigned code = 0; code <= highest; ++code) {
      const V mid = set_all(static_cast<S>(code == 0 ? 0 : S{1} << (8 * sizeof(S) - 1)));
      const auto value = [&](std::ptrdiff_t i) -> V {
        const V v = add(load(plane + i), mid);
        if (code == 0) return v;
        return sub(v, code == 1 ? load(previous + i) : avg(load(previous + i), load(before + i)));
      };
      const auto residual = [&](std::uint32_t y, std::uint32_t x) -> V {
        const std::ptrdiff_t i = static_cast<std::ptrdiff_t>(y) * kEncodePitch + x;
        return sub(value(i), avg(value(i - 1), value(i - kEncodePitch)));
      };
      for (std::uint32_t x = 0; x < w; x += 32) cost[code] += texture<S>(x, w, h, residual);
    }
    for (unsigned code = 1; code <= highest; ++code)
      if (cost[code] < cost[codes[c]]) codes[c] = static_cast<std::uint8_t>(code);
  }
}

template <class S>
struct Neighbours {
  Vector<S> w, n, nw, ne;

  Neighbours(const S* at)
      : w(load(at - 1)), n(load(at - kEncodePitch)), nw(load(at - kEncodePitch - 1)), ne(load(at - kEncodePitch + 1)) {}

  Vector<S> predict(unsigned id) const {
    switch (id) {
      case kAvg:
        return avg(w, n);
      case kMed:
        return med(w, n, nw);
      case kMedAvg:
        return avg(med(w, n, nw), avg(w, n));
      case kAvgNe:
        return avg(w, avg(n, ne));
      default:
        return avg(med(w, n, nw), avg(w, avg(n, ne)));
    }
  }
};

// The predictor of each strip of 32 columns that leaves the least texture.
template <class S>
HR_STAGE void choose_predictors(const S* plane, std::uint32_t w, std::uint32_t h, std::uint8_t* ids) {
  for (std::uint32_t x = 0; x < w; x += kStrip) {
    std::uint32_t cost[kPredictors] = {};
    for (std::uint32_t y0 = 0; y0 < h; y0 += 8) {
      BlockSums<S> sums[kPredictors];
      for (std::uint32_t y = y0 == 0 ? 1 : y0; y < y0 + 8 && y < h; ++y) {
        const S* at = plane + static_cast<std::ptrdiff_t>(y) * kEncodePitch + x;
        const Neighbours<S> near(at);
        const Vector<S> v = load(at), m = med(near.w, near.n, near.nw);
        const Vector<S> a = avg(near.w, near.n), b = avg(near.w, avg(near.n, near.ne));
        sums[kAvg].add_absolute(sub(v, a));
        sums[kMed].add_absolute(sub(v, m));
        sums[kMedAvg].add_absolute(sub(v, avg(m, a)));
        sums[kAvgNe].add_absolute(sub(v, b));
        sums[kMedAvgNe].add_absolute(sub(v, avg(m, b)));
      }
      for (unsigned id = 0; id < kPredictors; ++id) {
        std::uint32_t four[4];
        sums[id].get(four);
        for (std::uint32_t k = 0; k < 4 && x + 8 * k < w; ++k) cost[id] += log2_fixed(four[k]);
      }
    }
    unsigned best = 0;
    for (unsigned id = 1; id < kPredictors; ++id)
      if (cost[id] < cost[best]) best = id;
    ids[x / kStrip] = static_cast<std::uint8_t>(best);
  }
}

// Residuals of a plane, 0 where a block sticks out of the tile; `id(x)` is the predictor of the strip at column x.
template <class S, class Id>
HR_STAGE void take_residuals(const S* plane, std::uint32_t w, std::uint32_t h, const Id& id, S* to) {
  for (std::uint32_t y = 0; y < h; ++y) {
    const S* from = plane + static_cast<std::ptrdiff_t>(y) * kEncodePitch;
    S* row = to + static_cast<std::ptrdiff_t>(y) * kEncodePitch;
    if (y == 0) {
      for (std::uint32_t x = 0; x < w; x += 32) store(row + x, sub(load(from + x), load(from + x - 1)));
      row[0] = static_cast<S>(from[0] - (S{1} << (8 * sizeof(S) - 1)));
    } else {
      for (std::uint32_t x = 0; x < w; x += 32)
        store(row + x, sub(load(from + x), Neighbours<S>(from + x).predict(id(x))));
      row[0] = static_cast<S>(from[0] - from[-kEncodePitch]);
    }
    for (std::uint32_t x = w; x < (w + 31) / 32 * 32; ++x) row[x] = 0;
  }
  for (std::uint32_t y = h; y < (h + 7) / 8 * 8; ++y)
    std::memset(to + static_cast<std::ptrdiff_t>(y) * kEncodePitch, 0, (w + 31) / 32 * 32 * sizeof(S));
}

template <class S>
inline void zigzag_residuals(const S* plane, std::uint32_t w, std::uint32_t h, const std::uint8_t* ids, S* to) {
  take_residuals(plane, w, h, [ids](std::uint32_t x) { return ids[x / kStrip]; }, to);
  for (std::uint32_t y = 0; y < h; ++y)
    for (std::uint32_t x = 0; x < w; x += 32) {
      S* at = to + static_cast<std::ptrdiff_t>(y) * kEncodePitch + x;
      store(at, do_zigzag(load(at)));
    }
}

// 8x8 blocks, back to back.
template <class S>
HR_STAGE void gather_blocks(const S* plane, std::uint32_t blocks_x, std::uint32_t blocks_y, S* to) {
  for (std::uint32_t y = 0; y < blocks_y; ++y, plane += 8 * kEncodePitch)
    for (std::uint32_t x = 0; x < blocks_x; ++x, to += 64)
      for (int r = 0; r < 8; ++r) std::memcpy(to + 8 * r, plane + r * kEncodePitch + 8 * x, 8 * sizeof(S));
}

template <class S>
inline void group_widths(const S* residuals, std::uint32_t groups_x, std::uint32_t groups_y, std::uint8_t* b);

// Bytes hardly gain from a choice here: one predictor serves them all, and the decoder has a loop of its own for it.
inline unsigned choose_packed_predictor(const std::uint8_t* plane, std::uint32_t w, std::uint32_t h, std::uint8_t* to,
                                        std::uint8_t*, std::uint8_t*) {
  take_residuals(plane, w, h, [](std::uint32_t) { return unsigned{kMedAvg}; }, to);
  return kMedAvg;
}

inline unsigned choose_packed_predictor(const std::uint16_t* plane, std::uint32_t w, std::uint32_t h, std::uint16_t* to,
                                        std::uint16_t* trial, std::uint8_t* widths) {
  const std::uint32_t groups_x = ceil_div(w, 4), groups_y = ceil_div(h, 4);
  unsigned best = kMedAvg;
  std::uint32_t lowest = ~0U;
  for (unsigned id = kAvg; id <= kMedAvg; ++id) {
    take_residuals(plane, w, h, [id](std::uint32_t) { return id; }, trial);
    group_widths(trial, groups_x, groups_y, widths);
    std::uint32_t cost = 0;
    for (std::uint32_t g = 0; g < groups_x * groups_y; ++g) cost += widths[g];
    if (cost < lowest) {
      lowest = cost;
      best = id;
    }
  }
  take_residuals(plane, w, h, [best](std::uint32_t) { return best; }, to);
  return best;
}
