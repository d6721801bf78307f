// SPDX-License-Identifier: Apache-2.0
// Whole images: whether ranks pay, who encodes which tiles, and how the pieces become a file.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "headrace/codec.h"
#include "kernels.h"
#include "workers.h"

namespace headrace {

struct Encoded::Parts {
  std::vector<std::uint8_t> head;  // all before the tiles
  std::vector<std::vector<std::uint8_t>> tile_rows;
  std::uint64_t size = 0;
};

Encoded::Encoded() noexcept : parts_(new (std::nothrow) Parts) {}
Encoded::~Encoded() = default;
Encoded::Encoded(Encoded&&) noexcept = default;
Encoded& Encoded::operator=(Encoded&&) noexcept = default;

std::uint64_t Encoded::size() const noexcept { return parts_ ? parts_->size : 0; }

void Encoded::write(std::uint8_t* out) const noexcept {
  const auto append = [&out](const std::vector<std::uint8_t>& v) {
    if (!v.empty()) std::memcpy(out, v.data(), v.size());
    out += v.size();
  };
  append(parts_->head);
  for (const auto& row : parts_->tile_rows) append(row);
}

namespace {

// 128 columns: wider tiles save a few thousandths of the bytes, narrower ones let a crop decode less.
constexpr std::uint32_t kTileWidthLog2 = 7;
static_assert(kTileWidthLog2 >= kMinTileWidthLog2 && kTileWidthLog2 <= kMaxTileWidthLog2);

// Which values an image uses, as long as that can still matter.
class Levels {
 public:
  explicit Levels(const Pixels& px) : used_(std::size_t{1} << px.depth, 0) {
    // Ranks pay only where gaps make up a third of the range or more.
    const std::size_t limit = used_.size() * 2 / 3;
    const std::uint16_t flip = px.is_signed ? 0x8000 : 0;
    for (std::uint32_t y = 0; y < px.height; ++y) {
      for (std::uint32_t c = 0; c < px.channels; ++c) {
        const std::uint8_t* p = px.origin + static_cast<std::ptrdiff_t>(y) * px.row_stride +
                                static_cast<std::ptrdiff_t>(c) * px.channel_stride;
        if (px.depth == 8)
          for (std::uint32_t x = 0; x < px.width; ++x, p += px.column_stride) used_[*p] = 1;
        else
          for (std::uint32_t x = 0; x < px.width; ++x, p += px.column_stride)
            used_[load_le<std::uint16_t>(p) ^ flip] = 1;
      }
      // The scan of a photograph ends after a few rows.
      if ((y & (y - 1)) == 0 || y % 64 == 0) {
        count_ = static_cast<std::size_t>(std::count(used_.begin(), used_.end(), std::uint8_t{1}));
        if (count_ > limit) return;
      }
    }
    count_ = static_cast<std::size_t>(std::count(used_.begin(), used_.end(), std::uint8_t{1}));
    first_ = static_cast<std::size_t>(std::find(used_.begin(), used_.end(), std::uint8_t{1}) - used_.begin());
    last_ = used_.size() - 1 -
            static_cast<std::size_t>(std::find(used_.rbegin(), used_.rend(), std::uint8_t{1}) - used_.rbegin());
    const double samples = static_cast<double>(px.width) * px.height * px.channels;
    const double gaps = static_cast<double>(last_ - first_ + 1) / static_cast<double>(count_);
    pay_ = count_ >= 2 && gaps >= 1.5 &&
           0.5 * samples * std::log2(gaps) > 16.0 * static_cast<double>(std::min(list_bytes(px.depth), bitmap_bytes()));
    // Sixteen bits that need only eight are cheaper in every way.
    if (px.depth == 16 && count_ >= 2 && count_ <= 256 && samples >= 4 * static_cast<double>(count_)) pay_ = true;
  }

  bool pay() const { return pay_; }
  std::size_t count() const { return count_; }

  std::vector<std::uint8_t> section(std::uint32_t depth) const {
    std::vector<std::uint8_t> s;
    if (list_bytes(depth) <= bitmap_bytes()) {
      s.resize(list_bytes(depth));
      store_le(&s[1], static_cast<std::uint32_t>(count_));
      std::size_t at = 5;
      for (std::size_t v = first_; v <= last_; ++v) {
        if (!used_[v]) continue;
        s[at] = static_cast<std::uint8_t>(v);
        if (depth == 16) s[at + 1] = static_cast<std::uint8_t>(v >> 8);
        at += depth / 8;
      }
    } else {
      s.resize(bitmap_bytes());
      s[0] = 1;
      store_le(&s[1], static_cast<std::uint16_t>(first_));
      for (std::size_t v = first_; v <= last_; ++v)
        if (used_[v]) s[3 + (v - first_) / 8] |= static_cast<std::uint8_t>(1U << ((v - first_) % 8));
    }
    return s;
  }

  std::vector<std::uint16_t> ranks() const {
    std::vector<std::uint16_t> r(used_.size(), 0);
    std::uint16_t next = 0;
    for (std::size_t v = first_; v <= last_; ++v)
      if (used_[v]) r[v] = next++;
    return r;
  }

 private:
  std::size_t list_bytes(std::uint32_t depth) const { return 5 + count_ * (depth / 8); }
  std::size_t bitmap_bytes() const { return 3 + (last_ - first_ + 8) / 8; }

  std::vector<std::uint8_t> used_;
  std::size_t count_ = 0, first_ = 0, last_ = 0;
  bool pay_ = false;
};

Status check(const Pixels& px) noexcept {
  if (px.height == 0 || px.width == 0) return {Code::unsupported, "the image has no pixels", 0, -1};
  if (px.height > 65535 || px.width > 65535) return {Code::unsupported, "a side of the image exceeds 65535", 0, -1};
  if (px.channels < 1 || px.channels > kMaxChannels)
    return {Code::unsupported, "the image must have 1 to 64 channels", 0, -1};
  if (px.depth != 8 && px.depth != 16) return {Code::unsupported, "samples must have 8 or 16 bits", 0, -1};
  if (px.is_signed && px.depth != 16) return {Code::unsupported, "signed samples need 16 bits", 0, -1};
  return {};
}

Status encode_checked(const Pixels& px, Mode mode, Bytes metadata, unsigned threads, Encoded::Parts& parts) {
  const std::uint32_t tile_width = 1U << kTileWidthLog2;
  const std::uint32_t tiles_x = ceil_div(px.width, tile_width), tiles_y = ceil_div(px.height, kTileHeight);
  std::vector<std::uint8_t> rank_section;
  std::vector<std::uint16_t> ranks;
  std::uint32_t coded_bits = px.depth;
  {
    const Levels levels(px);
    if (levels.pay()) {
      rank_section = levels.section(px.depth);
      ranks = levels.ranks();
      if (levels.count() <= 256) coded_bits = 8;
    }
  }

  const std::size_t index_at = kFixedHeaderBytes + metadata.size() + rank_section.size();
  const std::size_t tiles = std::size_t{tiles_x} * tiles_y;
  parts.head.assign(index_at + 8 * tiles + 4, 0);
  std::uint8_t* head = parts.head.data();
  const std::uint8_t fixed[13] = {0x89,
                                  'H',
                                  'R',
                                  'I',
                                  kVersionByte,
                                  static_cast<std::uint8_t>((mode == Mode::dense ? 1 : 0) | (px.is_signed ? 2 : 0)),
                                  static_cast<std::uint8_t>(px.depth),
                                  static_cast<std::uint8_t>(px.channels),
                                  static_cast<std::uint8_t>(px.width),
                                  static_cast<std::uint8_t>(px.width >> 8),
                                  static_cast<std::uint8_t>(px.height),
                                  static_cast<std::uint8_t>(px.height >> 8),
                                  kTileWidthLog2};
  std::memcpy(head, fixed, sizeof fixed);
  store_le(head + 16, static_cast<std::uint32_t>(metadata.size()));
  store_le(head + 20, static_cast<std::uint32_t>(rank_section.size()));
  if (!metadata.empty()) std::memcpy(head + kFixedHeaderBytes, metadata.data(), metadata.size());
  if (!rank_section.empty())
    std::memcpy(head + kFixedHeaderBytes + metadata.size(), rank_section.data(), rank_section.size());

  parts.tile_rows.assign(tiles_y, {});
  const Kernels& k = kernels();
  const std::size_t scratch_bytes = k.encode_scratch_bytes(px.channels, coded_bits);
  const std::size_t bound = encode_tile_bound(tile_width, px.channels, coded_bits);
  std::atomic<std::uint32_t> next{0};
  FirstFailure failure;
  run_workers(useful_threads(threads, std::uint64_t{px.width} * px.height * px.channels * 4), [&](unsigned) noexcept {
    const Scratch scratch((scratch_bytes + 63) / 64 * 64 + bound);
    if (!scratch) return failure.set({Code::no_memory, "no memory to encode a tile", 0, -1});
    std::uint8_t* const out = scratch.get() + (scratch_bytes + 63) / 64 * 64;
    for (std::uint32_t y = next++; y < tiles_y && !failure; y = next++) {
      try {
        std::vector<std::uint8_t>& row = parts.tile_rows[y];
        row.reserve(std::size_t{px.width} * kTileHeight * px.channels * (coded_bits / 8) / 2);
        for (std::uint32_t x = 0; x < tiles_x; ++x) {
          const EncodeTile job{&px,
                               mode,
                               x * tile_width,
                               y * kTileHeight,
                               std::min(tile_width, px.width - x * tile_width),
                               std::min(kTileHeight, px.height - y * kTileHeight),
                               coded_bits,
                               ranks.empty() ? nullptr : ranks.data(),
                               scratch.get(),
                               out};
          const std::size_t n = k.encode_tile(job);
          const std::size_t tile = std::size_t{y} * tiles_x + x;
          store_le(head + index_at + 4 * tile, static_cast<std::uint32_t>(n));
          store_le(head + index_at + 4 * (tiles + tile), crc32c({out, n}));
          row.insert(row.end(), out, out + n);
        }
      } catch (const std::bad_alloc&) {
        failure.set({Code::no_memory, "no memory for the encoded image", 0, -1});
      }
    }
  });
  if (failure) return failure.get();
  store_le(head + parts.head.size() - 4, crc32c({head, parts.head.size() - 4}));
  parts.size = parts.head.size();
  for (const auto& row : parts.tile_rows) parts.size += row.size();
  return {};
}

}  // namespace

Status encode(const Pixels& pixels, Mode mode, Bytes metadata, unsigned threads, Encoded& encoded) noexcept {
  if (Status s = check(pixels); !s) return s;
  if (Status s = check_metadata(metadata); !s) return {Code::bad_argument, s.what, s.offset, -1};
  if (metadata.size() > 0xFFFFFFFF) return {Code::bad_argument, "the metadata exceeds 4 GiB", 0, -1};
  encoded = Encoded();
  try {
    if (!encoded.valid()) throw std::bad_alloc();
    return encode_checked(pixels, mode, metadata, threads, encoded.parts());
  } catch (const std::bad_alloc&) {
    return {Code::no_memory, "no memory for the encoded image", 0, -1};
  }
}

}  // namespace headrace
