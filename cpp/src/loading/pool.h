// SPDX-License-Identifier: Apache-2.0
// Memory for batches, used again: to fault in fresh pages costs as much as to fill them. What is not used for some time
// goes back to the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace headrace {

// A piece of memory of a pool, page-aligned. It goes back when the last pointer to it is gone, in whatever thread that
// happens, and outlives the pool's owner if need be.
struct Block {
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

// How many bytes of memory this process may use: what the machine has, or its control group allows. At most 2^62.
std::uint64_t usable_memory() noexcept;

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  // Keeps at most `keep` blocks that nobody uses.
  explicit Pool(std::size_t keep) : keep_(keep) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // At least `size` bytes of unspecified contents; null if there is no memory.
  std::shared_ptr<Block> acquire(std::size_t size) noexcept;
  // The same with its pages present, as far as the kernel can: a direct read that has to find them takes far longer.
  std::shared_ptr<Block> acquire_present(std::size_t size) noexcept;

  std::size_t blocks_in_use() const noexcept;

 private:
  void release(Block* block) noexcept;
  // The one unused for longest if some block was needed by none of the last so many, else null. Called with the lock.
  Block* surplus() noexcept;

  const std::size_t keep_;
  mutable std::mutex mutex_;
  std::vector<Block*> free_;  // the one used last is at the end
  std::size_t in_use_ = 0;
  // Since the last look for a surplus: how often memory was asked for, and the least number of blocks left free then.
  std::size_t asked_ = 0, least_free_ = 0;
};

}  // namespace headrace
