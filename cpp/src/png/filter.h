// SPDX-License-Identifier: Apache-2.0
// Choose and apply the filter of a PNG row (PNG specification, section 9).
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// One row. Input and output do not overlap.
struct FilterRow {
  const std::uint8_t* row;    // as PNG stores it: samples of 16 bits are big-endian
  const std::uint8_t* above;  // zeros for the first row of an image
  std::size_t n_bytes;        // of a row; a multiple of pixel_bytes
  std::uint32_t pixel_bytes;  // 1, 2, 3, 4, 6 or 8
  std::uint8_t* scratch;      // 4 * n_bytes
  std::uint8_t* out;          // 1 + n_bytes: the filter and the filtered row
};

}  // namespace headrace
