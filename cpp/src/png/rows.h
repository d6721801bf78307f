// SPDX-License-Identifier: Apache-2.0
// Rows of a region of a PNG image, a strip at a time: inflated up to the last row, unfiltered up to the last column.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/codec.h"
#include "png/adam7.h"
#include "png/header.h"
#include "png/inflate.h"
#include "png/samples.h"
#include "transform/rows.h"

namespace headrace {

struct PngRequest {
  Region region;  // lies within the image
  PngColors colors = PngColors::all;
};

// One of these serves a thread for all its images: it is opened again and keeps its buffers. Rows below the region are
// not inflated, and pixels outside of it are not checked against the palette; the checksums of all chunks are.
class PngRows final : public RowSource {
 public:
  // The file of the header must live until this returns.
  Status open(const PngHeader& header, const PngRequest& request) noexcept;

  // Of the rows. Depends on header and request only.
  static PixelType pixel_type(const PngHeader& header, PngColors colors) noexcept;

  Status next(std::uint32_t max_rows, Rows& rows) noexcept override;

  // All rows, instead of `next`. Pixels that need no conversion are written by the filters themselves.
  Status read_all(std::uint8_t* out, std::ptrdiff_t stride) noexcept;

 private:
  Status skip_to_region() noexcept;
  Status unfilter(std::uint8_t* out, std::ptrdiff_t stride, std::uint32_t count) noexcept;
  Status make_strip() noexcept;
  std::uint8_t* strip_row(std::uint32_t y) noexcept { return strip_.data() + (std::size_t{y} + 1) * stride_; }
  const std::uint8_t* filtered_row(std::uint32_t y) const noexcept { return filtered_ + y * filtered_stride_; }

  PngHeader header_;
  PngRequest request_;
  PngInflater inflater_;
  PngSamples samples_;
  Adam7 passes_;  // of an interlaced image

  const std::uint8_t* filtered_ = nullptr;
  std::size_t filtered_stride_ = 0;
  std::size_t n_bytes_ = 0;      // of a row, up to the last column of the region
  std::uint32_t at_row_ = 0;     // the next row to unfilter
  std::uint32_t rows_left_ = 0;  // rows of the region that are not unfiltered yet

  // Slot 0 has the row above the strip. Slots 1 to strip_rows_ have its rows.
  Buffer strip_;
  std::size_t stride_ = 0;
  std::uint32_t strip_rows_ = 0;
  Buffer converted_;
  Rows ready_;  // rows that are not delivered yet
};

}  // namespace headrace
