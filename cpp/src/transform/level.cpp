// SPDX-License-Identifier: Apache-2.0
#include "transform/level.h"

#include <algorithm>
#include <cmath>

#include "transform/draws.h"
#include "transform/trigonometry.h"

namespace headrace {
namespace {

constexpr double kUniform = 0, kNormal = 1, kWhole = 2;  // distributions

constexpr double kMax = 1e6;

bool small(double x) noexcept { return x >= -kMax && x <= kMax; }

// Box and Muller's method. The radius is that of 1 - u, which is never 0.
double normal(std::uint32_t radius, std::uint32_t angle) noexcept {
  return std::sqrt(-2 * logarithm(1 - unit(radius))) * turned(unit(angle)).cosine;
}

}  // namespace

const char* check_level(LevelParameters p) noexcept {
  if (p[0] != kUniform && p[0] != kNormal && p[0] != kWhole) return "level: the distribution must be 0, 1 or 2";
  for (std::size_t k = 1; k < kLevelParameters; ++k)
    if (!small(p[k])) return "level: every number must be in [-1e6, 1e6]";
  if (p[0] == kNormal && p[2] < 0) return "level: the deviation must be >= 0";
  if (p[0] != kNormal && p[1] > p[2]) return "level: the range must be from <= to";
  if (p[0] == kWhole && (std::floor(p[1]) != p[1] || std::floor(p[2]) != p[2]))
    return "level: the range must be of whole numbers";
  if (p[3] > p[4]) return "level: the limits must be least <= most";
  if (p[5] != 0 && p[5] != 1) return "level: sign must be 0 or 1";
  return nullptr;
}

double draw_level(LevelParameters p, const std::array<std::uint32_t, 4>& words) noexcept {
  double amount = p[1];
  if (p[0] == kUniform) {
    amount = uniform(words[0], p[1], p[2]);
  } else if (p[0] == kNormal) {
    amount = p[1] + p[2] * normal(words[0], words[1]);
  } else {
    amount = p[1] + below(words[0], static_cast<std::uint32_t>(p[2] - p[1]) + 1);
  }
  const double level = p[6] + p[7] * std::clamp(amount, p[3], p[4]);
  return p[5] == 1 && unit(words[2]) < 0.5 ? -level : level;
}

}  // namespace headrace
