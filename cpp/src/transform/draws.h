// SPDX-License-Identifier: Apache-2.0
// Numbers from draws, the same to the last bit on every machine: only operations that IEEE 754 defines exactly, no
// libm, no contraction to fused multiply-adds (which this file's users are compiled without).
#pragma once

#include <cstdint>

namespace headrace {

// A whole number in [0, n) from a draw. The bias is below n / 2^32.
inline std::uint32_t below(std::uint32_t drawn, std::uint32_t n) noexcept {
  return static_cast<std::uint32_t>(std::uint64_t{drawn} * n >> 32);
}

// A number in [0, 1), exactly.
inline double unit(std::uint32_t drawn) noexcept { return drawn * 0x1p-32; }

inline double uniform(std::uint32_t drawn, double from, double to) noexcept { return from + (to - from) * unit(drawn); }

// To within 1e-15 of the truth, relatively. `x` is positive, finite and not subnormal.
double logarithm(double x) noexcept;

// To within 1e-15 of the truth, relatively. |x| <= 700.
double exponential(double x) noexcept;

// To the nearest whole number, halves to the even one, as Python's round does. |x| < 2^52.
double round_half_even(double x) noexcept;

}  // namespace headrace
