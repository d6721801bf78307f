// SPDX-License-Identifier: Apache-2.0
#include "loading/throttle.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr double kBurstSeconds = 0.010;
// A sleep costs about 10 microseconds, so several small reads share one.
constexpr double kMinSleepSeconds = 0.001;
// Bounds a single wait, however slow the storage.
constexpr double kMaxSleepSeconds = 3600;

}  // namespace

void Throttle::set_rate(double rate) noexcept {
  {
    const MutexLock lock(mutex_);
    advance();
    if (rate <= 0) served_ = requested_;
    rate_ = std::max(0.0, rate);
    limits_.store(rate_ > 0, std::memory_order_relaxed);
  }
  changed_.notify_all();
}

void Throttle::close() noexcept {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void Throttle::advance() noexcept {
  const auto now = Clock::now();
  served_ = std::min(requested_, served_ + rate_ * std::chrono::duration<double>(now - served_at_).count());
  served_at_ = now;
}

Throttle::Ticket Throttle::request(std::uint64_t bytes) noexcept {
  const MutexLock lock(mutex_);
  if (rate_ == 0 || closed_) return {};
  advance();
  requested_ += static_cast<double>(bytes);
  return {requested_, requested_ - served_ > rate_ * (kBurstSeconds + kMinSleepSeconds)};
}

void Throttle::wait(const Ticket& ticket) noexcept {
  MutexLock lock(mutex_);
  for (;;) {
    advance();
    const double missing = ticket.end - served_ - rate_ * kBurstSeconds;
    if (closed_ || rate_ == 0 || missing <= 0) return;
    const std::chrono::duration<double> left(std::min(missing / rate_, kMaxSleepSeconds));
    changed_.wait_for(lock.native(), std::chrono::duration_cast<std::chrono::nanoseconds>(left));
  }
}

}  // namespace headrace
