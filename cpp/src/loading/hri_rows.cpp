// SPDX-License-Identifier: Apache-2.0
#include "loading/hri_rows.h"

#include <algorithm>
#include <cstring>

#include "bytes.h"

namespace headrace {
namespace {

// Files up to this size are read at once; of larger ones the head, and then runs of the tiles that are needed.
constexpr std::uint64_t kWholeFile = 128 << 10;
constexpr std::uint64_t kHeadGuess = 16 << 10;

}  // namespace

Status HriRows::open(ByteSource& bytes, Workspace& workspace) noexcept {
  bytes_ = &bytes;
  workspace_ = &workspace;
  const std::uint64_t size = bytes.size();
  std::uint64_t ask = size <= kWholeFile ? size : kHeadGuess;
  if (Status s = ask < size ? bytes.read_head(ask, workspace.head, head_) : bytes.read(0, ask, workspace.head, head_);
      !s)
    return s;
  const std::uint64_t claimed = claimed_head_bytes(head_.bytes);
  if (claimed > ask && claimed <= size)
    if (Status s = bytes.read_head(claimed, workspace.head, head_); !s) return s;
  if (Status s = parse_header(head_.bytes, size, header_); !s) return s;
  values_.reset();
  if (header_.rank_count != 0) {
    values_ = rank_values(header_);
    if (!values_) return {Code::no_memory, "no memory for the list of ranks", 0, -1};
  }
  return {};
}

Status HriRows::start(Region region) noexcept {
  kernels_ = &kernels();
  region_ = region;
  x_begin_ = region.left / header_.tile_width;
  x_end_ = (region.left + region.width - 1) / header_.tile_width + 1;
  y_begin_ = y_ = region.top / kTileHeight;
  y_end_ = (region.top + region.height - 1) / kTileHeight + 1;
  std::uint64_t offset = header_.tiles_offset;
  const std::uint8_t* length = header_.tile_lengths.data();
  const std::uint64_t skipped = std::uint64_t{y_} * header_.tiles_x;
  for (std::uint64_t tile = 0; tile < skipped; ++tile, length += 4) offset += load_le<std::uint32_t>(length);
  for (std::uint32_t y = y_; y < y_end_; ++y) {
    for (std::uint32_t x = 0; x < header_.tiles_x; ++x, length += 4) {
      if (x == x_begin_) begins_[y] = offset;
      offset += load_le<std::uint32_t>(length);
      if (x + 1 == x_end_) ends_[y] = offset;
    }
  }
  chunk_ = head_;
  chunk_offset_ = 0;
  chunk_y_end_ = head_.bytes.size() == bytes_->size() ? y_end_ : y_;
  strip_ = {};

  const std::size_t had = workspace_->tiles.size();
  const std::size_t wanted = kernels_->decode_scratch_bytes(header_);
  std::uint8_t* scratch = workspace_->tiles.reserve(wanted);
  const std::size_t strip_bytes = std::size_t{region.width} * header_.pixel_bytes() * kTileHeight;
  if (!scratch || !workspace_->strip.reserve(strip_bytes)) return {Code::no_memory, "no memory to decode tiles", 0, -1};
  if (workspace_->tiles.size() != had) std::memset(scratch, 0, workspace_->tiles.size());
  return {};
}

Status HriRows::next(std::uint32_t max_rows, Rows& rows) noexcept {
  if (strip_.count == 0)
    if (Status s = decode_strip(); !s) return s;
  rows = strip_;
  rows.count = std::min(max_rows, strip_.count);
  strip_.first = strip_.row(rows.count);
  strip_.count -= rows.count;
  return {};
}

Status HriRows::decode_strip() noexcept {
  if (y_ >= chunk_y_end_)
    if (Status s = read_chunk(); !s) return s;
  const std::uint32_t top = std::max(region_.top, y_ * kTileHeight);
  const std::uint32_t bottom = std::min(region_.top + region_.height, (y_ + 1) * kTileHeight);
  DecodeTiles job{};
  job.header = &header_;
  job.file_end = chunk_.readable_end;
  job.region = {top, region_.left, bottom - top, region_.width};
  job.out = workspace_->strip.reserve(0);
  job.row_stride = static_cast<std::ptrdiff_t>(std::size_t{region_.width} * header_.pixel_bytes());
  job.values = values_.get();
  job.scratch = workspace_->tiles.reserve(0);
  job.tile_y = y_;
  job.end = chunk_.bytes.data() + (begins_[y_] - chunk_offset_);
  for (job.tile_x = x_begin_; job.tile_x < x_end_; job.tile_x += job.count) {
    job.first = job.end;
    job.count = std::min(x_end_ - job.tile_x, kGroupColumns / header_.tile_width);
    const std::uint64_t offset = chunk_offset_ + static_cast<std::uint64_t>(job.first - chunk_.bytes.data());
    if (Status s = decode_run(*kernels_, job, offset); !s) return s;
  }
  strip_ = {job.out, job.row_stride, job.region.height};
  ++y_;
  return {};
}

// The runs of as many rows of tiles as fit; at least one. What lies between two runs is read along.
Status HriRows::read_chunk() noexcept {
  std::uint32_t y = y_ + 1;
  const std::uint64_t max_bytes = bytes_->chunk();
  while (y < y_end_ && ends_[y] - begins_[y_] <= max_bytes) ++y;
  chunk_offset_ = begins_[y_];
  chunk_y_end_ = y;
  return bytes_->read(chunk_offset_, ends_[y - 1] - chunk_offset_, workspace_->file, chunk_);
}

}  // namespace headrace
