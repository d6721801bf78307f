// SPDX-License-Identifier: Apache-2.0
// Rows of an .hri image, a row of tiles at a time: only the tiles that a region touches are read and decoded.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "loading/byte_source.h"
#include "runs.h"
#include "transform/rows.h"

namespace headrace {

class HriRows final : public RowSource {
 public:
  // Read and check the head. `bytes` and `workspace` must outlive the rows.
  Status open(ByteSource& bytes, Workspace& workspace) noexcept;
  const ImageHeader& header() const noexcept { return header_; }
  // Begin a region, which lies within the image.
  Status start(Region region) noexcept;
  Status next(std::uint32_t max_rows, Rows& rows) noexcept override;

 private:
  Status decode_strip() noexcept;
  Status read_chunk() noexcept;

  static constexpr std::uint32_t kMaxTileRows = 65536 / kTileHeight;

  const Kernels* kernels_ = nullptr;  // of the target when the region was begun
  ByteSource* bytes_ = nullptr;
  Workspace* workspace_ = nullptr;
  ImageHeader header_;
  Extent head_;
  std::unique_ptr<std::uint16_t[]> values_;
  Region region_;
  std::uint32_t x_begin_ = 0, x_end_ = 0;                  // columns of tiles
  std::uint32_t y_ = 0, y_begin_ = 0, y_end_ = 0;          // rows of tiles; y_ is the next one
  std::array<std::uint64_t, kMaxTileRows> begins_, ends_;  // of the run in each row of tiles, in bytes of the file
  Extent chunk_;
  std::uint64_t chunk_offset_ = 0;
  std::uint32_t chunk_y_end_ = 0;  // the chunk holds the runs of rows of tiles before this one
  Rows strip_;                     // what is left of the strip that was decoded last
};

}  // namespace headrace
