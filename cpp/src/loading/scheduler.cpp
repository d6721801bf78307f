// SPDX-License-Identifier: Apache-2.0
#include "loading/scheduler.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "loading/costs.h"
#include "loading/external_image.h"

namespace headrace {
namespace {

// Threads in addition to one per core. When a dataset mixes formats, sometimes storage and sometimes the cores have the
// longer queue; the more jobs are in progress, the less often one of the two idles.
constexpr unsigned kMaxExtraThreads = 32;
// Images that have been read and wait for an external decoder.
constexpr std::size_t kMaxReady = 32;
constexpr std::size_t kMaxReadyBytes = 256 << 20;
// Extra threads do not read files that are larger than this and read at once: this bounds memory.
constexpr std::uint64_t kMaxExtraBytes = 8 << 20;
// Small images are claimed several at a time, or threads would wait for the mutex.
constexpr std::size_t kMaxAtOnce = 16;
constexpr std::uint64_t kBytesAtOnce = 32 << 10;

std::chrono::nanoseconds to_nanoseconds(double seconds) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

void CoreLease::pause() noexcept {
  if (waits_for_storage_) return;
  waits_for_storage_ = true;
  scheduler_.begin_storage_wait(has_core_);
  has_core_ = false;
}

void CoreLease::arrived(std::size_t n_bytes) noexcept {
  reservation.subtract_read(n_bytes);
  if (!waits_for_storage_) return;
  scheduler_.end_storage_wait();
  waits_for_storage_ = false;
}

void CoreLease::resume() noexcept {
  if (has_core_) return;
  has_core_ = scheduler_.acquire_core(order_, waits_for_storage_, waited_ns_);
  waits_for_storage_ = false;
}

void CoreLease::release() noexcept {
  if (!has_core_ && !waits_for_storage_) return;
  scheduler_.release_core(has_core_, waits_for_storage_, comes_back_);
  has_core_ = waits_for_storage_ = false;
}

Scheduler::Scheduler(unsigned cores, const Shards& shards, LoadBalancer& balancer)
    : n_cores_(cores), shards_(shards), balancer_(balancer), cores_(cores) {}

Scheduler::~Scheduler() {
  stop();
  join();
}

void Scheduler::start(std::function<void(bool extra)> work) {
  work_ = std::move(work);
  const MutexLock lock(mutex_);
  threads_.reserve(n_cores_ + kMaxExtraThreads);
  try {
    for (unsigned i = 0; i < n_cores_; ++i) threads_.emplace_back([this] { work_(false); });
  } catch (const std::system_error&) {
    if (threads_.empty()) throw;  // fewer than requested are enough
  }
}

void Scheduler::stop() noexcept {
  std::deque<std::unique_ptr<ExternalImage>> ready;
  std::deque<QueuedBatch> queue;
  std::deque<Task> retries;
  {
    const MutexLock lock(mutex_);
    stopped_.store(true);
    for (QueuedBatch& queued : queue_) {
      queued.batch->cancel();
      queued.batch->end_jobs(queued.jobs.unclaimed());
    }
    queue.swap(queue_);
    for (const Task& task : retries_) {
      task.batch->cancel();
      task.batch->end_jobs();
    }
    retries.swap(retries_);
    for (const auto& image : ready_) image->task().batch->cancel();
    ready.swap(ready_);
    cores_.close();
  }
  for (std::condition_variable* each : {&core_work_, &extra_work_, &external_work_}) each->notify_all();
}

void Scheduler::join() noexcept {
  const MutexLock joining(join_mutex_);  // so that every caller returns after the threads have
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    threads.swap(threads_);
  }
  for (auto& thread : threads)
    if (thread.joinable()) thread.join();
}

bool Scheduler::submit(const std::shared_ptr<Batch>& batch, BatchJobs jobs) {
  const bool has_external = !jobs.external.jobs.empty();
  bool overlaps = false;
  {
    const MutexLock lock(mutex_);
    if (stopped_) return false;
    queue_.push_back({batch, n_submitted_, std::move(jobs)});
    ++n_submitted_;
    overlaps = overlaps_;
  }
  core_work_.notify_all();
  if (overlaps) extra_work_.notify_all();
  if (has_external) external_work_.notify_all();
  return true;
}

bool Scheduler::claim(JobClaim& claim, bool extra) noexcept {
  std::vector<QueuedBatch> claimed;  // released after the mutex
  MutexLock lock(mutex_);
  for (;;) {
    if (stopped_) return false;
    if (overlaps_ && !shards_.waits() && n_waiting_for_storage_ == 0) {
      overlaps_ = false;
      cores_.allow_one_more(false);
      external_work_.notify_all();
    }
    if ((overlaps_ || (!extra && cores_.free())) && find_jobs(claim, extra, claimed)) break;
    if (!work_) return false;
    n_idle_extra_threads_ += extra ? 1 : 0;
    (extra ? extra_work_ : core_work_).wait(lock.native());
    n_idle_extra_threads_ -= extra ? 1 : 0;
  }
  claim.has_core = cores_.free();
  if (claim.has_core) cores_.take();
  return true;
}

bool Scheduler::find_jobs(JobClaim& claim, bool extra, std::vector<QueuedBatch>& claimed) noexcept {
  claim.jobs.clear();
  try {
    if (!retries_.empty() && ready_has_room()) {
      Task& task = retries_.front();
      claim.jobs.push_back(task.job);
      claim.batch = std::move(task.batch);
      claim.batch_number = task.batch_number;
      retries_.pop_front();
      return true;
    }
    for (QueuedBatch& queued : queue_) {
      JobList* list = best_list(queued, extra);
      if (!list) continue;
      const auto first = list->jobs.begin() + static_cast<std::ptrdiff_t>(list->n_claimed);
      const std::size_t n = jobs_at_once(*queued.batch, *list);
      claim.jobs.assign(first, first + static_cast<std::ptrdiff_t>(n));
      claim.batch = queued.batch;
      claim.batch_number = queued.number;
      list->n_claimed += n;
      remove_claimed(claimed);
      return true;
    }
  } catch (const std::bad_alloc&) {
    // The jobs stay in the queue for the next thread that claims.
  }
  return false;
}

// The jobs of a batch that a thread of the engine may claim: of the kinds that it may, the one that is behind.
JobList* Scheduler::best_list(QueuedBatch& queued, bool extra) const noexcept {
  JobList* best = nullptr;
  const bool room = ready_has_room();
  for (JobList* list : {&queued.jobs.core, &queued.jobs.either, &queued.jobs.external}) {
    if (list->unclaimed() == 0) continue;
    if (list == &queued.jobs.either && !room) continue;
    // While reads do not wait, external decoders' threads also read.
    if (list == &queued.jobs.external && (!room || !overlaps_)) continue;
    const Rendition& next = queued.batch->rendition(list->jobs[list->n_claimed]);
    if (extra && reads_entire_file(next.format) && next.length > kMaxExtraBytes) continue;
    if (!best || list->behind(*best)) best = list;
  }
  return best;
}

std::size_t Scheduler::jobs_at_once(const Batch& batch, const JobList& list) const noexcept {
  const std::size_t n = list.jobs.size();
  if (!overlaps_)
    return std::min(list.unclaimed(), std::clamp<std::size_t>(n / (std::size_t{n_cores_} * 8), 1, kMaxAtOnce));
  const std::size_t end = std::min(n, list.n_claimed + kMaxAtOnce);
  std::size_t at = list.n_claimed;
  std::uint64_t bytes = 0;
  do {
    bytes += batch.rendition(list.jobs[at++]).length;
  } while (at < end && bytes < kBytesAtOnce);
  return at - list.n_claimed;
}

bool Scheduler::ready_has_room() const noexcept { return ready_.size() < kMaxReady && ready_bytes_ < kMaxReadyBytes; }

void Scheduler::remove_claimed(std::vector<QueuedBatch>& claimed) noexcept {
  try {
    while (!queue_.empty() && queue_.front().jobs.unclaimed() == 0) {
      claimed.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
  } catch (const std::bad_alloc&) {
    // The next claim removes it.
  }
}

bool Scheduler::claim_external(ExternalClaim& claim, double seconds) noexcept {
  std::vector<QueuedBatch> claimed;  // released after the mutex
  const auto deadline = Clock::now() + to_nanoseconds(seconds);
  MutexLock lock(mutex_);
  for (;;) {
    if (stopped_) return false;
    if (!ready_.empty()) {
      take_ready(claim);
      return true;
    }
    if (!overlaps_ && cores_.free()) {
      for (QueuedBatch& queued : queue_) {
        JobList& list = queued.jobs.external;
        if (list.unclaimed() == 0) continue;
        claim.task = {queued.batch, queued.number, list.jobs[list.n_claimed++]};
        remove_claimed(claimed);
        cores_.take();
        return true;
      }
    }
    if (external_work_.wait_until(lock.native(), deadline) == std::cv_status::timeout) return false;
  }
}

void Scheduler::take_ready(ExternalClaim& claim) noexcept {
  const auto first = std::min_element(
      ready_.begin(), ready_.end(), [](const auto& a, const auto& b) { return a->task().order() < b->task().order(); });
  const bool had_room = ready_has_room();
  claim.ready = std::move(*first);
  ready_.erase(first);
  ready_bytes_ -= claim.ready->data().size();
  if (had_room) return;
  core_work_.notify_all();
  extra_work_.notify_all();
}

void Scheduler::add_ready(std::unique_ptr<ExternalImage>& image) noexcept {
  const std::size_t n_bytes = image->data().size();
  {
    const MutexLock lock(mutex_);
    if (stopped_) return;
    try {
      ready_.push_back(std::move(image));
      ready_bytes_ += n_bytes;
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  external_work_.notify_one();
}

bool Scheduler::retry(const Task& task) noexcept {
  try {
    const MutexLock lock(mutex_);
    if (stopped_) return false;
    retries_.push_back(task);
  } catch (const std::bad_alloc&) {
    return false;
  }
  core_work_.notify_all();
  return true;
}

bool Scheduler::next_to_hint(Task& task) noexcept {
  const std::size_t max_ahead = 16 + 4 * std::size_t{n_cores_};
  const MutexLock lock(mutex_);
  std::size_t ahead = 0;
  for (QueuedBatch& queued : queue_) {
    bool found = false;
    for (JobList* list : {&queued.jobs.core, &queued.jobs.external}) {
      list->n_hinted = std::max(list->n_hinted, list->n_claimed);
      ahead += list->n_hinted - list->n_claimed;
      if (found || list->n_hinted == list->jobs.size()) continue;
      if (ahead >= max_ahead) return false;
      task = {queued.batch, queued.number, list->jobs[list->n_hinted++]};
      found = true;
    }
    if (found) return true;
    if (ahead >= max_ahead) return false;
  }
  return false;
}

void Scheduler::begin_storage_wait(bool has_core) noexcept {
  const MutexLock lock(mutex_);
  count_storage_wait(true);
  if (has_core) on_core_free(false);
  use_storage_wait();
}

void Scheduler::end_storage_wait() noexcept {
  const MutexLock lock(mutex_);
  count_storage_wait(false);
}

bool Scheduler::acquire_core(std::uint64_t order, bool waits_for_storage, std::uint64_t& waited_ns) noexcept {
  MutexLock lock(mutex_);
  if (waits_for_storage) count_storage_wait(false);
  if (cores_.free()) {
    cores_.take();
    return true;
  }
  const auto begin = Clock::now();
  const bool acquired = cores_.wait(lock, order);
  waited_ns += nanoseconds_since(begin);
  return acquired;
}

void Scheduler::release_core(bool has_core, bool waits_for_storage, bool comes_back) noexcept {
  const MutexLock lock(mutex_);
  if (waits_for_storage) count_storage_wait(false);
  if (has_core) on_core_free(comes_back);
}

void Scheduler::count_storage_wait(bool begins) noexcept {
  begins ? ++n_waiting_for_storage_ : --n_waiting_for_storage_;
  balancer_.storage_waits(n_waiting_for_storage_ > 0, shards_.bytes_read());
}

void Scheduler::on_core_free(bool comes_back) noexcept {
  if (!cores_.give_back()) return;
  if (overlaps_ || has_core_work()) core_work_.notify_all();
  // There is one more thread for external images than cores. If it were woken, it would take the core of the thread
  // that is about to come back, which would then sleep, and so on in turn.
  if (!overlaps_ && !comes_back) external_work_.notify_all();
}

// Is there a job for the engine's own threads while reads do not wait?
bool Scheduler::has_core_work() const noexcept {
  return !retries_.empty() || std::any_of(queue_.begin(), queue_.end(), [](const QueuedBatch& queued) {
    return queued.jobs.core.unclaimed() > 0 || queued.jobs.either.unclaimed() > 0;
  });
}

// A thread waits for storage: let another one claim a job meanwhile.
void Scheduler::use_storage_wait() noexcept {
  if (!overlaps_) {
    overlaps_ = true;
    cores_.allow_one_more(true);
    core_work_.notify_all();
  }
  if (queue_.empty() || stopped_ || !work_) return;
  if (n_idle_extra_threads_ > 0) {
    extra_work_.notify_one();
  } else if (n_extra_threads_ < kMaxExtraThreads) {
    try {
      threads_.emplace_back([this] { work_(true); });
      ++n_extra_threads_;
    } catch (const std::exception&) {
      n_extra_threads_ = kMaxExtraThreads;  // the system has no more threads: go on with those that run
    }
  }
}

std::size_t Scheduler::queued_jobs() const noexcept {
  const MutexLock lock(mutex_);
  std::size_t n = ready_.size() + retries_.size();
  for (const QueuedBatch& queued : queue_) n += queued.jobs.unclaimed();
  return n;
}

std::size_t Scheduler::busy_cores() const noexcept {
  const MutexLock lock(mutex_);
  return cores_.busy();
}

}  // namespace headrace
