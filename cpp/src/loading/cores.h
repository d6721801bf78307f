// SPDX-License-Identifier: Apache-2.0
// Limits how many threads compute at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "thread_safety.h"

namespace headrace {

// A counting semaphore with priorities: a core that is given back goes to the waiting thread with the most urgent work.
// The scheduler's mutex guards all of it and is held in every call.
//
// A thread takes a while to run after it is woken, above all on a virtual machine, and its core idles meanwhile. While
// threads wait for storage, cores change hands with every image. So one more thread than cores may compute then, if
// there are several cores: the next thread already runs when a core becomes free.
class Cores {
 public:
  explicit Cores(unsigned count) noexcept : count_(count) {}

  unsigned count() const noexcept { return count_; }
  unsigned busy() const noexcept { return busy_; }
  std::size_t waiting() const noexcept { return waiting_.size(); }
  bool free() const noexcept { return busy_ < max_busy() && waiting_.empty(); }
  // Let one more thread than cores compute, while threads wait for storage.
  void allow_one_more(bool allowed) noexcept { one_more_ = allowed && count_ > 1; }

  // Requires free().
  void take() noexcept { ++busy_; }
  // Wait for a core; false if closed or out of memory. A lower `order` is served earlier.
  bool wait(MutexLock& lock, std::uint64_t order) noexcept;
  // Give a core back. True if all were busy and no thread waits here: then threads that wait for jobs may claim one.
  bool give_back() noexcept;
  void close() noexcept;

 private:
  struct Waiting {
    std::uint64_t order;
    bool served;
    std::condition_variable changed;
  };

  unsigned max_busy() const noexcept { return count_ + (one_more_ ? 1 : 0); }

  const unsigned count_;
  unsigned busy_ = 0;
  bool one_more_ = false;
  bool closed_ = false;
  std::vector<Waiting*> waiting_;
};

}  // namespace headrace
