// SPDX-License-Identifier: Apache-2.0
// Random erasing: rectangles of a finished image, in its place in the batch, are overwritten.
#pragma once

#include <cstdint>
#include <span>

#include "headrace/transform.h"
#include "transform/finish.h"

namespace headrace {

// Run those of the operations that are random_erasing on an image of height x width that `finish` has described. `ops`
// has passed check_ops.
void erase(std::span<const Op> ops, const DrawKey& key, const Finish& finish, std::uint32_t height, std::uint32_t width,
           std::uint8_t* out) noexcept;

}  // namespace headrace
