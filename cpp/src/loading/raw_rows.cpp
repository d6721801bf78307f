// SPDX-License-Identifier: Apache-2.0
// The layout is described in src/headrace/formats/raw.py.
#include "loading/raw_rows.h"

#include <algorithm>
#include <cstring>

#include "bytes.h"

namespace headrace {
namespace {

constexpr std::uint8_t kMagic[4] = {0x89, 'H', 'R', 'R'};
constexpr std::uint64_t kFixed = 16;
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint32_t kBand = 32;
constexpr std::uint64_t kHeadGuess = 1 << 10;
// Files up to this size are read at once; of larger ones the head, and then runs of the bands that are needed.
constexpr std::uint64_t kWholeFile = 128 << 10;

Status corrupt(const char* what, std::uint64_t offset) noexcept { return {Code::corrupt, what, offset, -1}; }

}  // namespace

Status RawRows::open(ByteSource& bytes, Workspace& workspace) noexcept {
  bytes_ = &bytes;
  workspace_ = &workspace;
  const std::uint64_t size = bytes.size();
  if (size < kFixed) return corrupt("the file is shorter than a header", size);
  const std::uint64_t ask = size <= kWholeFile ? size : kHeadGuess;
  if (Status s = ask < size ? bytes.read_head(ask, workspace.head, head_) : bytes.read(0, ask, workspace.head, head_);
      !s)
    return s;
  const std::uint8_t* p = head_.bytes.data();
  if (!std::equal(kMagic, kMagic + 4, p)) return corrupt("this is not a raw image", 0);
  if (p[4] != 0) return {Code::unsupported, "the file has a format version that this release does not read", 4, -1};
  if (p[5] > 2) return corrupt("the dtype is not known", 5);
  type_ = {p[6], p[5] == 0 ? 8U : 16U, p[5] == 2};
  if (type_.channels < 1 || type_.channels > kMaxChannels) return corrupt("the number of channels is not 1 to 64", 6);
  if (p[7] != 0) return corrupt("a reserved byte is not 0", 7);
  height_ = load_le<std::uint32_t>(p + 8);
  width_ = load_le<std::uint32_t>(p + 12);
  if (height_ < 1 || height_ > 65535 || width_ < 1 || width_ > 65535) return corrupt("a side is not 1 to 65535", 8);

  const std::uint64_t sum_offset = kFixed + 4 * std::uint64_t{ceil_div(height_, kBand)};
  pixels_offset_ = (sum_offset + 4 + kAlignment - 1) / kAlignment * kAlignment;
  const std::uint64_t pixel_bytes = std::uint64_t{height_} * width_ * type_.pixel_bytes();
  if (size != pixels_offset_ + pixel_bytes) return corrupt("the file does not have the size of its pixels", size);
  if (pixels_offset_ > ask) {
    if (Status s = bytes.read_head(pixels_offset_, workspace.head, head_); !s) return s;
    p = head_.bytes.data();
  }
  if (crc32c({p, sum_offset}) != load_le<std::uint32_t>(p + sum_offset))
    return corrupt("the checksum of the header does not match", sum_offset);
  for (std::uint64_t at = sum_offset + 4; at < pixels_offset_; ++at)
    if (p[at] != 0) return corrupt("the padding before the pixels is not 0", at);
  return {};
}

Status RawRows::start(Region region) noexcept {
  region_ = region;
  y_ = region.top;
  chunk_begin_ = chunk_end_ = 0;
  band_ = {};
  return {};
}

Status RawRows::next(std::uint32_t max_rows, Rows& rows) noexcept {
  if (band_.count == 0)
    if (Status s = check_band(); !s) return s;
  rows = band_;
  rows.count = std::min(max_rows, band_.count);
  band_.first = band_.row(rows.count);
  band_.count -= rows.count;
  y_ += rows.count;
  return {};
}

Status RawRows::check_band() noexcept {
  const std::uint32_t band = y_ / kBand;
  if (band < chunk_begin_ || band >= chunk_end_)
    if (Status s = read_chunk(band); !s) return s;
  const std::uint32_t top = band * kBand, bottom = std::min(height_, top + kBand);
  const std::size_t stride = std::size_t{width_} * type_.pixel_bytes();
  const Bytes bytes = chunk_.bytes.subspan((band - chunk_begin_) * kBand * stride, (bottom - top) * stride);
  if (crc32c(bytes) != load_le<std::uint32_t>(&head_.bytes[kFixed + 4 * std::size_t{band}]))
    return corrupt("the checksum of a band of rows does not match", pixels_offset_ + std::uint64_t{top} * stride);
  band_.stride = static_cast<std::ptrdiff_t>(stride);
  band_.count = std::min(bottom, region_.top + region_.height) - y_;
  band_.first = bytes.data() + (y_ - top) * stride + std::size_t{region_.left} * type_.pixel_bytes();
  return {};
}

// As many bands of the region as fit, from this one on; at least one.
Status RawRows::read_chunk(std::uint32_t band) noexcept {
  const std::size_t stride = std::size_t{width_} * type_.pixel_bytes();
  const std::uint32_t last = (region_.top + region_.height - 1) / kBand;
  const auto fit = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, bytes_->chunk() / (kBand * stride)));
  chunk_begin_ = band;
  chunk_end_ = last - band < fit ? last + 1 : band + fit;
  const std::uint64_t offset = pixels_offset_ + std::uint64_t{band} * kBand * stride;
  const std::size_t n = (std::min(height_, chunk_end_ * kBand) - band * kBand) * stride;
  if (head_.bytes.size() != bytes_->size()) return bytes_->read(offset, n, workspace_->file, chunk_);
  chunk_.bytes = head_.bytes.subspan(offset, n);
  return {};
}

}  // namespace headrace
