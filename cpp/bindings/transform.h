// SPDX-License-Identifier: Apache-2.0
// What the bindings of transforms and of the engine share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include <array>
#include <cstddef>
#include <vector>

#include "buffers.h"
#include "loading/views.h"

namespace headrace::bindings {

const char* dtype_name(DType dtype);

// The axes of one image as an array: without a channel axis for masks of one channel.
struct OutputAxes {
  OutputAxes(const Transform& transform, const OutputShape& shape);

  std::array<std::size_t, 3> sides{};
  std::size_t count = 3;
};

// Groups of views from [(transform, views), ...]: at least one, and at most 65536 views in all.
std::vector<ViewGroup> make_groups(nb::handle groups);

// Borrow [H, W] or [H, W, C] with rows of any stride. `buffer` keeps it alive.
Picture borrow_picture(nb::handle image, Buffer& buffer);

}  // namespace headrace::bindings
