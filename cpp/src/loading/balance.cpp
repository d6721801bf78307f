// SPDX-License-Identifier: Apache-2.0
#include "loading/balance.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

constexpr double kMeasureSeconds = 0.05;
constexpr double kNewWeight = 0.4;  // of the latest measurement in the moving average
// If no thread has waited for storage for this long, it may have become faster: raise the estimate of its rate.
constexpr std::chrono::milliseconds kRaiseAfter(100);
constexpr double kRaiseFactor = 1.5;
// Cores cannot compute what storage has not delivered. So the queue of storage is kept half as long as that of the
// cores, as if storage were slower by this factor.
constexpr double kStorageWeight = 2.0;

}  // namespace

LoadReservation& LoadReservation::operator=(LoadReservation&& other) noexcept {
  if (this != &other) {
    end();
    balancer_ = std::exchange(other.balancer_, nullptr);
    remaining_ = other.remaining_;
  }
  return *this;
}

void LoadReservation::subtract_read(std::uint64_t bytes) noexcept {
  if (!balancer_) return;
  const double n = std::min(remaining_.bytes, static_cast<double>(bytes));
  remaining_.bytes -= n;
  balancer_->subtract({n, 0});
}

void LoadReservation::end() noexcept {
  if (balancer_) balancer_->subtract(remaining_);
  balancer_ = nullptr;
}

std::size_t LoadBalancer::choose(std::span<const Load> loads, LoadReservation& reservation) noexcept {
  reservation.end();
  const MutexLock lock(mutex_);
  if (rate_ > 0 && !waits_ && Clock::now() - since_ > kRaiseAfter) {
    rate_ *= kRaiseFactor;
    since_ = Clock::now();
  }
  std::size_t best = 0;
  std::pair<double, double> earliest;
  for (std::size_t k = 0; k < loads.size(); ++k) {
    const double read = rate_ > 0 ? kStorageWeight * (total_.bytes + loads[k].bytes) / rate_ : 0;
    const double computed = (total_.seconds + loads[k].seconds) / cores_;
    // If the later end is equal, prefer the smaller load on the other.
    const std::pair<double, double> end(std::max(read, computed), std::min(read, computed));
    if (k > 0 && end >= earliest) continue;
    earliest = end;
    best = k;
  }
  total_.bytes += loads[best].bytes;
  total_.seconds += loads[best].seconds;
  reservation = LoadReservation(*this, loads[best]);
  return best;
}

void LoadBalancer::subtract(const Load& load) noexcept {
  const MutexLock lock(mutex_);
  total_.bytes = std::max(0.0, total_.bytes - load.bytes);
  total_.seconds = std::max(0.0, total_.seconds - load.seconds);
}

void LoadBalancer::storage_waits(bool waits, std::uint64_t bytes_read) noexcept {
  const MutexLock lock(mutex_);
  if (waits_) measure(bytes_read);
  if (!waits_ && waits) bytes_since_ = bytes_read;
  if (waits_ != waits) since_ = Clock::now();
  waits_ = waits;
}

void LoadBalancer::measure(std::uint64_t bytes_read) noexcept {
  const auto now = Clock::now();
  seconds_ += std::chrono::duration<double>(now - since_).count();
  bytes_ += static_cast<double>(bytes_read - bytes_since_);
  since_ = now;
  bytes_since_ = bytes_read;
  if (seconds_ < kMeasureSeconds || bytes_ == 0) return;
  const double rate = bytes_ / seconds_;
  rate_ = rate_ == 0 ? rate : rate_ + kNewWeight * (rate - rate_);
  seconds_ = bytes_ = 0;
}

}  // namespace headrace
