// SPDX-License-Identifier: Apache-2.0
#include "loading/balance.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

constexpr double kMeasureSeconds = 0.05;
constexpr double kNewest = 0.4;  // the weight of the last measure
// Storage that nobody has had to wait for during this time may be faster than it was.
constexpr std::chrono::milliseconds kForget(100);
constexpr double kFaster = 1.5;
// Storage comes first: what it still holds back cannot be computed. So its queue is kept half as long as the
// cores', as if it were slower by this.
constexpr double kFirst = 2.0;

}  // namespace

Share& Share::operator=(Share&& other) noexcept {
  if (this != &other) {
    end();
    balance_ = std::exchange(other.balance_, nullptr);
    left_ = other.left_;
  }
  return *this;
}

void Share::read(std::uint64_t bytes) noexcept {
  if (!balance_) return;
  const double n = std::min(left_.bytes, static_cast<double>(bytes));
  left_.bytes -= n;
  balance_->take_off({n, 0});
}

void Share::end() noexcept {
  if (balance_) balance_->take_off(left_);
  balance_ = nullptr;
}

std::size_t Balance::choose(std::span<const Load> loads, Share& share) noexcept {
  share.end();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (rate_ > 0 && !waits_ && Clock::now() - since_ > kForget) {
    rate_ *= kFaster;
    since_ = Clock::now();
  }
  std::size_t best = 0;
  std::pair<double, double> least;
  for (std::size_t k = 0; k < loads.size(); ++k) {
    const double read = rate_ > 0 ? kFirst * (all_.bytes + loads[k].bytes) / rate_ : 0;
    const double computed = (all_.seconds + loads[k].seconds) / cores_;
    // Where one of them decides alone, the other is not wasted.
    const std::pair<double, double> end(std::max(read, computed), std::min(read, computed));
    if (k > 0 && end >= least) continue;
    least = end;
    best = k;
  }
  all_.bytes += loads[best].bytes;
  all_.seconds += loads[best].seconds;
  share = Share(*this, loads[best]);
  return best;
}

void Balance::take_off(const Load& load) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_.bytes = std::max(0.0, all_.bytes - load.bytes);
  all_.seconds = std::max(0.0, all_.seconds - load.seconds);
}

void Balance::storage_waits(bool waits, std::uint64_t bytes_read) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (waits_) measure(bytes_read);
  if (!waits_ && waits) bytes_since_ = bytes_read;
  if (waits_ != waits) since_ = Clock::now();
  waits_ = waits;
}

void Balance::measure(std::uint64_t bytes_read) noexcept {
  const auto now = Clock::now();
  seconds_ += std::chrono::duration<double>(now - since_).count();
  bytes_ += static_cast<double>(bytes_read - bytes_since_);
  since_ = now;
  bytes_since_ = bytes_read;
  if (seconds_ < kMeasureSeconds || bytes_ == 0) return;
  const double rate = bytes_ / seconds_;
  rate_ = rate_ == 0 ? rate : rate_ + kNewest * (rate - rate_);
  seconds_ = bytes_ = 0;
}

}  // namespace headrace
