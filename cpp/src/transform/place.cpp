// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "headrace/image.h"
#include "transform/color.h"

namespace headrace {
namespace {

// Which sample of [0, size) stands at `at`, which may lie outside.
std::uint32_t within(std::int64_t at, std::uint32_t size, Border border) noexcept {
  const std::int64_t last = std::int64_t{size} - 1;
  if (border != Border::reflect || last == 0) return static_cast<std::uint32_t>(std::clamp<std::int64_t>(at, 0, last));
  const std::int64_t period = 2 * last, phase = ((at % period) + period) % period;
  return static_cast<std::uint32_t>(phase <= last ? phase : period - phase);
}

// The canvas's [begin, end) that shows content.
struct Shown {
  std::uint32_t begin, end;

  explicit Shown(const Axis& axis) noexcept {
    const std::int64_t canvas = axis.canvas, from = axis.offset, to = from + axis.resized;
    begin = static_cast<std::uint32_t>(std::clamp<std::int64_t>(from, 0, canvas));
    end = static_cast<std::uint32_t>(std::clamp<std::int64_t>(to, begin, canvas));
  }
  bool holds(std::uint32_t i) const noexcept { return i >= begin && i < end; }
};

// One pixel of the border, in all channels.
struct Fill {
  std::uint8_t bytes[2 * kMaxChannels];

  Fill(PixelType type, double level) noexcept {
    const double lowest = type.is_signed ? -32768 : 0;
    const double highest = type.depth == 8 ? 255 : type.is_signed ? 32767 : 65535;
    const auto value =
        static_cast<std::uint16_t>(static_cast<std::int32_t>(std::clamp(level, lowest, highest) - lowest + 0.5) +
                                   static_cast<std::int32_t>(lowest));
    for (std::uint32_t c = 0; c < type.channels; ++c) {
      if (type.depth == 8)
        bytes[c] = static_cast<std::uint8_t>(value);
      else
        std::memcpy(bytes + 2 * c, &value, 2);
    }
  }
};

}  // namespace

void place(const Picture& content, std::uint32_t row_begin, std::uint32_t column_begin, const Axis& rows,
           const Axis& columns, Border border, double fill, const Picture& canvas) noexcept {
  const std::size_t pixel = content.type.pixel_bytes();
  const Shown shown_rows(rows), shown(columns);
  const Fill filling(content.type, fill);
  const auto fill_pixels = [&](std::uint8_t* row, std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t x = begin; x < end; ++x) std::memcpy(row + x * pixel, filling.bytes, pixel);
  };
  for (std::uint32_t y = 0; y < rows.canvas; ++y) {
    std::uint8_t* const to = canvas.first + static_cast<std::ptrdiff_t>(y) * canvas.stride;
    if (border == Border::constant && !shown_rows.holds(y)) {
      fill_pixels(to, 0, columns.canvas);
      continue;
    }
    const std::uint32_t source = within(std::int64_t{y} - rows.offset, rows.resized, border) - row_begin;
    const std::uint8_t* const from = content.first + static_cast<std::ptrdiff_t>(source) * content.stride;
    const auto edge_pixels = [&](std::uint32_t begin, std::uint32_t end) {
      if (border == Border::constant) return fill_pixels(to, begin, end);
      for (std::uint32_t x = begin; x < end; ++x) {
        const std::uint32_t at = within(std::int64_t{x} - columns.offset, columns.resized, border) - column_begin;
        std::memcpy(to + x * pixel, from + at * pixel, pixel);
      }
    };
    edge_pixels(0, shown.begin);
    if (shown.begin < shown.end) {
      const auto first = static_cast<std::size_t>(std::int64_t{shown.begin} - columns.offset - column_begin);
      std::memcpy(to + shown.begin * pixel, from + first * pixel, (shown.end - shown.begin) * pixel);
    }
    edge_pixels(shown.end, columns.canvas);
  }
}

}  // namespace headrace
