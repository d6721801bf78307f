// SPDX-License-Identifier: Apache-2.0
// The last step: interleaved rows into the batch, with flips, layout, dtype and normalisation in one pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "headrace/image.h"
#include "transform/rows.h"

namespace headrace {

enum class DType : std::uint8_t { uint8, uint16, int16, float16, float32 };
enum class Layout : std::uint8_t { chw, hwc };

inline constexpr std::uint32_t dtype_bytes(DType dtype) noexcept {
  return dtype == DType::uint8 ? 1 : dtype == DType::float32 ? 4 : 2;
}

// out = value * scale + shift for floats, value in levels; the product and the sum are rounded apart, so that all
// targets agree. Integers of another depth are scaled as torchvision does: 8 to 16 bits by 257, 16 to 8 by a shift.
struct Finish {
  DType dtype = DType::uint8;
  Layout layout = Layout::chw;
  std::uint32_t channels = 0;  // that come out: those of the rows; 3 of 1 (repeated); 3 of 4 (the last dropped)
  std::array<float, kMaxChannels> scale{};
  std::array<float, kMaxChannels> shift{};
};

// Rows [y, y + rows.count) of an image of height x width, before flips, into `out`, which is dense in its layout.
struct FinishRows {
  const Finish* finish;
  PixelType type;
  Rows rows;
  std::uint32_t y = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  bool flip_rows = false;
  bool flip_columns = false;
  std::uint8_t* out;
};

void finish_rows(const FinishRows& job) noexcept;

}  // namespace headrace
