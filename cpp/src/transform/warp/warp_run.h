// SPDX-License-Identifier: Apache-2.0
// A warp with all its numbers known, as a target runs it over the rows of a canvas.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/transform.h"
#include "transform/rows.h"
#include "transform/warp/field.h"

namespace headrace {

// Bytes after the last row of the source that must be readable. They count for nothing.
inline constexpr std::size_t kWarpOverread = 1;

// How positions of the input are worked out.
enum class WarpPositions : std::uint8_t {
  real,   // by the map, in float64
  fixed,  // by the map, in whole numbers of 2^-16 pixels: Pillow's for nearest, if all corners lie within 2^15
  steps,  // by adding the scale for each pixel, in float64: Pillow's for nearest where nothing is turned
};

struct WarpRun {
  const Warp* warp = nullptr;
  const Field* field = nullptr;  // of an elastic deformation
  PixelType type;
  Filter filter = Filter::nearest;
  WarpPositions positions = WarpPositions::real;
  std::uint32_t samples = 1;           // of each pixel, along each axis
  std::int32_t height = 0, width = 0;  // of the cut input
  // The part of it that is there: rows [top, top + rows) and columns [left, left + columns), neither empty.
  std::int32_t top = 0, left = 0, rows = 0, columns = 0;
  const std::uint8_t* source = nullptr;
  std::ptrdiff_t source_stride = 0;
  std::uint32_t canvas_height = 0, canvas_width = 0;
  std::uint8_t* out = nullptr;
  std::ptrdiff_t out_stride = 0;
};

}  // namespace headrace
