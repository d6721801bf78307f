// SPDX-License-Identifier: Apache-2.0
// Checks the memory of batches: sizes, reuse, what is given back, and lives that outlast the pool.
//
//   pool
#include "loading/pool.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "checks.h"

namespace headrace::tests {
namespace {

constexpr std::size_t kPage = 4096;

// Whether the system still has this page mapped.
bool is_mapped(void* page) { return msync(page, kPage, MS_ASYNC) == 0 || errno != ENOMEM; }

void check_sizes(Checks& checks) {
  const auto pool = std::make_shared<Pool>(4);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kPage, kPage + 1, std::size_t{5} << 20}) {
    const auto block = pool->acquire(size);
    if (!checks.expect(block && block->size >= size, "a block of " + std::to_string(size) + " bytes")) continue;
    checks.expect(reinterpret_cast<std::uintptr_t>(block->data) % kPage == 0, "blocks begin on a page");
    std::memset(block->data, 1, size);
  }
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX - kPage, SIZE_MAX / 2 + 1, std::size_t{1} << 62})
    checks.expect(!pool->acquire(size) && !pool->acquire_present(size), "more than there is gives null");
  checks.expect(pool->blocks_in_use() == 0, "a block that was not given is not counted");
}

void check_reuse(Checks& checks) {
  const auto pool = std::make_shared<Pool>(4);
  auto first = pool->acquire(64 * kPage);
  const std::uint8_t* const data = first->data;
  const auto second = pool->acquire(64 * kPage);
  checks.expect(second->data != data, "blocks in use differ");
  checks.expect(pool->blocks_in_use() == 2, "blocks in use are counted");
  first.reset();
  checks.expect(pool->blocks_in_use() == 1, "a block that came back is not counted");
  const auto small = pool->acquire(kPage);
  checks.expect(small->data != data, "a small batch does not occupy a large block");
  first = pool->acquire(60 * kPage);
  checks.expect(first->data == data, "a block is used again where it fits");
}

void check_surplus(Checks& checks) {
  const auto pool = std::make_shared<Pool>(2);
  std::vector<std::shared_ptr<Block>> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(pool->acquire(8 * kPage));
  std::uint8_t* const first = blocks[0]->data;
  for (auto& block : blocks) block.reset();  // the first goes back when the third comes
  checks.expect(!is_mapped(first), "at most so many unused blocks are kept");
  auto block = pool->acquire(8 * kPage);
  std::uint8_t* const other = pool->acquire(8 * kPage)->data;
  checks.expect(is_mapped(other), "an unused block is kept for a while");
  for (int i = 0; i < 40; ++i) {
    block.reset();
    block = pool->acquire(8 * kPage);
  }
  checks.expect(!is_mapped(block->data == other ? first : other), "a block that nobody needs goes back to the system");
}

void check_owner(Checks& checks) {
  auto pool = std::make_shared<Pool>(4);
  const std::weak_ptr<Pool> watched = pool;
  auto block = pool->acquire(kPage);
  std::uint8_t* const data = block->data;
  pool.reset();
  std::memset(block->data, 7, kPage);
  checks.expect(is_mapped(data) && !watched.expired(), "a block outlives the owner of its pool");
  std::thread([&block] { block.reset(); }).join();
  checks.expect(watched.expired() && !is_mapped(data), "the last block takes the pool with it, in any thread");
}

void check_threads(Checks& checks) {
  const auto pool = std::make_shared<Pool>(3);
  std::vector<std::thread> threads;
  std::atomic<bool> intact{true};
  for (std::uint8_t id = 1; id <= 4; ++id)
    threads.emplace_back([&, id] {
      for (int i = 0; i < 2000; ++i) {
        const std::size_t size = kPage << (i + id) % 4;
        const auto block = pool->acquire(size);
        if (!block) continue;
        block->data[0] = block->data[size - 1] = id;
        std::this_thread::yield();
        if (block->data[0] != id || block->data[size - 1] != id) intact = false;
      }
    });
  for (auto& thread : threads) thread.join();
  checks.expect(intact, "no two threads have one block");
  checks.expect(pool->blocks_in_use() == 0, "all blocks came back");
}

int run() {
  Checks checks;
  check_sizes(checks);
  check_reuse(checks);
  check_surplus(checks);
  check_owner(checks);
  check_threads(checks);
  return checks.report();
}

}  // namespace
}  // namespace headrace::tests

int main() { return headrace::tests::run(); }
