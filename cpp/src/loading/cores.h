// SPDX-License-Identifier: Apache-2.0
// Who may compute: at most so many threads at a time, whatever their number.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace headrace {

// Cores are lent to threads. Whoever waits for one has it handed over, the earliest work first. The owner's mutex
// guards all of it and is held in every call.
//
// A thread that has to be woken takes a while to run, above all on a virtual machine, and its core idles meanwhile;
// where reads wait, work changes hands image by image. So while threads wait for storage, one more is let in than
// there are cores, if there are several: whoever comes next is at work already when a core comes free.
class Cores {
 public:
  explicit Cores(unsigned count) noexcept : count_(count) {}

  unsigned count() const noexcept { return count_; }
  unsigned busy() const noexcept { return busy_; }
  std::size_t waiting() const noexcept { return waiting_.size(); }
  bool free() const noexcept { return busy_ < most() && waiting_.empty(); }
  // Whether threads wait for storage, from now on.
  void hand_over(bool often) noexcept { one_more_ = often && count_ > 1; }

  // When one is free.
  void take() noexcept { ++busy_; }
  // Wait for one; false if there will be none any more. `order` is lower for work that is wanted earlier.
  bool wait(std::unique_lock<std::mutex>& lock, std::uint64_t order) noexcept;
  // Give one back: true if all were busy and nobody waits here for one, so that others may want to know.
  bool give_back() noexcept;
  void close() noexcept;

 private:
  struct Waiting {
    std::uint64_t order;
    bool served;
    std::condition_variable changed;
  };

  unsigned most() const noexcept { return count_ + (one_more_ ? 1 : 0); }

  const unsigned count_;
  unsigned busy_ = 0;
  bool one_more_ = false;
  bool closed_ = false;
  std::vector<Waiting*> waiting_;
};

}  // namespace headrace
