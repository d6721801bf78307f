// SPDX-License-Identifier: Apache-2.0
// The shards of a dataset, read with pread: a shard that is cut short while it is read gives an error, where a mapped
// one would end the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "loading/byte_source.h"
#include "loading/throttle.h"

namespace headrace {

// Told how a read goes, so that a thread can leave its core to others while it waits for storage.
class Reader {
 public:
  virtual ~Reader() = default;
  // Storage will keep it waiting.
  virtual void pause() noexcept = 0;
  // So many bytes have come from storage.
  virtual void arrived(std::size_t n) noexcept = 0;
  // There is something to compute; also called where there was no pause.
  virtual void resume() noexcept = 0;
};

struct Shard {
  std::string path;
  std::uint64_t size = 0;
};

// Names the dataset that the shards belong to: the file `path`, its size and how it ends. dataset.json ends with its
// own checksum, which covers the sums of all shards; so one that was built anew at the same place ends differently. An
// empty path is not looked at.
struct Identity {
  std::string path;
  std::uint64_t size = 0;
  std::string ending;
};

// Opened when first read, within the handles that a process may have. All methods may be called from any thread.
class Shards {
 public:
  // `direct`: past the page cache, where the file system can.
  Shards(std::vector<Shard> shards, Identity identity, bool direct);

  // Check that an extent lies within a shard, as the index claims.
  Status check(std::uint32_t shard, std::uint64_t offset, std::uint64_t length) const noexcept;
  // Read a checked extent.
  Status read(std::uint32_t shard, std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent,
              Reader& reader) noexcept;
  // The same where nothing is to be computed yet: `reader` does not resume.
  Status read_only(std::uint32_t shard, std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent,
                   Reader& reader) noexcept;
  // Read no faster than this many bytes a second, cached or not; 0: as fast as storage is.
  void set_rate(double rate) noexcept { throttle_.set_rate(rate); }
  // Nobody waits for the rate any more.
  void close() noexcept { throttle_.close(); }
  // Have reads lately had to wait for storage? Every direct one does.
  bool waits() const noexcept { return waits_left_.load(std::memory_order_relaxed) > 0; }
  // Have reads lately had to wait, so that hints are worth their while?
  bool hints() const noexcept { return !direct_ && hints_left_.load(std::memory_order_relaxed) > 0; }
  // Tell the kernel that a checked extent will be read soon.
  void hint(std::uint32_t shard, std::uint64_t offset, std::uint64_t n) noexcept;

  const std::string& path(std::uint32_t shard) const noexcept { return shards_[shard].path; }
  std::uint64_t bytes_read() const noexcept { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  struct File;

  struct Span;

  std::shared_ptr<File> open(std::uint32_t shard, Status& status) noexcept;
  Status fill(const File& file, Span& span, Reader& reader, bool& waited) noexcept;
  void arrived(std::size_t n, Reader& reader) noexcept;
  void note_wait(bool waited) noexcept;
  void note_slow(double seconds, std::size_t n) noexcept;

  // Is what was opened a file of the size that the dataset has recorded, and the dataset still the same?
  Status check_opened(int handle, std::uint32_t shard) const noexcept;

  const std::vector<Shard> shards_;
  const Identity identity_;
  const bool direct_;
  const std::size_t most_open_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<File>> files_;  // one a shard, null when closed
  std::size_t open_count_ = 0;
  std::atomic<std::uint64_t> bytes_read_{0};
  std::atomic<int> hints_left_{kHintsAfterWait}, waits_left_{0};
  std::atomic<bool> can_try_{true};  // whether the kernel can be asked for what it has at hand
  Throttle throttle_;

  static constexpr int kHintsAfterWait = 4096, kWaitsAfterWait = 256;
};

// One rendition in a shard.
class ShardBytes final : public ByteSource {
 public:
  ShardBytes(Shards& shards, std::uint32_t shard, std::uint64_t offset, std::uint64_t length, Reader& reader) noexcept
      : shards_(shards), reader_(reader), shard_(shard), offset_(offset), length_(length) {}
  std::uint64_t size() const noexcept override { return length_; }
  Status read(std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent) noexcept override {
    return shards_.read(shard_, offset_ + offset, n, buffer, extent, reader_);
  }
  Status read_head(std::size_t n, Buffer& buffer, Extent& extent) noexcept override {
    return shards_.read_only(shard_, offset_, n, buffer, extent, reader_);
  }
  // A device is asked for much at a time: each wait costs two switches of threads.
  std::uint64_t chunk() const noexcept override { return shards_.waits() ? kWaitedChunk : kCachedChunk; }

 private:
  Shards& shards_;
  Reader& reader_;
  std::uint32_t shard_;
  std::uint64_t offset_;
  std::uint64_t length_;

  static constexpr std::uint64_t kWaitedChunk = 4 << 20;
};

}  // namespace headrace
