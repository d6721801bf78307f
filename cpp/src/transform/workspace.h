// SPDX-License-Identifier: Apache-2.0
// Memory that a thread uses again for each sample: to fault in fresh pages costs as much as to decode into them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/platform.h"

namespace headrace {

// One piece of memory for one purpose at a time; 64-byte aligned; grows, and never shrinks while it is in use.
class Buffer {
 public:
  Buffer() noexcept = default;
  ~Buffer() { platform::free_aligned(p_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // At least `bytes`, contents unspecified; null if there is no memory.
  std::uint8_t* reserve(std::size_t bytes) noexcept {
    if (bytes > size_) {
      platform::free_aligned(p_);
      const std::size_t rounded = (bytes + bytes / 4 + 4095) / 4096 * 4096;
      p_ = platform::allocate_aligned(64, rounded);
      size_ = p_ ? rounded : 0;
    }
    return static_cast<std::uint8_t*>(p_);
  }
  std::size_t size() const noexcept { return size_; }
  std::uint8_t* data() const noexcept { return static_cast<std::uint8_t*>(p_); }
  // Free the memory if it is more than `bytes`.
  void shrink(std::size_t bytes) noexcept {
    if (size_ <= bytes) return;
    platform::free_aligned(p_);
    p_ = nullptr;
    size_ = 0;
  }

 private:
  void* p_ = nullptr;
  std::size_t size_ = 0;
};

// A thread's own. Each name says whose it is.
struct Workspace {
  Buffer head;         // the beginning of an encoded image, or all of it
  Buffer file;         // further bytes of it
  Buffer tiles;        // scratch of the tile decoder
  Buffer strip;        // decoded rows
  Buffer weights;      // resample: taps of both axes
  Buffer window;       // resample: source rows that are still needed
  Buffer columns;      // resample: rows that wait for their horizontal pass
  Buffer picture[2];   // what a pass writes and the next one reads
  Buffer canvas;       // a picture with its border
  Buffer mirror;       // a flipped picture between two passes
  Buffer filtered[2];  // what a filter wrote; two, as one filter may follow another
  Buffer filter_rows;  // rows of a filter between its vertical and its horizontal part
  Buffer tables;       // counts of levels, and what each level becomes
  Buffer kept;         // a mix: the picture that its branches begin with
  Buffer sum;          // a mix: what was added up so far
  Buffer mixed;        // a mix: the result
  Buffer shared;       // what several views of an image are made from
  Buffer warped;       // the part of a picture that a warp reads
  Buffer field;        // the nodes of an elastic deformation
};

}  // namespace headrace
