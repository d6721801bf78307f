// SPDX-License-Identifier: Apache-2.0
// Undo the filters of PNG rows (PNG specification, section 9).
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

enum PngFilter : std::uint8_t { kPngNone, kPngSub, kPngUp, kPngAverage, kPngPaeth };
inline constexpr unsigned kPngFilters = 5;

// Rows one below the other. Each starts with its filter, which the caller has checked to be below kPngFilters. Bytes of
// a row beyond `n_bytes` are neither read nor written. Input and output do not overlap.
struct UnfilterRows {
  const std::uint8_t* filtered;  // the filter of the first row; n_bytes follow it
  std::size_t filtered_stride;
  const std::uint8_t* above;  // the row above the first, without filter; zeros for the first row of an image
  std::uint8_t* out;
  std::ptrdiff_t out_stride;
  std::uint32_t count;
  std::size_t n_bytes;        // of a row; a multiple of pixel_bytes
  std::uint32_t pixel_bytes;  // 1, 2, 3, 4, 6 or 8; 1 for pixels of less than a byte
};

}  // namespace headrace
