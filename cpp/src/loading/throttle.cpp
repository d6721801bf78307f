// SPDX-License-Identifier: Apache-2.0
#include "loading/throttle.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr double kBurstSeconds = 0.010;
// A sleep costs a switch of threads, some 10 microseconds: many small reads share one.
constexpr double kShortestSeconds = 0.001;
// What a clock can be asked to wait for, however slow the storage.
constexpr double kLongestSeconds = 3600;

}  // namespace

void Throttle::set_rate(double rate) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    advance();
    if (rate <= 0) served_ = asked_;
    rate_ = std::max(0.0, rate);
    limits_.store(rate_ > 0, std::memory_order_relaxed);
  }
  changed_.notify_all();
}

void Throttle::close() noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void Throttle::advance() noexcept {
  const auto now = Clock::now();
  served_ = std::min(asked_, served_ + rate_ * std::chrono::duration<double>(now - served_at_).count());
  served_at_ = now;
}

Throttle::Ticket Throttle::ask(std::uint64_t bytes) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (rate_ == 0 || closed_) return {};
  advance();
  asked_ += static_cast<double>(bytes);
  return {asked_, asked_ - served_ > rate_ * (kBurstSeconds + kShortestSeconds)};
}

void Throttle::wait(const Ticket& ticket) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    advance();
    const double missing = ticket.end - served_ - rate_ * kBurstSeconds;
    if (closed_ || rate_ == 0 || missing <= 0) return;
    const std::chrono::duration<double> left(std::min(missing / rate_, kLongestSeconds));
    changed_.wait_for(lock, std::chrono::duration_cast<std::chrono::nanoseconds>(left));
  }
}

}  // namespace headrace
