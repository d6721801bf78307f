// SPDX-License-Identifier: Apache-2.0
// Color steps with all their numbers known, as a target runs them over a picture.
#pragma once

#include <cstdint>

#include "transform/color.h"

namespace headrace {

// Each is value * factor + what it adds: brightness nothing, contrast a constant, saturation the pixel's gray.
struct ColorFactor {
  ColorKind kind = ColorKind::brightness;
  float factor = 1;  // for hue a shift in sixths of a turn, at least 0 and below 6
  float added = 0;   // for contrast the picture's mean times 1 - factor; for saturation 1 - factor
};

// The steps are run over every pixel and then, if `measures`, the rounded grays are summed up and nothing is written;
// else the pixels are rounded and written.
struct ColorRun {
  Picture picture;
  const ColorFactor* steps = nullptr;
  std::uint32_t count = 0;
  std::uint32_t out_channels = 0;  // of each pixel that is written
  bool measures = false;
  std::int64_t sum = 0;  // result
};

}  // namespace headrace
