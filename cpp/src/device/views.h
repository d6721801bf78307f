// SPDX-License-Identifier: Apache-2.0
// What a device has to do for the views of a batch: which part of which image, how it is resized, what is decoded of
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/tiles.h"
#include "headrace/transform.h"

namespace headrace::device {

enum class Method : std::uint8_t {
  none,  // nothing that a device can do: a border, colors, another filter, more than one pass, or no program at all
  cut,
  bilinear,
  nearest,
};

enum ViewRow : std::size_t {
  kViewMethod,
  kViewStartY,  // of the part of the image that is cut out
  kViewStartX,
  kViewSizeY,
  kViewSizeX,
  kViewResizedY,
  kViewResizedX,
  kViewBeginY,  // of what is wanted of the resized part
  kViewBeginX,
  kViewExtentY,
  kViewExtentX,
  kViewUpsideDown,
  kViewMirrored,
  kViewTop,  // of the region that has to be decoded
  kViewLeft,
  kViewHeight,
  kViewWidth,
  kViewRows
};

struct ViewRequest {
  std::span<const Op> ops;  // have passed check_ops
  bool mask = false;
  std::uint64_t max_pixels = 0;
};

// Work out one view of an image of this size: fills its column of the table. Of a view without a method only that is
// set; that includes those of more than max_pixels.
void plan_view(const ViewRequest& request, std::uint32_t height, std::uint32_t width, const DrawKey& key,
               const Table& views, std::size_t column) noexcept;

}  // namespace headrace::device
