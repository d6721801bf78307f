// SPDX-License-Identifier: Apache-2.0
#include "device/fetch.h"

#include <algorithm>
#include <cstring>

#include "platform/platform.h"
#include "thread_safety.h"
#include "workers.h"

namespace headrace::device {
namespace {

constexpr std::uint64_t kMaxGap = 64 << 10;    // a read that goes on over such a gap is no slower than two
constexpr std::uint64_t kGapPart = 16 << 10;   // of which nobody wants to see anything
constexpr std::uint64_t kMaxRead = 256 << 10;  // so that a tile is still in the cache when its sum is taken

// Read on until all parts are full. Uses the parts up.
bool read_parts(int file, std::span<platform::Part> parts, std::uint64_t offset) noexcept {
  while (!parts.empty()) {
    const std::int64_t got = platform::read_parts_at(file, parts, offset);
    if (got <= 0) return false;
    offset += static_cast<std::uint64_t>(got);
    auto left = static_cast<std::size_t>(got);
    for (; !parts.empty() && left >= parts[0].size; parts = parts.subspan(1)) left -= parts[0].size;
    if (!parts.empty()) parts[0] = {parts[0].memory + left, parts[0].size - left};
  }
  return true;
}

class Fetch {
 public:
  Fetch(std::span<Stored> images, const Table& tiles, std::span<std::uint8_t> payload) noexcept
      : images_(images), tiles_(tiles), payload_(payload) {}

  bool fits(std::size_t column) const noexcept {
    const std::uint64_t image = get(kTileImage, column);
    if (image >= images_.size()) return false;
    const std::uint64_t source = get(kTileSource, column), length = get(kTileLength, column), at = get(kTileAt, column);
    const Stored& own = images_[image];
    return length >= 1 && source <= own.size && length <= own.size - source && at <= payload_.size() &&
           length <= payload_.size() - at && (own.file >= 0 || at_hand(column));
  }

  // The column after those that are fetched together with this one.
  std::size_t same_image(std::size_t column) const noexcept {
    std::size_t end = column + 1;
    while (end < tiles_.columns && get(kTileImage, end) == get(kTileImage, column)) ++end;
    return end;
  }

  // Tiles of one image.
  void run(std::size_t column, std::size_t end) noexcept {
    while (column < end) {
      const std::size_t next = at_hand(column) ? copy(column) : read(column, end);
      if (next == column) return;
      for (; column < next; ++column)
        if (!check(column)) return;
    }
  }

  void fail(std::size_t column, Status status) noexcept {
    const MutexLock lock(mutex_);
    if (failed_.status || column < failed_.column) failed_ = {status, column, 0};
  }
  const Fetched& failed() const noexcept { return failed_; }

 private:
  std::uint64_t get(TileRow row, std::size_t column) const noexcept {
    return static_cast<std::uint64_t>(tiles_.at(row, column));
  }
  bool at_hand(std::size_t column) const noexcept {
    const std::uint64_t there = images_[get(kTileImage, column)].beginning.size();
    return get(kTileSource, column) <= there && get(kTileLength, column) <= there - get(kTileSource, column);
  }

  std::size_t copy(std::size_t column) noexcept {
    const Bytes own = images_[get(kTileImage, column)].beginning;
    std::memcpy(&payload_[get(kTileAt, column)], &own[get(kTileSource, column)], get(kTileLength, column));
    return column + 1;
  }

  // Read this tile, and in the same call those that follow it closely. Gives the column after them; the tile's own if
  // the file ends too early.
  std::size_t read(std::size_t column, std::size_t end) noexcept {
    Stored& own = images_[get(kTileImage, column)];
    std::uint8_t gap[kGapPart];
    platform::Part parts[platform::kMaxParts];
    std::size_t count = 0;
    const std::uint64_t begin = get(kTileSource, column);
    std::uint64_t upto = begin;
    std::size_t next = column;
    constexpr std::size_t kMaxPartsOfTile = 1 + kMaxGap / kGapPart;
    for (; next < end && count + kMaxPartsOfTile <= platform::kMaxParts && upto - begin < kMaxRead; ++next) {
      const std::uint64_t source = get(kTileSource, next), length = get(kTileLength, next);
      if (source < upto || source - upto > kMaxGap) break;
      for (; upto < source; upto += parts[count++].size) parts[count] = {gap, std::min(source - upto, kGapPart)};
      parts[count++] = {&payload_[get(kTileAt, next)], length};
      upto = source + length;
    }
    if (!read_parts(own.file, {parts, count}, own.offset + begin)) {
      fail(column, {Code::unreadable, "the file ends too early, or cannot be read", begin});
      return column;
    }
    const MutexLock lock(mutex_);
    own.bytes_read += upto - begin;
    return next;
  }

  bool check(std::size_t column) noexcept {
    const Bytes own(&payload_[get(kTileAt, column)], get(kTileLength, column));
    const std::uint64_t source = get(kTileSource, column);
    const std::int64_t number = tiles_.at(kTileNumber, column);
    if (crc32c(own) != get(kTileSum, column)) {
      fail(column, {Code::corrupt, "the checksum of the tile does not match", source, number});
      return false;
    }
    const Bytes head = images_[get(kTileImage, column)].beginning;
    const Mode mode = head.size() > 5 && (head[5] & 1) != 0 ? Mode::dense : Mode::fast;
    const std::uint64_t pixels = get(kTileHeightRow, column) * get(kTileWidthRow, column);
    const std::uint64_t pixel_bytes = get(kTileChannels, column) * get(kTileBits, column) / 8;
    if (const char* what = wrong_kind(mode, own[0], own.size(), pixels, pixel_bytes)) {
      fail(column, {Code::corrupt, what, source, number});
      return false;
    }
    tiles_.at(kTileKind, column) = own[0];
    return true;
  }

  std::span<Stored> images_;
  const Table tiles_;
  std::span<std::uint8_t> payload_;
  Mutex mutex_;
  Fetched failed_;
};

// Run `work(begin, end)` for each of the pieces that `next(begin)` cuts [0, n) into, on several threads. Gives the CPU
// seconds of those that are not the caller's.
template <class Next, class Work>
double spread(std::size_t n, unsigned threads, const Next& next, const Work& work) noexcept {
  Mutex mutex;
  std::size_t at = 0;
  double seconds = 0;
  const auto take = [&](std::size_t& begin, std::size_t& end) {
    const MutexLock lock(mutex);
    begin = at;
    end = at = at < n ? next(at) : n;
    return begin < end;
  };
  run_workers(std::clamp(threads, 1U, 256U), [&](unsigned number) {
    for (std::size_t begin, end; take(begin, end);) work(begin, end);
    if (number == 0) return;
    const MutexLock lock(mutex);
    seconds += platform::thread_seconds();
  });
  return seconds;
}

}  // namespace

double read_pieces(std::span<Piece> pieces, unsigned threads) noexcept {
  return spread(
      pieces.size(), threads, [](std::size_t i) { return i + 1; },
      [&](std::size_t i, std::size_t) {
        platform::Part part{pieces[i].to, pieces[i].length};
        pieces[i].read = pieces[i].length == 0 || read_parts(pieces[i].file, {&part, 1}, pieces[i].offset);
      });
}

Fetched fetch_tiles(std::span<Stored> images, const Table& tiles, std::span<std::uint8_t> payload,
                    unsigned threads) noexcept {
  Fetch fetch(images, tiles, payload);
  for (Stored& image : images) image.bytes_read = 0;
  for (std::size_t column = 0; column < tiles.columns; ++column)
    if (!fetch.fits(column))
      return {{Code::bad_argument, "the table of tiles does not belong to these images or this payload"}, column, 0};
  const double other_seconds = spread(
      tiles.columns, threads, [&](std::size_t column) { return fetch.same_image(column); },
      [&](std::size_t column, std::size_t end) { fetch.run(column, end); });
  Fetched fetched = fetch.failed();
  fetched.other_seconds = other_seconds;
  return fetched;
}

}  // namespace headrace::device
