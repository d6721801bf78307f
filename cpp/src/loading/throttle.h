// SPDX-License-Identifier: Apache-2.0
// Slower storage, emulated: bytes are given out no faster than at a rate.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace headrace {

// Those who ask are served in the order in which they ask. All methods may be called from any thread.
//
// `asked_` counts the bytes that were ever asked for and `served_` those that storage could have brought since: it
// grows with the clock and never beyond what was asked for, so an idle time is not made up for later. Whoever asks gets
// the count at which his bytes end, and goes on when `served_` is a burst short of it. Both are counts of bytes and not
// points in time, so that the rate may change while some wait.
class Throttle {
 public:
  // Bytes a second; 0 lifts the limit, also for those who wait.
  void set_rate(double rate) noexcept;
  bool limits() const noexcept { return limits_.load(std::memory_order_relaxed); }

  struct Ticket {
    double end = 0;
    bool waits = false;
  };
  Ticket ask(std::uint64_t bytes) noexcept;
  // Sleep until it is the ticket's turn.
  void wait(const Ticket& ticket) noexcept;
  // Nobody waits any more.
  void close() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void advance() noexcept;

  std::atomic<bool> limits_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  double rate_ = 0, asked_ = 0, served_ = 0;
  Clock::time_point served_at_;
};

}  // namespace headrace
