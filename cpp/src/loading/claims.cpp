// SPDX-License-Identifier: Apache-2.0
// Which thread does what next, and on whose core.
#include <algorithm>
#include <array>
#include <new>

#include "loading/engine_parts.h"

namespace headrace {
namespace {

// Images that wait, read, for someone else's decoder.
constexpr std::size_t kMostReady = 32;
constexpr std::size_t kMostReadyBytes = 256 << 20;
// Spare threads leave files alone that are larger than this and read as a whole: memory stays bounded.
constexpr std::uint64_t kMostSpareBytes = 8 << 20;
// Small images are taken several at once, as the lock would else be what threads wait for.
constexpr std::size_t kMostAtOnce = 16;
constexpr std::uint64_t kBytesAtOnce = 32 << 10;

}  // namespace

void CoreHold::begin(std::uint64_t order, bool held) noexcept {
  order_ = order;
  held_ = held;
}

void CoreHold::pause() noexcept {
  if (paused_) return;
  const std::lock_guard<std::mutex> lock(engine_.mutex_);
  paused_ = true;
  engine_.wait_for_storage(true);
  if (held_) engine_.core_came_free(false);
  held_ = false;
  engine_.storage_keeps_waiting();
}

void CoreHold::arrived(std::size_t n) noexcept {
  share.read(n);
  if (!paused_) return;
  const std::lock_guard<std::mutex> lock(engine_.mutex_);
  engine_.wait_for_storage(false);
  paused_ = false;
}

void CoreHold::resume() noexcept {
  if (held_) return;
  std::unique_lock<std::mutex> lock(engine_.mutex_);
  if (paused_) engine_.wait_for_storage(false);
  paused_ = false;
  if (engine_.cores_.free()) {
    engine_.cores_.take();
    held_ = true;
    return;
  }
  const auto begin = Clock::now();
  held_ = engine_.cores_.wait(lock, order_);
  waited_ns_ += since(begin);
}

void CoreHold::release() noexcept {
  if (!held_ && !paused_) return;
  const std::lock_guard<std::mutex> lock(engine_.mutex_);
  if (paused_) engine_.wait_for_storage(false);
  if (held_) engine_.core_came_free(comes_back_);
  held_ = paused_ = false;
}

void Engine::wait_for_storage(bool begins) noexcept {
  begins ? ++reading_ : --reading_;
  balance_.storage_waits(reading_ > 0, shards_.bytes_read());
}

void Engine::core_came_free(bool comes_back) noexcept {
  if (!cores_.give_back()) return;
  if (overlaps_ || has_own_work()) work_.notify_all();
  // Of the threads for foreign images there is one more than cores. Woken, it would take the place of the one that is
  // about to come back, which then sleeps, and so on in turn.
  if (!overlaps_ && !comes_back) foreign_work_.notify_all();
}

// Whether there is anything that a thread of ours would do while reads do not wait.
bool Engine::has_own_work() const noexcept {
  return !again_.empty() || std::any_of(queue_.begin(), queue_.end(), [](const auto& batch) {
    return batch->core_.left() > 0 || batch->open_.left() > 0;
  });
}

// Let one more thread find something to do.
void Engine::storage_keeps_waiting() noexcept {
  if (!overlaps_) {
    overlaps_ = true;
    cores_.hand_over(true);
    work_.notify_all();
  }
  if (queue_.empty() || closing_) return;
  if (idle_spares_ > 0) {
    spare_work_.notify_one();
  } else if (spares_ < kMostSpares) {
    try {
      threads_.emplace_back([this] { work(true); });
      ++spares_;
    } catch (const std::exception&) {
      spares_ = kMostSpares;  // the system has no more; those that run will do
    }
  }
}

bool Engine::claim(Claim& claim, bool spare) noexcept {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (closing_) return false;
      if (overlaps_ && !shards_.waits() && reading_ == 0) {
        overlaps_ = false;
        cores_.hand_over(false);
        foreign_work_.notify_all();
      }
      if ((overlaps_ || (!spare && cores_.free())) && find_job(claim, spare)) break;
      idle_spares_ += spare ? 1 : 0;
      (spare ? spare_work_ : work_).wait(lock);
      idle_spares_ -= spare ? 1 : 0;
    }
    claim.has_core = cores_.free();
    if (claim.has_core) cores_.take();
  }
  claim.gone.clear();
  if (shards_.hints()) hint_ahead(2 * claim.jobs.size());
  return true;
}

bool Engine::find_job(Claim& claim, bool spare) noexcept {
  claim.jobs.clear();
  try {
    if (!again_.empty() && ready_has_room()) {
      claim.jobs.push_back(again_.front().second);
      claim.batch = std::move(again_.front().first);
      again_.pop_front();
      return true;
    }
    for (const auto& batch : queue_) {
      Batch::Jobs* jobs = open_jobs(*batch, spare);
      if (!jobs) continue;
      const auto first = jobs->list.begin() + static_cast<std::ptrdiff_t>(jobs->claimed);
      const std::size_t n = jobs_at_once(*batch, *jobs);
      claim.jobs.assign(first, first + static_cast<std::ptrdiff_t>(n));
      claim.batch = batch;
      jobs->claimed += n;
      drop_claimed(claim.gone);
      return true;
    }
  } catch (const std::bad_alloc&) {
    // Then later: someone else goes on, and comes by here.
  }
  return false;
}

// The jobs of a batch that a thread of ours may take: of its kinds the one that is least far.
Batch::Jobs* Engine::open_jobs(Batch& batch, bool spare) const noexcept {
  Batch::Jobs* best = nullptr;
  const bool room = ready_has_room();
  for (Batch::Jobs* jobs : {&batch.core_, &batch.open_, &batch.foreign_}) {
    if (jobs->left() == 0) continue;
    if (jobs == &batch.open_ && !room) continue;
    // While reads do not wait, whoever decodes these reads them too.
    if (jobs == &batch.foreign_ && (!room || !overlaps_)) continue;
    const Rendition& next = batch.rendition(jobs->list[jobs->claimed]);
    if (spare && reads_whole(next.format) && next.length > kMostSpareBytes) continue;
    if (!best || jobs->behind(*best)) best = jobs;
  }
  return best;
}

std::size_t Engine::jobs_at_once(const Batch& batch, const Batch::Jobs& jobs) const noexcept {
  const std::size_t n = jobs.list.size();
  if (!overlaps_)
    return std::min(jobs.left(), std::clamp<std::size_t>(n / (std::size_t{cores_.count()} * 8), 1, kMostAtOnce));
  const std::size_t end = std::min(n, jobs.claimed + kMostAtOnce);
  std::size_t at = jobs.claimed;
  std::uint64_t bytes = 0;
  do {
    bytes += batch.rendition(jobs.list[at++]).length;
  } while (at < end && bytes < kBytesAtOnce);
  return at - jobs.claimed;
}

bool Engine::ready_has_room() const noexcept { return ready_.size() < kMostReady && ready_bytes_ < kMostReadyBytes; }

void Engine::drop_claimed(std::vector<std::shared_ptr<Batch>>& gone) noexcept {
  try {
    while (!queue_.empty() && queue_.front()->left() == 0) {
      gone.push_back(queue_.front());
      queue_.pop_front();
    }
  } catch (const std::bad_alloc&) {
    // Then with the next one.
  }
}

bool Engine::has_other(const Batch& batch, const Batch::Job& job) noexcept {
  const std::size_t n = batch.requests_[job.field].renditions.size();
  return n > 1 && job.failed != (1U << n) - 1 && batch.has_choice(job);
}

// The rendition that suits the moment, of those that have not failed.
void Engine::choose(const Batch& batch, Batch::Job& job, Share& share) noexcept {
  if (!has_other(batch, job)) return;
  const auto& renditions = batch.requests_[job.field].renditions;
  std::array<Load, kMostRenditions> loads;
  std::array<std::uint8_t, kMostRenditions> numbers{};
  std::size_t n = 0;
  for (std::size_t k = 0; k < renditions.size(); ++k) {
    if (job.failed >> k & 1) continue;
    const Rendition& r = renditions[k][job.position];
    const double ns = ledger_.expected_time(r.format, std::uint64_t{r.shape.height} * r.shape.width);
    loads[n] = {ledger_.expected_bytes(r.format, r.length), ns * 1e-9};
    numbers[n++] = static_cast<std::uint8_t>(k);
  }
  job.rendition = numbers[balance_.choose({loads.data(), n}, share)];
}

// Let someone do a job anew, from a rendition that has not failed. False if there is none.
bool Engine::try_again(const std::shared_ptr<Batch>& batch, Batch::Job job) noexcept {
  job.failed |= static_cast<std::uint8_t>(1U << job.rendition);
  if (!has_other(*batch, job)) return false;
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closing_) return false;
    again_.emplace_back(batch, job);
  } catch (const std::bad_alloc&) {
    return false;
  }
  failed_renditions_.fetch_add(1, std::memory_order_relaxed);
  work_.notify_all();
  return true;
}

// Ask the kernel for what will be read soon: up to `most` further images, not too far beyond those under way.
void Engine::hint_ahead(std::size_t most) noexcept {
  const std::size_t ahead = 16 + 4 * std::size_t{cores_.count()};
  for (std::size_t n = 0; n < most; ++n) {
    std::shared_ptr<Batch> batch;
    Batch::Job job{};
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::size_t distance = 0;
      for (const auto& candidate : queue_) {
        for (Batch::Jobs* jobs : {&candidate->core_, &candidate->foreign_}) {
          jobs->hinted = std::max(jobs->hinted, jobs->claimed);
          distance += jobs->hinted - jobs->claimed;
          if (batch || jobs->hinted == jobs->list.size()) continue;
          job = jobs->list[jobs->hinted];
          batch = candidate;
          if (distance >= ahead) return;
          ++jobs->hinted;
        }
        if (batch) break;
        if (distance >= ahead) return;
      }
    }
    if (!batch) return;
    hint(*batch, job);
  }
}

void Engine::hint(const Batch& batch, const Batch::Job& job) noexcept {
  constexpr std::uint64_t kWhole = 256 << 10;
  const Rendition& r = batch.rendition(job);
  if (!shards_.check(r.shard, r.offset, r.length)) return;
  Program program;
  if (r.length <= kWhole || reads_whole(r.format) ||
      !make_program(batch.transform(job).ops, r.shape.height, r.shape.width, batch.key(job), program))
    return shards_.hint(r.shard, r.offset, r.length);
  // The rows of the crop lie in about their share of the file.
  const Axis& rows = program.passes[0].rows;
  const double share = static_cast<double>(r.length) / rows.input, margin = static_cast<double>(r.length) / 16;
  const auto begin = static_cast<std::uint64_t>(std::max(0.0, rows.start * share - margin));
  const auto end = std::min(r.length, static_cast<std::uint64_t>((rows.start + rows.size) * share + margin));
  if (begin > 0) shards_.hint(r.shard, r.offset, 16 << 10);
  shards_.hint(r.shard, r.offset + begin, end - begin);
}

}  // namespace headrace
