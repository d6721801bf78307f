// SPDX-License-Identifier: Apache-2.0
// Which rendition of an image to take, so that storage and cores are done at about the same time.
//
// Each image that was begun is a load on both: bytes that are still to be read, and time that it will keep a core. A
// new one is taken from the rendition with which the later of the two would be done first. So neither runs dry while
// the other has a queue, if a choice can prevent it; and to keep both busy is the best that any mix can do. Loads are
// estimates. Where they are wrong, as after storage has become slower, its queue grows, and the choices follow at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

namespace headrace {

struct Load {
  double bytes = 0, seconds = 0;
};

class Balance;

// The load of one image, as long as it is one. Not for two threads at a time.
class Share {
 public:
  Share() noexcept = default;
  Share(Balance& balance, const Load& load) noexcept : balance_(&balance), left_(load) {}
  ~Share() { end(); }
  Share(Share&& other) noexcept { *this = std::move(other); }
  Share& operator=(Share&& other) noexcept;

  void read(std::uint64_t bytes) noexcept;
  void end() noexcept;

 private:
  Balance* balance_ = nullptr;
  Load left_;
};

// Any thread may call its methods.
class Balance {
 public:
  explicit Balance(unsigned cores) noexcept : cores_(cores) {}

  // The number of the best of some loads, which becomes one from now on.
  std::size_t choose(std::span<const Load> loads, Share& share) noexcept;
  // Somebody waits for storage from now on, or nobody any more; `bytes_read` is what was read up to now in all.
  void storage_waits(bool waits, std::uint64_t bytes_read) noexcept;

 private:
  friend class Share;
  using Clock = std::chrono::steady_clock;

  void take_off(const Load& load) noexcept;
  void measure(std::uint64_t bytes_read) noexcept;

  const double cores_;
  std::mutex mutex_;
  Load all_;
  double rate_ = 0;  // bytes a second that storage gives while somebody waits for it; 0: nobody ever has
  bool waits_ = false;
  Clock::time_point since_;
  std::uint64_t bytes_since_ = 0;
  double seconds_ = 0, bytes_ = 0;  // of waits that were too short to be measured alone
};

}  // namespace headrace
