// SPDX-License-Identifier: Apache-2.0
// The shards of a dataset, read with pread: a shard that is cut short while it is read gives an error, where a mapped
// one would end the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loading/byte_source.h"
#include "loading/throttle.h"
#include "thread_safety.h"

namespace headrace {

// Notified of the progress of a read, so that a thread can give its core to another one while it waits for storage.
class ReadObserver {
 public:
  virtual ~ReadObserver() = default;
  // The read is about to wait for storage.
  virtual void pause() noexcept = 0;
  // `n` bytes have been delivered.
  virtual void arrived(std::size_t n) noexcept = 0;
  // There is something to compute. Also called without a pause before.
  virtual void resume() noexcept = 0;
};

struct Shard {
  std::string path;
  std::uint64_t size = 0;
  std::uint32_t dataset = 0;  // that it belongs to: an index of the identities
};

// Names the dataset that the shards belong to: the file `path`, its size and how it ends. dataset.json ends with its
// own checksum, which covers the sums of all shards, so a dataset that was rebuilt in place ends differently. An empty
// path is not checked.
struct Identity {
  std::string path;
  std::uint64_t size = 0;
  std::string ending;
};

// Files are opened on first use, within the process's limit of file descriptors. Any thread may call the methods.
class Shards {
 public:
  // `direct`: bypass the page cache, if the file system supports it.
  // Without an identity, a dataset is not checked.
  Shards(std::vector<Shard> shards, std::vector<Identity> identities, bool direct);

  // Check that an extent lies within a shard, as the index claims.
  Status check(std::uint32_t shard, std::uint64_t offset, std::uint64_t length) const noexcept;
  // Read a checked extent.
  Status read(std::uint32_t shard, std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent,
              ReadObserver& observer) noexcept;
  // The same without resuming `observer`, for bytes that are not computed on yet.
  Status read_only(std::uint32_t shard, std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent,
                   ReadObserver& observer) noexcept;
  // Read a checked extent to `memory`, which has room for `n` bytes. A direct read goes there if everything is aligned
  // as it needs, else through `buffer`.
  Status read_to(std::uint32_t shard, std::uint64_t offset, std::size_t n, std::uint8_t* memory, Buffer& buffer,
                 ReadObserver& observer) noexcept;
  // Limit reads to this many bytes per second, cached or not; 0 is unlimited.
  void set_rate(double rate) noexcept { throttle_.set_rate(rate); }
  // Remove the limit for good: reads that wait for it return.
  void close() noexcept { throttle_.close(); }
  // Did recent reads wait for storage? Direct reads always do.
  bool waits() const noexcept { return waits_left_.load(std::memory_order_relaxed) > 0; }
  // Did recent reads wait, so that hints to the kernel pay off?
  bool hints() const noexcept { return !direct_ && hints_left_.load(std::memory_order_relaxed) > 0; }
  // Tell the kernel that a checked extent will be read soon.
  void hint(std::uint32_t shard, std::uint64_t offset, std::uint64_t n) noexcept;

  const std::string& path(std::uint32_t shard) const noexcept { return shards_[shard].path; }
  std::uint64_t bytes_read() const noexcept { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  struct File;

  struct Span;

  std::shared_ptr<File> open(std::uint32_t shard, Status& status) noexcept;
  Status deliver(const File& file, Span& span, ReadObserver& observer) noexcept;
  Status fill(const File& file, Span& span, ReadObserver& observer, bool& waited) noexcept;
  void arrived(std::size_t n, ReadObserver& observer) noexcept;
  void note_wait(bool waited) noexcept;
  void note_slow(double seconds, std::size_t n) noexcept;

  // Is what was opened a file of the size that the dataset has recorded, and the dataset still the same?
  Status check_opened(int handle, std::uint32_t shard) const noexcept;

  const std::vector<Shard> shards_;
  const std::vector<Identity> identities_;  // [dataset]
  const bool direct_;
  const std::size_t max_open_;
  Mutex mutex_;
  std::vector<std::shared_ptr<File>> files_ GUARDED_BY(mutex_);  // [shard], null if closed
  std::size_t open_count_ GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> bytes_read_{0};
  std::atomic<int> hints_left_{kHintsAfterWait}, waits_left_{0};
  std::atomic<bool> can_try_{true};  // whether the kernel can be asked for what it has at hand
  Throttle throttle_;

  static constexpr int kHintsAfterWait = 4096, kWaitsAfterWait = 256;
};

// One rendition in a shard.
class ShardBytes final : public ByteSource {
 public:
  ShardBytes(Shards& shards, std::uint32_t shard, std::uint64_t offset, std::uint64_t length,
             ReadObserver& observer) noexcept
      : shards_(shards), observer_(observer), shard_(shard), offset_(offset), length_(length) {}
  std::uint64_t size() const noexcept override { return length_; }
  Status read(std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent) noexcept override {
    return shards_.read(shard_, offset_ + offset, n, buffer, extent, observer_);
  }
  Status read_head(std::size_t n, Buffer& buffer, Extent& extent) noexcept override {
    return shards_.read_only(shard_, offset_, n, buffer, extent, observer_);
  }
  // A device is asked for much at a time: each wait costs two switches of threads.
  std::uint64_t chunk() const noexcept override { return shards_.waits() ? kWaitedChunk : kCachedChunk; }

 private:
  Shards& shards_;
  ReadObserver& observer_;
  std::uint32_t shard_;
  std::uint64_t offset_;
  std::uint64_t length_;

  static constexpr std::uint64_t kWaitedChunk = 4 << 20;
};

}  // namespace headrace
