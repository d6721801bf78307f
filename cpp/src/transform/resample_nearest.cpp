// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "transform/resample_pieces.h"

namespace headrace {
namespace {

template <std::size_t kBytes>
void copy_pixels(const std::uint8_t* from, const std::uint32_t* sources, std::uint32_t count,
                 std::uint8_t* to) noexcept {
  for (std::uint32_t x = 0; x < count; ++x, to += kBytes) std::memcpy(to, from + sources[x] * kBytes, kBytes);
}

void copy_nearest(const std::uint8_t* from, std::size_t pixel_bytes, const std::uint32_t* sources, std::uint32_t count,
                  std::uint8_t* to) noexcept {
  switch (pixel_bytes) {
    case 1:
      return copy_pixels<1>(from, sources, count, to);
    case 2:
      return copy_pixels<2>(from, sources, count, to);
    case 3:
      return copy_pixels<3>(from, sources, count, to);
    case 4:
      return copy_pixels<4>(from, sources, count, to);
    case 6:
      return copy_pixels<6>(from, sources, count, to);
    case 8:
      return copy_pixels<8>(from, sources, count, to);
    default:
      for (std::uint32_t x = 0; x < count; ++x, to += pixel_bytes)
        std::memcpy(to, from + sources[x] * pixel_bytes, pixel_bytes);
  }
}

}  // namespace

Status resample_nearest(const Resample& job, RowSource& source, std::uint8_t* out, std::ptrdiff_t row_stride,
                        Workspace& workspace) noexcept {
  std::uint32_t *rows = nullptr, *columns = nullptr;
  if (!lay_out_in(workspace.weights, [&](Pieces& pieces) {
        rows = pieces.take<std::uint32_t>(job.window.height);
        columns = pieces.take<std::uint32_t>(job.window.width);
      }))
    return kNoMemoryToResize;
  make_nearest(rows_of(job), rows);
  make_nearest(columns_of(job), columns);
  const std::uint32_t height = needed_region(job).height, pixel_bytes = job.type.pixel_bytes();
  std::uint32_t given_begin = 0;
  Rows given;
  for (std::uint32_t y = 0; y < job.window.height; ++y, out += row_stride) {
    if (y > 0 && rows[y] == rows[y - 1]) {
      std::memcpy(out, out - row_stride, std::size_t{job.window.width} * pixel_bytes);
      continue;
    }
    while (given_begin + given.count <= rows[y]) {
      given_begin += given.count;
      const Status status = source.next(height - given_begin, given);
      if (!status) return status;
    }
    copy_nearest(given.row(rows[y] - given_begin), pixel_bytes, columns, job.window.width, out);
  }
  return {};
}

}  // namespace headrace
