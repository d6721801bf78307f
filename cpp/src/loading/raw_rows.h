// SPDX-License-Identifier: Apache-2.0
// Rows of a raw image: nothing to decode, but every band of 32 rows is checked before a pixel of it comes out.
#pragma once

#include <cstdint>

#include "headrace/codec.h"
#include "loading/byte_source.h"
#include "transform/rows.h"

namespace headrace {

class RawRows final : public RowSource {
 public:
  Status open(ByteSource& bytes, Workspace& workspace) noexcept;
  std::uint32_t height() const noexcept { return height_; }
  std::uint32_t width() const noexcept { return width_; }
  PixelType type() const noexcept { return type_; }
  Status start(Region region) noexcept;
  Status next(std::uint32_t max_rows, Rows& rows) noexcept override;

 private:
  Status check_band() noexcept;
  Status read_chunk(std::uint32_t band) noexcept;

  ByteSource* bytes_ = nullptr;
  Workspace* workspace_ = nullptr;
  Extent head_;
  std::uint32_t height_ = 0, width_ = 0;
  PixelType type_;
  std::uint64_t pixels_offset_ = 0;
  Region region_;
  std::uint32_t y_ = 0;                            // the next row of the image
  Extent chunk_;                                   // bands of rows that were read together
  std::uint32_t chunk_begin_ = 0, chunk_end_ = 0;  // which
  Rows band_;                                      // what is left of the band that was checked last
};

}  // namespace headrace
