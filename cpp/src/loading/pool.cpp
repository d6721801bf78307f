// SPDX-License-Identifier: Apache-2.0
#include "loading/pool.h"

#include <algorithm>
#include <cstdint>
#include <new>

#include "platform/platform.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace headrace {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Requests without which a block was never needed before it is returned: enough to keep blocks that are needed again.
constexpr std::size_t kTrimInterval = 16;
// A prepared batch is slightly larger than its pixels and should fit into a block that held a batch of the host.
constexpr std::size_t kExtraBytes = std::size_t{64} << 10;

Block* map_block(std::size_t size) noexcept {
  if (size > SIZE_MAX / 2) return nullptr;
  const std::size_t unit = size >= kHugePage ? kHugePage : kPage;
  const std::size_t wanted = size >= kHugePage ? size + kExtraBytes : std::max<std::size_t>(size, 1);
  const std::size_t rounded = (wanted + unit - 1) / unit * unit;
  void* memory = platform::map_memory(rounded, unit == kHugePage);
  if (!memory) return nullptr;
  auto* block = new (std::nothrow) Block{static_cast<std::uint8_t*>(memory), rounded};
  if (!block) platform::unmap_memory(memory, rounded);
  return block;
}

// Under AddressSanitizer, which does not see the ends of mapped memory: an access at or behind `size` is an error.
void limit_block(const Block& block, std::size_t size) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(block.data, block.size);
  __asan_poison_memory_region(block.data + size, block.size - size);
#else
  static_cast<void>(block), static_cast<void>(size);
#endif
}

void unmap_block(Block* block) noexcept {
  platform::unmap_memory(block->data, block->size);
  delete block;
}

}  // namespace

std::uint64_t usable_memory() noexcept { return std::min(platform::usable_memory(), std::uint64_t{1} << 62); }

Pool::~Pool() {
  for (Block* block : free_) unmap_block(block);
}

std::shared_ptr<Block> Pool::acquire(std::size_t size) noexcept {
  Block* block = nullptr;
  Block* unneeded = nullptr;
  {
    const MutexLock lock(mutex_);
    // The most recently used one that fits without wasting more than half of it.
    const auto fits = [size](const Block* b) { return b->size >= size && b->size / 2 <= std::max(size, kPage); };
    const auto found = std::find_if(free_.rbegin(), free_.rend(), fits);
    if (found != free_.rend()) {
      block = *found;
      free_.erase(std::next(found).base());
    }
    ++in_use_;
    unneeded = remove_surplus();
  }
  if (unneeded) unmap_block(unneeded);
  if (!block) block = map_block(size);
  if (block) {
    limit_block(*block, size);
    try {
      return {block, [pool = shared_from_this()](Block* b) { pool->release(b); }};
    } catch (const std::bad_alloc&) {  // the deleter has already been called
      return nullptr;
    }
  }
  const MutexLock lock(mutex_);
  --in_use_;
  return nullptr;
}

std::shared_ptr<Block> Pool::acquire_present(std::size_t size) noexcept {
  std::shared_ptr<Block> block = acquire(size);
  if (block) limit_block(*block, block->size);  // its user may fill all of it
  if (block) platform::populate_memory(block->data, block->size);
  return block;
}

Block* Pool::remove_surplus() noexcept {
  min_free_ = n_requests_ == 0 ? free_.size() : std::min(min_free_, free_.size());
  if (++n_requests_ < kTrimInterval) return nullptr;
  n_requests_ = 0;
  if (min_free_ == 0) return nullptr;
  Block* block = free_.front();
  free_.erase(free_.begin());
  return block;
}

void Pool::release(Block* block) noexcept {
  limit_block(*block, block->size);
  Block* evicted = nullptr;
  {
    const MutexLock lock(mutex_);
    --in_use_;
    try {
      free_.push_back(block);
    } catch (const std::bad_alloc&) {
      evicted = block;
    }
    if (free_.size() > max_free_) {
      evicted = free_.front();
      free_.erase(free_.begin());
    }
  }
  if (evicted) unmap_block(evicted);
}

std::size_t Pool::blocks_in_use() const noexcept {
  const MutexLock lock(mutex_);
  return in_use_;
}

}  // namespace headrace
