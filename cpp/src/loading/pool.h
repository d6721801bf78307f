// SPDX-License-Identifier: Apache-2.0
// Memory for batches, which is reused: page faults of new memory cost as much as filling it. Blocks that are not used
// for some time are returned to the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "thread_safety.h"

namespace headrace {

// Page-aligned memory of a pool. It returns to the pool when the last pointer to it is destroyed, in any thread, and
// keeps the pool alive until then.
struct Block {
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

// How many bytes of memory this process may use: what the machine has, or its control group allows. At most 2^62.
std::uint64_t usable_memory() noexcept;

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  // Keeps at most `max_free` unused blocks.
  explicit Pool(std::size_t max_free) : max_free_(max_free) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // At least `size` bytes with unspecified contents; null if there is no memory.
  std::shared_ptr<Block> acquire(std::size_t size) noexcept;
  // The same with its pages populated, if the kernel can: direct reads into missing pages take far longer.
  std::shared_ptr<Block> acquire_present(std::size_t size) noexcept;

  std::size_t blocks_in_use() const noexcept;

 private:
  void release(Block* block) noexcept EXCLUDES(mutex_);
  // The block that has been unused for longest, if the last kTrimInterval requests never needed all blocks; else null.
  Block* remove_surplus() noexcept REQUIRES(mutex_);

  const std::size_t max_free_;
  mutable Mutex mutex_;
  std::vector<Block*> free_ GUARDED_BY(mutex_);  // the most recently used is at the end
  std::size_t in_use_ GUARDED_BY(mutex_) = 0;
  // Since the last look for a surplus: the number of requests, and the minimum of blocks that were free.
  std::size_t n_requests_ GUARDED_BY(mutex_) = 0, min_free_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
