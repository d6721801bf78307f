// SPDX-License-Identifier: Apache-2.0
// The angle is brought to within an eighth of a turn around a multiple of a quarter, where power series are short.
#include "transform/trigonometry.h"

#include <cmath>

namespace headrace {

Turned turned(double turns) noexcept {
  constexpr int kTerms = 10;  // the next one is below 0.786^20 / 20! < 1e-20
  constexpr double kTurn = 6.283185307179586;
  const double quarters = std::floor(turns * 4 + 0.5);
  const double x = (turns - quarters / 4) * kTurn, square = x * x;
  double sine = 0, cosine = 0;
  for (int k = kTerms - 1; k >= 1; --k) {
    sine = (1 + sine) * (-square / ((2 * k) * (2 * k + 1)));
    cosine = (1 + cosine) * (-square / ((2 * k - 1) * (2 * k)));
  }
  sine = x * (1 + sine);
  cosine = 1 + cosine;
  switch (static_cast<int>(quarters - std::floor(quarters / 4) * 4)) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

}  // namespace headrace
