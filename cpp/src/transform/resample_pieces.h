// SPDX-License-Identifier: Apache-2.0
// What the ways to resize share: the axes of a job and pieces of a thread's buffers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transform/resample.h"
#include "transform/resample_taps.h"

namespace headrace {

inline constexpr Status kNoMemoryToResize = {Code::no_memory, "there is no memory to resize the image"};

inline ResizedAxis rows_of(const Resample& job) noexcept {
  return {job.height, job.resized_height, job.window.top, job.window.height, job.filter, job.antialias};
}

inline ResizedAxis columns_of(const Resample& job) noexcept {
  return {job.width, job.resized_width, job.window.left, job.window.width, job.filter, job.antialias};
}

// Pieces of one buffer. Counted first, then laid out: both are the same calls.
class Pieces {
 public:
  explicit Pieces(std::uint8_t* base = nullptr) noexcept : base_(base) {}

  template <class T>
  T* take(std::size_t count) noexcept {
    T* const piece = base_ != nullptr ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
  std::size_t used() const noexcept { return used_; }

 private:
  std::uint8_t* base_;
  std::size_t used_ = 0;
};

// Let `lay_out` take its pieces of the buffer, which grows to hold them.
template <class F>
bool lay_out_in(Buffer& buffer, const F& lay_out) noexcept {
  Pieces counted;
  lay_out(counted);
  std::uint8_t* const base = buffer.reserve(counted.used());
  if (base == nullptr) return false;
  Pieces pieces(base);
  lay_out(pieces);
  return true;
}

// Copies of the closest pixels.
Status resample_nearest(const Resample& job, RowSource& source, std::uint8_t* out, std::ptrdiff_t row_stride,
                        Workspace& workspace) noexcept;

}  // namespace headrace
