// SPDX-License-Identifier: Apache-2.0
// Sine and cosine, the same to the last bit on every machine, as the functions of draws.h are.
#pragma once

namespace headrace {

struct Turned {
  double cosine, sine;
};

// Of an angle in turns, to within 1e-15; exact at multiples of a quarter. |turns| < 2^40.
Turned turned(double turns) noexcept;

}  // namespace headrace
