// SPDX-License-Identifier: Apache-2.0
// Chooses the rendition of an image so that storage and cores finish at about the same time.
//
// Each image in progress is a load on both: bytes that are still to be read, and time that it will take on a core. A
// new image uses the rendition with which the later of the two would finish first. So neither idles while the other has
// a queue, if a choice can prevent it. Loads are estimates. If they are wrong, for example after storage became slower,
// its queue grows and the following choices adapt.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <utility>

#include "thread_safety.h"

namespace headrace {

struct Load {
  double bytes = 0, seconds = 0;
};

class LoadBalancer;

// The load of one image, announced to the balancer until it ends. Used by one thread at a time.
class LoadReservation {
 public:
  LoadReservation() noexcept = default;
  LoadReservation(LoadBalancer& balancer, const Load& load) noexcept : balancer_(&balancer), remaining_(load) {}
  ~LoadReservation() { end(); }
  LoadReservation(LoadReservation&& other) noexcept { *this = std::move(other); }
  LoadReservation& operator=(LoadReservation&& other) noexcept;

  // These bytes no longer have to be read.
  void subtract_read(std::uint64_t bytes) noexcept;
  void end() noexcept;

 private:
  LoadBalancer* balancer_ = nullptr;
  Load remaining_;
};

// Any thread may call its methods.
class LoadBalancer {
 public:
  explicit LoadBalancer(unsigned cores) noexcept : cores_(cores) {}

  // Return the index of the best of some loads and reserve it.
  std::size_t choose(std::span<const Load> loads, LoadReservation& reservation) noexcept EXCLUDES(mutex_);
  // Whether any thread waits for storage from now on; `bytes_read` is the total so far.
  void storage_waits(bool waits, std::uint64_t bytes_read) noexcept EXCLUDES(mutex_);
  // Used by LoadReservation.
  void subtract(const Load& load) noexcept EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  void measure(std::uint64_t bytes_read) noexcept REQUIRES(mutex_);

  const double cores_;
  Mutex mutex_;
  Load total_ GUARDED_BY(mutex_);
  double rate_ GUARDED_BY(mutex_) = 0;  // bytes per second that storage delivers while threads wait; 0 is unknown
  bool waits_ GUARDED_BY(mutex_) = false;
  Clock::time_point since_ GUARDED_BY(mutex_);
  std::uint64_t bytes_since_ GUARDED_BY(mutex_) = 0;
  // Of waits that were too short to be measured one by one.
  double seconds_ GUARDED_BY(mutex_) = 0, bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
