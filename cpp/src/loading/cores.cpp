// SPDX-License-Identifier: Apache-2.0
#include "loading/cores.h"

#include <algorithm>
#include <new>

namespace headrace {

bool Cores::wait(MutexLock& lock, std::uint64_t order) noexcept {
  if (closed_) return false;
  if (free()) {
    take();
    return true;
  }
  Waiting mine{order, false, {}};
  try {
    waiting_.push_back(&mine);
  } catch (const std::bad_alloc&) {
    return false;  // the thread computes without a core
  }
  mine.changed.wait(lock.native(), [&] { return mine.served || closed_; });
  if (!mine.served) waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &mine));
  return mine.served;
}

bool Cores::give_back() noexcept {
  if (waiting_.empty() || busy_ > max_busy()) return busy_-- == max_busy();
  const auto first = std::min_element(waiting_.begin(), waiting_.end(),
                                      [](const Waiting* a, const Waiting* b) { return a->order < b->order; });
  Waiting& next = **first;
  waiting_.erase(first);
  next.served = true;
  next.changed.notify_one();  // with the mutex held: else `next` might be gone
  return false;
}

void Cores::close() noexcept {
  closed_ = true;
  for (Waiting* each : waiting_) each->changed.notify_one();
}

}  // namespace headrace
