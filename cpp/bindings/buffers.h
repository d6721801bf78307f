// SPDX-License-Identifier: Apache-2.0
// Borrowed memory of Python objects, and the arrays that decoded images go to. Nothing here copies pixels.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "errors.h"
#include "headrace/codec.h"

namespace headrace::bindings {

namespace nb = nanobind;

// A Py_buffer that is released with its owner. The GIL must be held whenever one is made, moved or destroyed.
class Buffer {
 public:
  Buffer() noexcept = default;
  ~Buffer() { release(); }
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // False, with the Python error cleared, if the object does not export such a buffer.
  bool acquire(nb::handle object, int flags) noexcept;
  const Py_buffer& view() const noexcept { return view_; }
  Bytes bytes() const noexcept {
    return {static_cast<const std::uint8_t*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  void release() noexcept;

  Py_buffer view_{};
};

// Where a decoded image goes.
struct Rows {
  std::uint8_t* first = nullptr;
  std::ptrdiff_t stride = 0;
};

// Borrow the bytes of an encoded image.
Buffer borrow_bytes(nb::handle data, std::ptrdiff_t index = kNoIndex);

// Borrow an array [H, W] or [H, W, C] of any strides. `buffer` keeps it alive.
Pixels borrow_pixels(nb::handle image, Buffer& buffer);

// Borrow an array to write into: [H, W] or [H, W, C] after `leading` other axes.
Buffer borrow_output(nb::handle out);
Rows output_rows(const Buffer& out, int leading, const ImageHeader& header, const Region& region,
                 std::ptrdiff_t index = kNoIndex);

// A new, uninitialised array for a decoded region; `buffer` is a view of it.
nb::object allocate_output(const ImageHeader& header, const Region& region, Buffer& buffer);

// "[480, 640, 3] uint8"
std::string describe_image(const ImageHeader& header, const Region& region);

// Look up what allocate_output calls; once, when the module is loaded.
void import_numpy();

}  // namespace headrace::bindings
