// SPDX-License-Identifier: Apache-2.0
#include "png/adam7.h"

#include <cstring>

#include "kernels.h"

namespace headrace {
namespace {

struct Grid {
  std::uint32_t left, top, columns, rows;  // the first pixel of a pass, and the distances to the next ones

  std::uint32_t width(std::uint32_t image) const noexcept {
    return image > left ? (image - left - 1) / columns + 1 : 0;
  }
  std::uint32_t height(std::uint32_t image) const noexcept { return image > top ? (image - top - 1) / rows + 1 : 0; }
};

constexpr std::array<Grid, 7> kGrids = {
    {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}};

std::uint64_t row_bytes(std::uint32_t width, std::uint32_t pixel_bits) noexcept {
  return (std::uint64_t{width} * pixel_bits + 7) / 8;
}

template <std::size_t N>
void spread(const std::uint8_t* in, std::size_t from, std::size_t step, std::uint32_t count,
            std::uint8_t* out) noexcept {
  in += from * N;
  for (std::uint32_t i = 0; i < count; ++i, in += N, out += step * N) std::memcpy(out, in, N);
}

void spread_bits(const std::uint8_t* in, std::uint32_t bits, std::size_t from, std::size_t step, std::uint32_t count,
                 std::uint8_t* out) noexcept {
  const std::uint32_t mask = (1U << bits) - 1;
  for (std::uint32_t i = 0; i < count; ++i, out += step) {
    const std::size_t bit = (from + i) * bits;
    *out = static_cast<std::uint8_t>(in[bit / 8] >> (8 - bits - bit % 8) & mask);
  }
}

}  // namespace

std::uint64_t Adam7::filtered_bytes(const PngHeader& header) noexcept {
  std::uint64_t n = 0;
  for (const Grid& grid : kGrids) {
    const std::uint32_t width = grid.width(header.width);
    if (width > 0) n += (row_bytes(width, header.pixel_bits()) + 1) * grid.height(header.height);
  }
  return n;
}

Status Adam7::open(const PngHeader& header, const std::uint8_t* filtered) noexcept {
  pixel_bits_ = header.pixel_bits();
  // The first row of a pass has zeros above it. They stand before all passes; the widest row is one of the last pass,
  // or, of an image of one row, of the sixth or an earlier one, none wider than the image.
  const std::size_t widest = row_bytes(header.width, pixel_bits_);
  std::uint8_t* const zeros = unfiltered_.reserve(widest + filtered_bytes(header));
  if (zeros == nullptr) return {Code::no_memory, "no memory to decode a PNG", 0, -1};
  std::memset(zeros, 0, widest);
  std::size_t at = widest;
  for (std::size_t k = 0; k < kGrids.size(); ++k) {
    const std::uint32_t width = kGrids[k].width(header.width), height = kGrids[k].height(header.height);
    const std::size_t n_bytes = row_bytes(width, pixel_bits_);
    passes_[k] = {at, n_bytes};
    if (width == 0 || height == 0) continue;
    for (std::uint32_t y = 0; y < height; ++y)
      if (filtered[y * (n_bytes + 1)] >= kPngFilters)
        return {Code::corrupt, "a PNG row must have a filter from 0 to 4", header.data_offset, -1};
    kernels().unfilter_rows({filtered, n_bytes + 1, zeros, zeros + at, static_cast<std::ptrdiff_t>(n_bytes), height,
                             n_bytes, pixel_bits_ < 8 ? 1 : pixel_bits_ / 8});
    filtered += height * (n_bytes + 1);
    at += height * n_bytes;
  }
  return {};
}

void Adam7::read_row(std::uint32_t y, std::uint32_t left, std::uint32_t width, std::uint8_t* out) const noexcept {
  const std::uint64_t right = std::uint64_t{left} + width;
  for (std::size_t k = 0; k < kGrids.size(); ++k) {
    const Grid& grid = kGrids[k];
    if (y < grid.top || (y - grid.top) % grid.rows != 0) continue;
    // The pass has pixels in columns grid.left + i * grid.columns. Those from `from` on are at or right of `left`.
    const std::uint32_t from = left > grid.left ? (left - grid.left + grid.columns - 1) / grid.columns : 0;
    const std::uint64_t first = grid.left + std::uint64_t{from} * grid.columns;
    if (first >= right) continue;
    const auto count = static_cast<std::uint32_t>((right - first - 1) / grid.columns + 1);
    const std::uint8_t* in = unfiltered_.data() + passes_[k].offset + (y - grid.top) / grid.rows * passes_[k].row_bytes;
    const std::size_t to = first - left, step = grid.columns;
    switch (pixel_bits_) {
      case 8:
        spread<1>(in, from, step, count, out + to);
        break;
      case 16:
        spread<2>(in, from, step, count, out + to * 2);
        break;
      case 24:
        spread<3>(in, from, step, count, out + to * 3);
        break;
      case 32:
        spread<4>(in, from, step, count, out + to * 4);
        break;
      case 48:
        spread<6>(in, from, step, count, out + to * 6);
        break;
      case 64:
        spread<8>(in, from, step, count, out + to * 8);
        break;
      default:
        spread_bits(in, pixel_bits_, from, step, count, out + to);
    }
  }
}

}  // namespace headrace
