// SPDX-License-Identifier: Apache-2.0
// Resizing by separable filters, with the weights of Pillow: the filter is widened by the scale where an axis shrinks,
// unless antialias is off. Vertically first, while the rows arrive; integers for 8 bits, float32 for 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/codec.h"
#include "headrace/transform.h"
#include "transform/rows.h"
#include "transform/workspace.h"

namespace headrace {

// An image of height x width becomes resized_height x resized_width; `window` is the part of the result that is wanted.
struct Resample {
  PixelType type;
  std::uint32_t height = 0, width = 0;
  std::uint32_t resized_height = 0, resized_width = 0;
  Region window;
  Filter filter = Filter::bilinear;
  bool antialias = true;
};

// The part of the image that the window depends on: what has to be decoded.
Region needed_region(const Resample& job) noexcept;

// Read needed_region(job) from `source`, row by row, and write the window to `out`.
Status resample(const Resample& job, RowSource& source, std::uint8_t* out, std::ptrdiff_t row_stride,
                Workspace& workspace) noexcept;

}  // namespace headrace
