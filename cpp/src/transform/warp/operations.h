// SPDX-License-Identifier: Apache-2.0
// The operations that turn, shear, scale, distort and deform a picture: their parameters, and what they draw.
#pragma once

#include <array>
#include <cstdint>

#include "headrace/transform.h"
#include "transform/warp/matrix.h"

namespace headrace {

// What one operation asks for: canvas positions go through `map` to positions of the picture before it.
struct WarpStep {
  Matrix map = kIdentity;
  std::uint32_t height = 0, width = 0;  // of the canvas
  Filter filter = Filter::nearest;
  WarpFill fill{};
  Elastic elastic;  // after `map`, which is then the identity
};

// Check the parameters of an affine, affine_level, perspective or elastic operation.
Status check_warp(const Op& op) noexcept;

using Words = std::array<std::uint32_t, 4>;

// What the operation does to a picture of this size, from the numbers of its blocks. Fails where the canvas would be
// too large. A perspective gives the map of one that happens.
Status affine_step(const Parameters& p, std::uint32_t height, std::uint32_t width, const Words& first,
                   const Words& second, WarpStep& step) noexcept;
Status affine_level_step(const Parameters& p, std::uint32_t height, std::uint32_t width, const Words& words,
                         WarpStep& step) noexcept;
Status perspective_step(const Parameters& p, std::uint32_t height, std::uint32_t width, const Words& first,
                        const Words& second, WarpStep& step) noexcept;
Status elastic_step(const Parameters& p, std::uint32_t height, std::uint32_t width, const Words& words,
                    WarpStep& step) noexcept;

}  // namespace headrace
