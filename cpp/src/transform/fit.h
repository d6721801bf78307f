// SPDX-License-Identifier: Apache-2.0
// Operations for detection and segmentation that change the size of a picture and keep its shape: resizes and pads.
#pragma once

#include <array>
#include <cstdint>

#include "headrace/transform.h"
#include "transform/program.h"

namespace headrace {

// Apply a scale_jitter, shortest_size, letterbox or zoom_out with the numbers of its block 0.
Status fit(Composer& composer, const Op& op, const std::array<std::uint32_t, 4>& words) noexcept;

}  // namespace headrace
