// SPDX-License-Identifier: Apache-2.0
// Prediction undone by a wave over 32 rows (spec §8, step 4). Included inside a target's namespace.
//
// Lane r works on row r, `Skew` columns behind lane r - 1. At step t it is at column t - Skew * r, so what it needs
// from the row above was made by its neighbour Skew - 1 (NE), Skew (N) and Skew + 1 (NW) steps ago: one move of lanes a
// step serves all three. Samples lie in natural order in memory; blocks of 16 steps are transposed in and out of
// registers, each row from its own, skewed column. What lanes compute outside of their row is garbage that falls into
// the padding between rows.
//
// The twist: row 0 and column 0 of each tile are finished before the wave starts. There the mask `inner` is 0, the
// prediction vanishes and the sample stands. That also separates tiles that share a wave.

template <class S>
struct VectorOf;
template <>
struct VectorOf<std::uint8_t> {
  using type = U8;
};
template <>
struct VectorOf<std::uint16_t> {
  using type = U16;
};
template <class S>
using Vector = typename VectorOf<S>::type;

inline constexpr std::uint32_t kLeftPad = 64;   // >= 31 * 2 columns, in which lanes have not yet entered their row
inline constexpr std::uint32_t kRightPad = 80;  // >= 31 * 2 + 15 columns, in which lanes have left it
inline constexpr std::uint32_t kTableColumns = kGroupColumns + kLeftPad + kRightPad + 32;

// A byte for each column, laid out so that the 32 lanes of a step read 32 neighbouring bytes: columns descend, and for
// a skew of 2 even and odd columns lie apart.
template <int Skew>
struct ColumnTable {
  std::uint8_t bytes[Skew][kTableColumns];

  // Column c of lane 0 is at index kTableColumns - 64 - c / Skew.
  static std::size_t index(std::uint32_t c) { return kTableColumns - 64 - c / Skew; }

  void set(std::uint32_t column, std::uint8_t value) { bytes[column % Skew][index(column)] = value; }
  // Columns first to first + n - 1; first and n even.
  void fill(std::uint32_t first, std::uint32_t n, std::uint8_t value) {
    for (int k = 0; k < Skew; ++k) std::memset(&bytes[k][index(first + n - 1)], value, n / Skew);
  }
  const std::uint8_t* at(std::uint32_t step) const { return &bytes[step % Skew][index(step)]; }
};

template <class S>
inline Vector<S> load_mask(const std::uint8_t* p) {
  if constexpr (sizeof(S) == 1)
    return load(p);
  else
    return widen_signed(load(p));
}

// For each column of a plane: is the first operand of the closing average MED (else the average of neighbours), is the
// second, and does that average take NE in?
template <int Skew>
struct PredictorMasks {
  ColumnTable<Skew> med_first, med_second, north_east;

  void fill(std::uint32_t first, std::uint32_t n, unsigned predictor) {
    med_first.fill(first, n, predictor == kAvg || predictor == kAvgNe ? 0 : 0xFF);
    med_second.fill(first, n, predictor == kMed ? 0xFF : 0);
    if constexpr (Skew == 2) north_east.fill(first, n, predictor >= kAvgNe ? 0xFF : 0);
  }
};

// Lane 0 is row 0, which the wave leaves alone.
alignas(32) inline constexpr std::uint8_t kBelowFirstRow[32] = {0,   255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                                                255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                                                255, 255, 255, 255, 255, 255, 255, 255, 255, 255};

template <class V>
inline V med(V w, V n, V nw) {
  const V low = min(w, n), high = max(w, n);
  return sub(add(low, high), max(low, min(nw, high)));
}

// Undo the prediction of P planes. `planes[p]` is column 0 of row 0; rows are `pitch` apart. With AllMedAvg the
// masks are not looked at.
template <class S, int P, int Skew, bool AllMedAvg>
HR_STAGE void wave(S* const* planes, std::ptrdiff_t pitch, std::uint32_t columns, std::uint32_t rows,
                   const ColumnTable<Skew>& inner, const PredictorMasks<Skew>* const* masks, Upcoming& upcoming) {
  using V = Vector<S>;
  alignas(64) V steps[P][16];
  V west[P], north[P], north_west[P], north_east[P];
  const V zero = set_all(S{0}), below_first_row = load_mask<S>(kBelowFirstRow);
  for (int p = 0; p < P; ++p) west[p] = north[p] = north_west[p] = north_east[p] = zero;
  const std::ptrdiff_t row = pitch - Skew;
  const std::uint32_t end = columns + (rows - 1) * Skew;
  for (std::uint32_t t0 = 0; t0 < end; t0 += 16) {
    upcoming.fetch();
    for (int p = 0; p < P; ++p) gather_steps(planes[p] + t0, row, steps[p]);
    for (std::uint32_t k = 0; k < 16; ++k) {
      const std::uint32_t t = t0 + k;
      const V within = bit_and(load_mask<S>(inner.at(t)), below_first_row);
      for (int p = 0; p < P; ++p) {
        const V m = med(west[p], north[p], north_west[p]);
        V prediction;
        if constexpr (AllMedAvg) {
          prediction = avg(m, avg(west[p], north[p]));
        } else {
          V above = north[p];
          if constexpr (Skew == 2)
            above = select(load_mask<S>(masks[p]->north_east.at(t)), avg(north[p], north_east[p]), north[p]);
          const V a = avg(west[p], above);
          prediction = avg(select(load_mask<S>(masks[p]->med_first.at(t)), m, a),
                           select(load_mask<S>(masks[p]->med_second.at(t)), m, a));
        }
        const V x = add(bit_and(prediction, within), steps[p][k]);
        steps[p][k] = x;
        west[p] = x;
        north_west[p] = north[p];
        const V above = from_lane_above(x);
        if constexpr (Skew == 2) {
          north[p] = north_east[p];
          north_east[p] = above;
        } else {
          north[p] = above;
        }
      }
    }
    for (int p = 0; p < P; ++p) scatter_steps(steps[p], planes[p] + t0, row);
  }
}

// Color numbers of a palette tile: 0 stands for the prediction, e for color e - 1.
inline void palette_wave(std::uint8_t* plane, std::ptrdiff_t pitch, std::uint32_t columns, std::uint32_t rows) {
  alignas(64) U8 steps[16];
  const U8 zero = set_all(std::uint8_t{0}), one = set_all(std::uint8_t{1});
  U8 west = zero, north = zero, north_west = zero;
  for (std::uint32_t t0 = 0; t0 < columns + rows - 1; t0 += 16) {
    gather_steps(plane + t0, pitch - 1, steps);
    for (int k = 0; k < 16; ++k) {
      const U8 prediction = select(equal(west, north_west), north, west);
      const U8 x = select(equal(steps[k], zero), prediction, sub(steps[k], one));
      steps[k] = x;
      west = x;
      north_west = north;
      north = from_lane_above(x);
    }
    scatter_steps(steps, plane + t0, pitch - 1);
  }
}
