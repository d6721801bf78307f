// SPDX-License-Identifier: Apache-2.0
#include "png/rows.h"

#include <algorithm>
#include <cstring>

#include "kernels.h"

namespace headrace {
namespace {

constexpr std::size_t kStripBytes = 64 * 1024;  // stays in the first two caches until it is delivered
constexpr std::uint32_t kMinStripRows = 8;      // bands of rows are unfiltered together
constexpr std::uint32_t kMaxStripRows = 64;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxKept = std::size_t{64} << 20;  // bytes of a buffer that are kept for the next image

constexpr Status kNoMemory = {Code::no_memory, "no memory to decode a PNG", 0, -1};

}  // namespace

PixelType PngRows::pixel_type(const PngHeader& header, PngColors colors) noexcept {
  std::uint32_t channels = header.channels(colors == PngColors::indices);
  if (header.kind == PngKind::palette && colors == PngColors::opaque) channels = 3;
  return {channels, header.depth == 16 ? 16U : 8U, false};
}

Status PngRows::open(const PngHeader& header, const PngRequest& request) noexcept {
  header_ = header;
  request_ = request;
  ready_ = {};
  inflater_.shrink(kMaxKept);
  passes_.shrink(kMaxKept);
  const Region& region = request.region;
  if (region.height == 0 || region.width == 0 || region.top >= header.height || region.left >= header.width ||
      region.height > header.height - region.top || region.width > header.width - region.left)
    return {Code::bad_argument, "the region must lie within the PNG", 0, -1};

  // Sides are below 2^31 and a pixel has at most 8 bytes: no product of two of these overflows 64 bits, except that of
  // all three, which max_pixels of the caller bounds and the check here repeats.
  const std::uint32_t bits = header.pixel_bits();
  filtered_stride_ = (std::uint64_t{header.width} * bits + 7) / 8 + 1;
  if (filtered_stride_ > (std::uint64_t{1} << 48) / header.height)
    return {Code::too_large, "the PNG has more pixels than can be decoded", 0, -1};
  const std::uint32_t bottom = region.top + region.height;
  const std::uint64_t needed = header.interlaced ? Adam7::filtered_bytes(header) : filtered_stride_ * bottom;
  if (Status s = inflater_.inflate(header, needed, filtered_); !s) return s;

  const PixelType type = pixel_type(header, request.colors);
  samples_.open(header, request.colors, region.width);
  const std::size_t pixel_bytes = std::max(1U, bits / 8);
  n_bytes_ = (std::uint64_t{region.left + region.width} * bits + 7) / 8;
  const std::size_t row_bytes = header.interlaced ? std::size_t{region.width} * pixel_bytes : n_bytes_;
  stride_ = (row_bytes + kAlignment) / kAlignment * kAlignment;
  strip_rows_ =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(kStripBytes / stride_, kMinStripRows, kMaxStripRows));
  strip_rows_ = std::min(strip_rows_, bottom);
  if (strip_.reserve((std::size_t{strip_rows_} + 1) * stride_) == nullptr) return kNoMemory;
  if (samples_.converts() && converted_.reserve(std::size_t{strip_rows_} * region.width * type.pixel_bytes() +
                                                PngSamples::kOverwrite) == nullptr)
    return kNoMemory;
  rows_left_ = region.height;
  if (header.interlaced) return passes_.open(header, filtered_);
  return skip_to_region();
}

// Start at the last row at or above the region that does not refer to the row above it.
Status PngRows::skip_to_region() noexcept {
  const Region& region = request_.region;
  at_row_ = 0;
  for (std::uint32_t y = 0; y < region.top + region.height; ++y) {
    const std::uint8_t filter = *filtered_row(y);
    if (filter >= kPngFilters)
      return {Code::corrupt, "a PNG row must have a filter from 0 to 4", header_.data_offset, -1};
    if (y <= region.top && filter <= kPngSub) at_row_ = y;
  }
  std::memset(strip_.data(), 0, n_bytes_);
  while (at_row_ < region.top) {
    const std::uint32_t n = std::min(strip_rows_, region.top - at_row_);
    if (Status s = unfilter(strip_row(0), static_cast<std::ptrdiff_t>(stride_), n); !s) return s;
    std::memcpy(strip_.data(), strip_row(n - 1), n_bytes_);
  }
  return {};
}

Status PngRows::unfilter(std::uint8_t* out, std::ptrdiff_t stride, std::uint32_t count) noexcept {
  kernels().unfilter_rows({filtered_row(at_row_), filtered_stride_, strip_.data(), out, stride, count, n_bytes_,
                           std::max(1U, header_.pixel_bits() / 8)});
  at_row_ += count;
  return {};
}

Status PngRows::make_strip() noexcept {
  const Region& region = request_.region;
  const std::uint32_t n = std::min(strip_rows_, rows_left_);
  std::size_t lead = 0;
  if (header_.interlaced) {
    const std::uint32_t y = region.top + region.height - rows_left_;
    for (std::uint32_t i = 0; i < n; ++i) passes_.read_row(y + i, region.left, region.width, strip_row(i));
  } else {
    if (Status s = unfilter(strip_row(0), static_cast<std::ptrdiff_t>(stride_), n); !s) return s;
    std::memcpy(strip_.data(), strip_row(n - 1), n_bytes_);
    lead = std::size_t{region.left} * header_.pixel_bits() / 8;
  }
  rows_left_ -= n;
  if (!samples_.converts()) {
    ready_ = {strip_row(0) + lead, static_cast<std::ptrdiff_t>(stride_), n};
    return {};
  }
  const std::size_t row_bytes = std::size_t{region.width} * pixel_type(header_, request_.colors).pixel_bytes();
  // An interlaced image has a byte for each sample of less than a byte.
  const bool packed = header_.depth < 8 && !header_.interlaced;
  for (std::uint32_t i = 0; i < n; ++i) {
    std::uint8_t* out = converted_.data() + i * row_bytes;
    if (!samples_.convert(packed ? strip_row(i) : strip_row(i) + lead, packed, packed ? region.left : 0, out))
      return {Code::corrupt, "a pixel of a PNG has an index that its palette does not have", header_.data_offset, -1};
  }
  ready_ = {converted_.data(), static_cast<std::ptrdiff_t>(row_bytes), n};
  return {};
}

Status PngRows::next(std::uint32_t max_rows, Rows& rows) noexcept {
  if (ready_.count == 0) {
    if (rows_left_ == 0 || max_rows == 0)
      return {Code::bad_argument, "no PNG is open, or zero rows were requested", 0, -1};
    if (Status s = make_strip(); !s) return s;
  }
  rows = ready_;
  rows.count = std::min(max_rows, ready_.count);
  ready_.first = ready_.row(rows.count);
  ready_.count -= rows.count;
  return {};
}

Status PngRows::read_all(std::uint8_t* out, std::ptrdiff_t stride) noexcept {
  const Region& region = request_.region;
  if (!header_.interlaced && !samples_.converts() && region.left == 0) {
    rows_left_ = 0;
    return unfilter(out, stride, region.height);
  }
  const std::size_t row_bytes = std::size_t{region.width} * pixel_type(header_, request_.colors).pixel_bytes();
  for (std::uint32_t y = 0; y < region.height;) {
    Rows rows;
    if (Status s = next(region.height - y, rows); !s) return s;
    for (std::uint32_t i = 0; i < rows.count; ++i, ++y)
      std::memcpy(out + static_cast<std::ptrdiff_t>(y) * stride, rows.row(i), row_bytes);
  }
  return {};
}

}  // namespace headrace
