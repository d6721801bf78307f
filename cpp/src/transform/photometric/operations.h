// SPDX-License-Identifier: Apache-2.0
// The operations on pixel values: their parameters, and the steps that they draw.
#pragma once

#include <array>
#include <cstdint>

#include "headrace/transform.h"

namespace headrace {

// Check the parameters of an operation from invert to jpeg.
Status check_photometric(const Op& op) noexcept;

// False if the first number of block 0 says that the operation does not happen. Else the step, drawn from block 1.
// Parameters were checked.
bool photometric_step(const Op& op, const DrawKey& key, std::uint16_t number, ColorStep& step) noexcept;

// Whether a step on a mirrored picture is something else than the mirrored step.
constexpr bool has_direction(ColorKind kind) noexcept {
  return kind == ColorKind::gaussian_noise || kind == ColorKind::jpeg;
}

}  // namespace headrace
