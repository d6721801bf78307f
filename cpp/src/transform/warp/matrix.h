// SPDX-License-Identifier: Apache-2.0
// Maps of the plane onto itself: 3x3 matrices on homogeneous columns (x, y, 1), in double precision.
#pragma once

#include <array>
#include <cstddef>

namespace headrace {

// Row by row. The last row is (0, 0, 1) of an affine map.
using Matrix = std::array<double, 9>;

inline constexpr Matrix kIdentity = {1, 0, 0, 0, 1, 0, 0, 0, 1};

// First `inner`, then `outer`.
constexpr Matrix operator*(const Matrix& outer, const Matrix& inner) noexcept {
  Matrix product{};
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t c = 0; c < 3; ++c)
      product[3 * r + c] = outer[3 * r] * inner[c] + outer[3 * r + 1] * inner[3 + c] + outer[3 * r + 2] * inner[6 + c];
  return product;
}

constexpr Matrix shift(double x, double y) noexcept { return {1, 0, x, 0, 1, y, 0, 0, 1}; }
constexpr Matrix scaling(double x, double y) noexcept { return {x, 0, 0, 0, y, 0, 0, 0, 1}; }

// Up to a factor.
constexpr Matrix inverse(const Matrix& m) noexcept {
  return {m[4] * m[8] - m[5] * m[7], m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
          m[5] * m[6] - m[3] * m[8], m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
          m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]};
}

constexpr bool is_affine(const Matrix& m) noexcept { return m[6] == 0 && m[7] == 0 && m[8] == 1; }

}  // namespace headrace
