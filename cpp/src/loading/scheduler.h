// SPDX-License-Identifier: Apache-2.0
// Decides which thread does which job next, and which threads may compute.
//
// At most `cores` threads compute at a time, and one more while reads wait (loading/cores.h). A thread whose read waits
// for storage gives its core to another thread.
// While reads wait, up to kMaxExtraThreads more threads are started, so that storage always has several requests and
// all cores stay busy. If reads do not wait, as from the page cache, none of this happens.
//
// Locking. One mutex guards the queues, the cores and the list of threads. Batches and images are released without it:
// their destructors take other locks, and some take this one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "loading/balance.h"
#include "loading/batch.h"
#include "loading/cores.h"
#include "loading/shards.h"
#include "thread_safety.h"

namespace headrace {

class ExternalImage;

// Jobs of one batch, claimed by one thread.
struct JobClaim {
  std::shared_ptr<Batch> batch;
  std::uint64_t batch_number = 0;
  std::vector<Job> jobs;
  bool has_core = false;

  Task task(const Job& job) const { return {batch, batch_number, job}; }
};

// What a thread with an external decoder does next: an image whose bytes have been read, or a job to read first.
struct ExternalClaim {
  std::unique_ptr<ExternalImage> ready;
  Task task;  // if `ready` is null; its thread has been given a core
};

// All methods may be called from any thread.
class Scheduler {
 public:
  // References must outlive it.
  Scheduler(unsigned cores, const Shards& shards, LoadBalancer& balancer);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Start one thread per core; extra threads follow when reads wait. `work` is called in each, with true in the extra
  // ones, and must return when `claim` returns false. Throws std::system_error if no thread can be started.
  void start(std::function<void(bool extra)> work) EXCLUDES(mutex_);
  // End all jobs that nobody has claimed and let every wait return. May be called several times.
  void stop() noexcept EXCLUDES(mutex_);
  // Wait for the threads to return, after `stop`.
  void join() noexcept EXCLUDES(mutex_, join_mutex_);
  bool stopped() const noexcept { return stopped_.load(); }

  // Queue a batch; false if stopped. Throws std::bad_alloc.
  bool submit(const std::shared_ptr<Batch>& batch, BatchJobs jobs) EXCLUDES(mutex_);
  // Wait for jobs; false if stopped, or if there are none now and no threads were started.
  bool claim(JobClaim& claim, bool extra) noexcept EXCLUDES(mutex_);
  // Wait for an external decoder's next image; false if there is none after `seconds`, or if stopped.
  bool claim_external(ExternalClaim& claim, double seconds) noexcept EXCLUDES(mutex_);
  // Queue an image whose bytes have been read. Keeps `image` only if it succeeds.
  void add_ready(std::unique_ptr<ExternalImage>& image) noexcept EXCLUDES(mutex_);
  // Queue a job again, whose rendition has failed; false if stopped or out of memory.
  bool retry(const Task& task) noexcept EXCLUDES(mutex_);
  // The next job for which the kernel has not been asked to read ahead; false if there is none nearby.
  bool next_to_hint(Task& task) noexcept EXCLUDES(mutex_);

  // For CoreLease, which describes them.
  void begin_storage_wait(bool has_core) noexcept EXCLUDES(mutex_);
  void end_storage_wait() noexcept EXCLUDES(mutex_);
  bool acquire_core(std::uint64_t order, bool waits_for_storage, std::uint64_t& waited_ns) noexcept EXCLUDES(mutex_);
  void release_core(bool has_core, bool waits_for_storage, bool comes_back) noexcept EXCLUDES(mutex_);

  unsigned cores() const noexcept { return n_cores_; }
  std::size_t queued_jobs() const noexcept EXCLUDES(mutex_);
  std::size_t busy_cores() const noexcept EXCLUDES(mutex_);

 private:
  struct QueuedBatch {
    std::shared_ptr<Batch> batch;
    std::uint64_t number = 0;
    BatchJobs jobs;
  };

  bool find_jobs(JobClaim& claim, bool extra, std::vector<QueuedBatch>& claimed) noexcept REQUIRES(mutex_);
  JobList* best_list(QueuedBatch& queued, bool extra) const noexcept REQUIRES(mutex_);
  std::size_t jobs_at_once(const Batch& batch, const JobList& list) const noexcept REQUIRES(mutex_);
  bool has_core_work() const noexcept REQUIRES(mutex_);
  bool ready_has_room() const noexcept REQUIRES(mutex_);
  void take_ready(ExternalClaim& claim) noexcept REQUIRES(mutex_);
  // Move batches without unclaimed jobs out of the queue, for the caller to release without the mutex.
  void remove_claimed(std::vector<QueuedBatch>& claimed) noexcept REQUIRES(mutex_);
  void on_core_free(bool comes_back) noexcept REQUIRES(mutex_);
  void count_storage_wait(bool begins) noexcept REQUIRES(mutex_);
  void use_storage_wait() noexcept REQUIRES(mutex_);

  const unsigned n_cores_;
  const Shards& shards_;
  LoadBalancer& balancer_;
  std::function<void(bool)> work_;    // empty if no threads were started; constant after `start`
  std::atomic<bool> stopped_{false};  // written with the mutex held, so that waits do not miss it

  mutable Mutex mutex_;
  std::condition_variable core_work_, extra_work_, external_work_;
  Cores cores_ GUARDED_BY(mutex_);
  std::deque<QueuedBatch> queue_ GUARDED_BY(mutex_);
  std::deque<Task> retries_ GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<ExternalImage>> ready_ GUARDED_BY(mutex_);  // read, and waiting for an external decoder
  std::size_t ready_bytes_ GUARDED_BY(mutex_) = 0;
  std::uint64_t n_submitted_ GUARDED_BY(mutex_) = 0;
  bool overlaps_ GUARDED_BY(mutex_) = false;  // reads wait for storage, so other jobs can be done meanwhile
  std::size_t n_waiting_for_storage_ GUARDED_BY(mutex_) = 0;  // threads
  unsigned n_extra_threads_ GUARDED_BY(mutex_) = 0, n_idle_extra_threads_ GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);

  Mutex join_mutex_;  // taken before mutex_
};

// The right of one thread to compute, lent by the scheduler. Used by one thread at a time.
class CoreLease final : public ReadObserver {
 public:
  // `comes_back`: the thread claims its next job at once, so no other one needs to be woken when it releases its core.
  explicit CoreLease(Scheduler& scheduler, bool comes_back = false) noexcept
      : scheduler_(scheduler), comes_back_(comes_back) {}
  ~CoreLease() override { release(); }
  CoreLease(const CoreLease&) = delete;
  CoreLease& operator=(const CoreLease&) = delete;

  // Begin another job, with or without a core. A lower `order` is served earlier.
  void begin(std::uint64_t order, bool has_core) noexcept {
    order_ = order;
    has_core_ = has_core;
  }
  // Give the core to another thread while storage is slow.
  void pause() noexcept override;
  void arrived(std::size_t n_bytes) noexcept override;
  // Wait for a core. It may return without one, when the scheduler stops or has no memory.
  void resume() noexcept override;
  void release() noexcept;
  // Total time of waiting for a core.
  std::uint64_t waited_ns() const noexcept { return waited_ns_; }

  LoadReservation reservation;  // of the current image

 private:
  Scheduler& scheduler_;
  const bool comes_back_;
  std::uint64_t order_ = 0, waited_ns_ = 0;
  bool has_core_ = false, waits_for_storage_ = false;
};

}  // namespace headrace
