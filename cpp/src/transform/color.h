// SPDX-License-Identifier: Apache-2.0
// Color steps, in place on a small interleaved picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/transform.h"
#include "transform/rows.h"

namespace headrace {

struct Picture {
  std::uint8_t* first = nullptr;
  std::ptrdiff_t stride = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  PixelType type;
};

// Apply the steps in order, in float32, clamped after each and rounded once at the end. Saturation and hue leave a
// picture of one channel as it is and need three otherwise. A grayscale step that leaves one channel changes
// picture.type; the picture then stays where it is with the same stride.
Status apply_colors(std::span<const ColorStep> steps, Picture& picture) noexcept;

// Copy the content to where it lies on the canvas of the axes (not flipped) and draw the border around it. `content`
// holds [row_begin, …) x [column_begin, …) of the resized image; with a border all of it.
void place(const Picture& content, std::uint32_t row_begin, std::uint32_t column_begin, const Axis& rows,
           const Axis& columns, Border border, double fill, const Picture& canvas) noexcept;

}  // namespace headrace
