// SPDX-License-Identifier: Apache-2.0
// Crops that depend on the boxes of their sample.
#pragma once

#include <cstdint>

#include "headrace/transform.h"
#include "transform/program.h"

namespace headrace {

constexpr std::uint32_t kMaxIouOptions = 10;
constexpr std::uint32_t kMaxIouTrials = 1000;

Status check_iou_crop(const Parameters& p) noexcept;

// RandomIoUCrop (spec/recipe.md §3). `inside` is null, or receives for each box of the key whether its center is in the
// crop; it is not changed if nothing is cropped.
Status iou_crop(Composer& composer, const Op& op, const DrawKey& key, std::uint16_t number,
                std::uint8_t* inside) noexcept;

}  // namespace headrace
