// SPDX-License-Identifier: Apache-2.0
// Pixels that come a few rows at a time, top to bottom: a crop is decoded, resized and written while it is in cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/status.h"

namespace headrace {

// Interleaved samples in native byte order.
struct PixelType {
  std::uint32_t channels = 0;
  std::uint32_t depth = 0;  // 8 or 16
  bool is_signed = false;

  std::uint32_t sample_bytes() const noexcept { return depth / 8; }
  std::uint32_t pixel_bytes() const noexcept { return channels * sample_bytes(); }
  bool operator==(const PixelType&) const = default;
};

struct Rows {
  const std::uint8_t* first = nullptr;
  std::ptrdiff_t stride = 0;
  std::uint32_t count = 0;

  const std::uint8_t* row(std::uint32_t y) const noexcept { return first + static_cast<std::ptrdiff_t>(y) * stride; }
};

class RowSource {
 public:
  virtual ~RowSource() = default;
  // The next rows, at least one and at most `most`; valid until the next call. Never asked for more than there are.
  virtual Status next(std::uint32_t max_rows, Rows& rows) noexcept = 0;
};

}  // namespace headrace
