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

namespace headrace {

struct Shard {
  std::string path;
  std::uint64_t size = 0;
};

// Opened when first read, within the handles that a process may have. All methods may be called from any thread.
class Shards {
 public:
  // `direct`: past the page cache, where the file system can.
  Shards(std::vector<Shard> shards, bool direct);

  // Check that an extent lies within a shard, as the index claims.
  Status check(std::uint32_t shard, std::uint64_t offset, std::uint64_t length) const noexcept;
  // Read a checked extent.
  Status read(std::uint32_t shard, std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent) noexcept;
  // Have reads lately had to wait, so that hints are worth their while?
  bool hints() const noexcept { return !direct_ && hints_left_.load(std::memory_order_relaxed) > 0; }
  // Tell the kernel that a checked extent will be read soon.
  void hint(std::uint32_t shard, std::uint64_t offset, std::uint64_t n) noexcept;

  const std::string& path(std::uint32_t shard) const noexcept { return shards_[shard].path; }
  std::uint64_t bytes_read() const noexcept { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  struct File;

  std::shared_ptr<File> open(std::uint32_t shard, Status& status) noexcept;
  void note_wait(double seconds, std::size_t n) noexcept;

  const std::vector<Shard> shards_;
  const bool direct_;
  const std::size_t most_open_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<File>> files_;  // one a shard, null when closed
  std::size_t open_count_ = 0;
  std::atomic<std::uint64_t> bytes_read_{0};
  std::atomic<int> hints_left_{kHintsAfterWait};

  static constexpr int kHintsAfterWait = 4096;
};

// One rendition in a shard.
class ShardBytes final : public ByteSource {
 public:
  ShardBytes(Shards& shards, std::uint32_t shard, std::uint64_t offset, std::uint64_t length) noexcept
      : shards_(shards), shard_(shard), offset_(offset), length_(length) {}
  std::uint64_t size() const noexcept override { return length_; }
  Status read(std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent) noexcept override {
    return shards_.read(shard_, offset_ + offset, n, buffer, extent);
  }

 private:
  Shards& shards_;
  std::uint32_t shard_;
  std::uint64_t offset_;
  std::uint64_t length_;
};

}  // namespace headrace
