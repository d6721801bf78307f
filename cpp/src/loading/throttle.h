// SPDX-License-Identifier: Apache-2.0
// Emulates slower storage: limits the rate at which bytes are delivered.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>

#include "thread_safety.h"

namespace headrace {

// Requests are served in order. All methods may be called from any thread.
//
// `requested_` counts all bytes that were requested, and `served_` those that storage could have delivered: it grows
// with the clock and never beyond `requested_`, so idle time is not made up for later. A request gets the count at
// which its bytes end, and returns when `served_` is within a burst of that. Both are counts of bytes and not points in
// time, so the rate may change while threads wait.
class Throttle {
 public:
  // Bytes per second; 0 removes the limit, also for threads that wait.
  void set_rate(double rate) noexcept EXCLUDES(mutex_);
  bool limits() const noexcept { return limits_.load(std::memory_order_relaxed); }

  struct Ticket {
    double end = 0;
    bool waits = false;
  };
  Ticket request(std::uint64_t bytes) noexcept EXCLUDES(mutex_);
  // Sleep until the ticket is served.
  void wait(const Ticket& ticket) noexcept EXCLUDES(mutex_);
  // Remove the limit for good.
  void close() noexcept EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  void advance() noexcept REQUIRES(mutex_);

  std::atomic<bool> limits_{false};
  Mutex mutex_;
  std::condition_variable changed_;
  bool closed_ GUARDED_BY(mutex_) = false;
  double rate_ GUARDED_BY(mutex_) = 0, requested_ GUARDED_BY(mutex_) = 0, served_ GUARDED_BY(mutex_) = 0;
  Clock::time_point served_at_ GUARDED_BY(mutex_);
};

}  // namespace headrace
