// SPDX-License-Identifier: Apache-2.0
// Whole images: which tiles a region touches, who decodes them, and the checks that need no SIMD.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "headrace/codec.h"
#include "runs.h"
#include "workers.h"
#include "thread_safety.h"

namespace headrace {
namespace {

// Tiles of one tile row that a thread has to itself.
struct Claim {
  std::uint32_t x, x_end, y;
  std::uint64_t offset;  // of the first one's first byte
};

// Hands out the tiles that a region touches, in file order, to any number of threads. Offsets are sums of lengths, kept
// while walking: nothing is allocated. Where there are enough of them a claim is a whole row of tiles: threads that
// write to the same rows of pixels take cache lines from one another.
class Claims {
 public:
  Claims(const ImageHeader& header, Region region, unsigned threads) noexcept
      : header_(header), offset_(header.tiles_offset) {
    x_begin_ = region.left / header.tile_width;
    x_end_ = (region.left + region.width - 1) / header.tile_width + 1;
    y_ = region.top / kTileHeight;
    y_end_ = (region.top + region.height - 1) / kTileHeight + 1;
    claim_columns_ = y_end_ - y_ >= 4 * threads ? x_end_ - x_begin_ : kGroupColumns / header.tile_width;
    x_ = x_begin_;
    skip_to(std::uint64_t{y_} * header.tiles_x + x_);
  }

  bool next(Claim& claim) noexcept {
    const MutexLock lock(mutex_);
    if (y_ == y_end_) return false;
    claim = {x_, std::min(x_end_, x_ + claim_columns_), y_, offset_};
    x_ = claim.x_end;
    if (x_ == x_end_) {
      x_ = x_begin_;
      ++y_;
    }
    if (y_ != y_end_) skip_to(std::uint64_t{y_} * header_.tiles_x + x_);
    return true;
  }

 private:
  void skip_to(std::uint64_t tile) noexcept {
    for (; tile_ < tile; ++tile_) offset_ += load_le<std::uint32_t>(&header_.tile_lengths[4 * tile_]);
  }

  Mutex mutex_;
  const ImageHeader& header_;
  std::uint64_t tile_ = 0;
  std::uint64_t offset_;
  std::uint32_t x_begin_, x_end_, x_, y_, y_end_, claim_columns_;
};

}  // namespace

Status decode(Bytes file, const ImageHeader& header, Region region, std::uint8_t* out, std::ptrdiff_t row_stride,
              unsigned threads) noexcept {
  if (region.height == 0 || region.width == 0 || std::uint64_t{region.top} + region.height > header.height ||
      std::uint64_t{region.left} + region.width > header.width)
    return {Code::bad_argument, "the region does not lie within the image", 0, -1};
  std::unique_ptr<std::uint16_t[]> values;
  if (header.rank_count != 0) {
    values = rank_values(header);
    if (!values) return {Code::no_memory, "no memory for the list of ranks", 0, -1};
  }
  const Kernels& k = kernels();
  FirstFailure failure;
  const std::uint64_t area = std::uint64_t{region.height} * region.width * header.channels;
  const unsigned workers = useful_threads(threads, area);
  Claims claims(header, region, workers);
  // One piece for all: the caller's thread keeps it, and the others need not fault in memory of their own.
  const std::size_t scratch_bytes = (k.decode_scratch_bytes(header) + 63) / 64 * 64;
  const Scratch scratch(workers * scratch_bytes);
  if (!scratch) return {Code::no_memory, "no memory to decode tiles", 0, -1};
  run_workers(workers, [&](unsigned worker) {
    DecodeTiles job{};
    job.header = &header;
    job.file_end = file.data() + file.size();
    job.region = region;
    job.out = out;
    job.row_stride = row_stride;
    job.values = values.get();
    job.scratch = scratch.get() + worker * scratch_bytes;
    for (Claim claim; claims.next(claim);) {
      job.tile_y = claim.y;
      job.end = file.data() + claim.offset;
      for (job.tile_x = claim.x; job.tile_x < claim.x_end; job.tile_x += job.count) {
        if (failure) return;
        job.first = job.end;
        job.count = std::min(claim.x_end - job.tile_x, kGroupColumns / header.tile_width);
        if (Status s = decode_run(k, job, static_cast<std::uint64_t>(job.first - file.data())); !s)
          return failure.set(s);
      }
    }
  });
  return failure.get();
}

void decode_many(std::span<DecodeJob> jobs, unsigned threads) noexcept {
  std::atomic<std::size_t> next{0};
  const unsigned workers =
      static_cast<unsigned>(std::min<std::size_t>(useful_threads(threads, ~std::uint64_t{0}), jobs.size()));
  run_workers(workers, [&](unsigned) {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      DecodeJob& j = jobs[i];
      j.status = decode(j.file, j.header, j.region, j.out, j.row_stride, 1);
    }
  });
}

}  // namespace headrace
