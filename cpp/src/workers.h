// SPDX-License-Identifier: Apache-2.0
// Threads for the length of one call. There is no pool: nothing outlives the call, so nothing is lost by a fork.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>

#include "headrace/status.h"
#include "platform/platform.h"
#include "thread_safety.h"

namespace headrace {

struct KeptMemory {
  void* p = nullptr;
  std::size_t bytes = 0;
  ~KeptMemory() { platform::free_aligned(p); }
};

// Memory, 64-byte aligned, zeroed when it is new; false if there was none. A thread keeps its last one: to map and
// fault in fresh pages costs more than to decode a small image.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) noexcept {
    if (kept_.bytes >= bytes) {
      p_ = kept_.p;
      bytes_ = kept_.bytes;
      kept_.p = nullptr;
      kept_.bytes = 0;
      return;
    }
    bytes_ = (bytes + 63) / 64 * 64;
    p_ = platform::allocate_aligned(64, bytes_);
    if (p_) std::memset(p_, 0, bytes_);
  }
  ~Scratch() {
    if (p_ && bytes_ <= kKept && bytes_ > kept_.bytes) {
      platform::free_aligned(kept_.p);
      kept_.p = p_;
      kept_.bytes = bytes_;
    } else {
      platform::free_aligned(p_);
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  explicit operator bool() const noexcept { return p_ != nullptr; }
  std::uint8_t* get() const noexcept { return static_cast<std::uint8_t*>(p_); }

 private:
  static constexpr std::size_t kKept = std::size_t{8} << 20;
  static inline thread_local KeptMemory kept_;

  void* p_ = nullptr;
  std::size_t bytes_ = 0;
};

// Keeps the failure that lies first in the file, so that the same damage is reported whatever the number of threads.
class FirstFailure {
 public:
  explicit operator bool() const noexcept { return failed_.load(std::memory_order_relaxed); }
  void set(Status s) noexcept {
    const MutexLock lock(mutex_);
    if (status_ || s.offset < status_.offset) status_ = s;
    failed_.store(true, std::memory_order_relaxed);
  }
  Status get() const noexcept { return status_; }

 private:
  Mutex mutex_;
  std::atomic<bool> failed_{false};
  Status status_;
};

// The number of threads requested (0: one per core), but no more than pay off: starting a thread takes as long as
// decoding tens of thousands of samples.
inline unsigned useful_threads(unsigned requested, std::uint64_t samples) noexcept {
  // Asked once: the C library opens a file to answer.
  static const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  const std::uint64_t worth = std::max<std::uint64_t>(1, samples / 100'000);
  return static_cast<unsigned>(std::min<std::uint64_t>({requested == 0 ? cores : requested, worth, 256}));
}

// Run `work(i)` on `threads` threads numbered from 0, which is the caller's own. If a thread cannot be started, the
// others do its share.
template <class Work>
inline void run_workers(unsigned threads, const Work& work) noexcept {
  std::thread others[256];
  unsigned started = 0;
  for (; started + 1 < threads; ++started) {
    try {
      others[started] = std::thread([&work, started] { work(started + 1); });
    } catch (const std::system_error&) {
      break;
    }
  }
  work(0U);
  for (unsigned i = 0; i < started; ++i) others[i].join();
}

}  // namespace headrace
