// SPDX-License-Identifier: Apache-2.0
// The seven passes of an interlaced PNG (PNG specification, section 8), each an image of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "png/header.h"
#include "transform/workspace.h"

namespace headrace {

class Adam7 {
 public:
  // Bytes of all passes with their filters. The header's sides are such that this does not overflow.
  static std::uint64_t filtered_bytes(const PngHeader& header) noexcept;

  // Unfilter all passes from that many bytes.
  Status open(const PngHeader& header, const std::uint8_t* filtered) noexcept;
  // Columns [left, left + width) of a row. Samples of less than 8 bits get a byte each.
  void read_row(std::uint32_t y, std::uint32_t left, std::uint32_t width, std::uint8_t* out) const noexcept;
  // Free memory beyond `n_bytes`.
  void shrink(std::size_t n_bytes) noexcept { unfiltered_.shrink(n_bytes); }

 private:
  struct Pass {
    std::size_t offset = 0;  // of its first row in unfiltered_
    std::size_t row_bytes = 0;
  };

  std::uint32_t pixel_bits_ = 0;
  std::array<Pass, 7> passes_;
  Buffer unfiltered_;
};

}  // namespace headrace
