// SPDX-License-Identifier: Apache-2.0
// Heap buffers of exactly the promised size, so that the sanitizers see the first byte read or written beyond it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "headrace/image.h"

namespace headrace::fuzz {

// A broken promise ends the run like a sanitizer finding does.
[[noreturn]] inline void fail(const char* promise, const char* target) {
  std::fprintf(stderr, "broken promise: %s (target %s)\n", promise, target);
  std::abort();
}

inline void require(bool kept, const char* promise, const char* target) {
  if (!kept) fail(promise, target);
}

// Not a std::vector: its capacity would hide reads beyond its size.
class Heap {
 public:
  explicit Heap(std::size_t n_bytes) : bytes_(new std::uint8_t[n_bytes]), n_bytes_(n_bytes) {}
  explicit Heap(Bytes source) : Heap(source.size()) {
    if (!source.empty()) std::memcpy(data(), source.data(), source.size());
  }

  std::uint8_t* data() const { return bytes_.get(); }
  std::size_t size() const { return n_bytes_; }
  Bytes bytes() const { return {bytes_.get(), n_bytes_}; }

 private:
  std::unique_ptr<std::uint8_t[]> bytes_;
  std::size_t n_bytes_;
};

inline bool same(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// Rows for a decoder's output: `gap` bytes apart, upside down if `flipped`, filled with `poison` so that an unwritten
// sample and a written gap both show.
class Canvas {
 public:
  Canvas(std::size_t rows, std::size_t row_bytes, std::size_t gap, bool flipped, std::uint8_t poison)
      : heap_((rows - 1) * (row_bytes + gap) + row_bytes),
        rows_(rows),
        row_bytes_(row_bytes),
        pitch_(row_bytes + gap),
        flipped_(flipped),
        poison_(poison) {
    std::memset(heap_.data(), poison, heap_.size());
  }

  std::uint8_t* origin() const { return heap_.data() + (flipped_ ? (rows_ - 1) * pitch_ : 0); }
  std::ptrdiff_t row_stride() const {
    return flipped_ ? -static_cast<std::ptrdiff_t>(pitch_) : static_cast<std::ptrdiff_t>(pitch_);
  }
  Bytes row(std::size_t y) const { return {heap_.data() + (flipped_ ? rows_ - 1 - y : y) * pitch_, row_bytes_}; }
  std::size_t rows() const { return rows_; }
  std::size_t row_bytes() const { return row_bytes_; }

  bool gaps_untouched() const {
    for (std::size_t y = 0; y + 1 < rows_; ++y)
      for (std::size_t i = y * pitch_ + row_bytes_; i < (y + 1) * pitch_; ++i)
        if (heap_.data()[i] != poison_) return false;
    return true;
  }

 private:
  Heap heap_;
  std::size_t rows_, row_bytes_, pitch_;
  bool flipped_;
  std::uint8_t poison_;
};

// `part` holds the same pixels as `whole` from row `top` and byte `left` on.
inline bool is_crop(const Canvas& part, const Canvas& whole, std::size_t top, std::size_t left) {
  for (std::size_t y = 0; y < part.rows(); ++y)
    if (!same(part.row(y), whole.row(top + y).subspan(left, part.row_bytes()))) return false;
  return true;
}

}  // namespace headrace::fuzz
