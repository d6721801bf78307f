// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011): ten rounds of two 32-bit
// multiplications turn a counter and a key into four numbers. It has no state, so that any draw of any sample can be
// made at any time, anywhere.
#include "transform/draws.h"

#include <cmath>

#include "headrace/transform.h"

namespace headrace {
namespace {

constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

// ln 2 in two parts. The first has 20 trailing zero bits, so that its product with any exponent of a double is exact.
constexpr double kLn2High = 0x1.62e42fefp-1, kLn2Low = 0x1.473de6af278edp-34;

constexpr std::uint32_t low(std::uint64_t x) noexcept { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) noexcept { return static_cast<std::uint32_t>(x >> 32); }

}  // namespace

std::array<std::uint32_t, 4> draw(const DrawKey& key, std::uint16_t operation, std::uint16_t block) noexcept {
  std::uint32_t k0 = low(key.seed), k1 = high(key.seed);
  std::uint32_t c0 = low(key.sample), c1 = (high(key.sample) & 0xFFFF) | std::uint32_t{key.view} << 16, c2 = key.epoch,
                c3 = std::uint32_t{operation} << 16 | block;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = kMultiplier0 * c0, p1 = kMultiplier1 * c2;
    c0 = high(p1) ^ c1 ^ k0;
    c1 = low(p1);
    c2 = high(p0) ^ c3 ^ k1;
    c3 = low(p0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

// x = m 2^e with m around 1; ln m = 2 artanh s with s = (m - 1) / (m + 1), |s| < 0.172, by its power series.
double logarithm(double x) noexcept {
  constexpr int kTerms = 12;  // the next one is below 0.172^24 / 25 < 2e-20 of the first
  int e;
  double m = std::frexp(x, &e);  // exact
  if (m < 0.70710678118654752) {
    m *= 2;
    e -= 1;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = kTerms - 1; k >= 1; --k) sum = (sum + 1.0 / (2 * k + 1)) * square;
  return e * kLn2High + (2 * s + (2 * s * sum + e * kLn2Low));
}

// exp x = 2^k exp r with |r| <= ln 2 / 2, by its power series.
double exponential(double x) noexcept {
  constexpr int kTerms = 15;  // the next one is below 0.347^15 / 15! < 1e-19
  const double k = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;
  for (int n = kTerms - 1; n >= 1; --n) sum = 1 + sum * r / n;
  return std::ldexp(sum, static_cast<int>(k));  // exact
}

double round_half_even(double x) noexcept {
  const double whole = std::floor(x), rest = x - whole;  // both exact
  const bool odd = std::floor(whole / 2) * 2 != whole;
  return rest > 0.5 || (rest == 0.5 && odd) ? whole + 1 : whole;
}

}  // namespace headrace
