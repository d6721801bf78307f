// SPDX-License-Identifier: Apache-2.0
// The displacements of an elastic deformation at a piece of positions. Included inside a target's namespace,
// before warp-inl.h.
//
// A displacement is the sum over four columns of nodes, each the sum over four rows. Where a piece runs along a row of
// the picture, as it does unless something turns or shears after the deformation, the sums over rows are worked out
// once for each column of nodes; else for each position. Both give the same bits.

inline constexpr std::size_t kWarpPiece = 128;

struct WarpPiece {
  alignas(64) double x[kWarpPiece], y[kWarpPiece];  // in the cut input; 0 where it is fill
  alignas(64) std::int32_t shown[kWarpPiece];       // 0: fill
  std::size_t n;
  bool any;  // is shown
};

struct FieldTaps {
  alignas(64) std::int32_t column[kWarpPiece], row[kWarpPiece];  // of the first of four nodes
  alignas(64) float across[4][kWarpPiece], down[4][kWarpPiece];
};

// `at` is a position in the picture; beyond its edges, where nothing is shown, the edge's displacement will do.
inline void find_nodes(const double* at, std::size_t n, double size, double per_pixel, std::int32_t* node,
                       float (&weights)[4][kWarpPiece]) {
  constexpr float kSixth = 1.0f / 6;
  for (std::size_t i = 0; i < n; ++i) {
    double x = at[i] > 0 ? at[i] : 0;
    x = (x < size ? x : size) * per_pixel;
    const auto cell = static_cast<std::int32_t>(x);
    const auto t = static_cast<float>(x - cell);
    const float rest = 1 - t, square = t * t, cube = square * t;
    node[i] = cell;
    weights[0][i] = rest * rest * rest * kSixth;
    weights[1][i] = (3 * cube - 6 * square + 4) * kSixth;
    weights[2][i] = (3 * (square + t - cube) + 1) * kSixth;
    weights[3][i] = cube * kSixth;
  }
}

inline float sum_of_rows(const float* node, std::size_t columns, float a, float b, float c, float d) {
  return ((node[0] * a + node[columns] * b) + node[2 * columns] * c) + node[3 * columns] * d;
}

// Adds the displacements `out` to positions in one direction.
inline void displace_along_row(const Field& field, const float* nodes, const FieldTaps& taps, std::size_t n,
                               std::int32_t first, std::size_t count, double* out) {
  alignas(64) float sums[4 * kWarpPiece];
  const float* const from = nodes + static_cast<std::size_t>(taps.row[0]) * field.columns + first;
  for (std::size_t c = 0; c < count; ++c)
    sums[c] = sum_of_rows(from + c, field.columns, taps.down[0][0], taps.down[1][0], taps.down[2][0], taps.down[3][0]);
  for (std::size_t i = 0; i < n; ++i) {
    const float* const at = sums + (taps.column[i] - first);
    const float d = ((at[0] * taps.across[0][i] + at[1] * taps.across[1][i]) + at[2] * taps.across[2][i]) +
                    at[3] * taps.across[3][i];
    out[i] = out[i] + static_cast<double>(d);
  }
}

inline void displace_anywhere(const Field& field, const float* nodes, const FieldTaps& taps, std::size_t n,
                              double* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const float* const at =
        nodes + static_cast<std::size_t>(taps.row[i]) * field.columns + static_cast<std::size_t>(taps.column[i]);
    float sums[4];
    for (std::size_t k = 0; k < 4; ++k)
      sums[k] = sum_of_rows(at + k, field.columns, taps.down[0][i], taps.down[1][i], taps.down[2][i], taps.down[3][i]);
    const float d = ((sums[0] * taps.across[0][i] + sums[1] * taps.across[1][i]) + sums[2] * taps.across[2][i]) +
                    sums[3] * taps.across[3][i];
    out[i] = out[i] + static_cast<double>(d);
  }
}

// From positions of the picture that is deformed to positions of the cut input, and which of them its gates let pass.
inline void bend_positions(const WarpRun& job, WarpPiece& p) {
  const Field& field = *job.field;
  FieldTaps taps;
  find_nodes(p.x, p.n, field.size[0], field.per_pixel[0], taps.column, taps.across);
  find_nodes(p.y, p.n, field.size[1], field.per_pixel[1], taps.row, taps.down);
  bool level = true;
  std::int32_t first = INT32_MAX, last = -1;
  for (std::size_t i = 0; i < p.n; ++i) {
    level = level & (p.y[i] == p.y[0]);
    first = taps.column[i] < first ? taps.column[i] : first;
    last = taps.column[i] > last ? taps.column[i] : last;
  }
  const auto count = static_cast<std::size_t>(last - first) + 4;
  double* const positions[2] = {p.x, p.y};
  for (std::size_t k = 0; k < 2; ++k) {
    if (level && count <= 4 * kWarpPiece)
      displace_along_row(field, field.nodes[k], taps, p.n, first, count, positions[k]);
    else
      displace_anywhere(field, field.nodes[k], taps, p.n, positions[k]);
  }
  for (std::uint32_t k = 0; k < job.warp->elastic.gate_count; ++k) {
    const double a = job.warp->gates[k][0], b = job.warp->gates[k][1], c = job.warp->gates[k][2];
    for (std::size_t i = 0; i < p.n; ++i) p.shown[i] &= a * p.x[i] + b * p.y[i] + c >= 0;
  }
  const auto& m = job.warp->elastic.map;
  for (std::size_t i = 0; i < p.n; ++i) {
    const double x = p.x[i], y = p.y[i];
    p.x[i] = m[0] * x + m[1] * y + m[2];
    p.y[i] = m[3] * x + m[4] * y + m[5];
  }
}
