// SPDX-License-Identifier: Apache-2.0
// A level: how much a policy applies of an operation, drawn from a distribution and then scaled.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace headrace {

inline constexpr std::size_t kLevelParameters = 8;

// The eight parameters are (distribution, a, b, least, most, sign, base, step), as in spec/recipe.md.
using LevelParameters = std::span<const double, kLevelParameters>;

// Null, or what is wrong with the parameters.
const char* check_level(LevelParameters level) noexcept;

// The first three numbers decide: two the amount, the third the sign.
double draw_level(LevelParameters level, const std::array<std::uint32_t, 4>& words) noexcept;

}  // namespace headrace
