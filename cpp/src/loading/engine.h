// SPDX-License-Identifier: Apache-2.0
// Threads that read, decode and transform the images of batches, in the order of submission. Nothing here knows Python.
//
// The engine owns the parts that its threads share, each safe to use from any thread: the shards (reads), the pool
// (memory), the scheduler (threads, cores and jobs), the balancer and the cost table (choice of renditions). It has no
// lock of its own. See cpp/README.md for the path of an image.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "loading/balance.h"
#include "loading/batch.h"
#include "loading/costs.h"
#include "loading/external_image.h"
#include "loading/scheduler.h"
#include "loading/shards.h"

namespace headrace {

struct EngineStats {
  Costs all;
  std::array<Costs, kFormats> formats;  // indexed by format code
  std::uint64_t bytes_read = 0, failed_renditions = 0;
  std::size_t queued_jobs = 0, active = 0, blocks_in_use = 0;
};

// All methods may be called from any thread.
class Engine {
 public:
  // Without threads (0), jobs are done in `run_queued` only. A `storage_rate` of 0 is unlimited; bit k of `formats`:
  // the dataset has the format with code k. If it has one that the core does not decode, some thread must call
  // next_external until the engine is closed. Throws std::system_error if no thread can be started, and std::bad_alloc.
  Engine(std::vector<Shard> shards, unsigned threads, bool direct, double storage_rate,
         std::vector<Identity> identities = {}, std::uint32_t formats = ~0U);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queue a batch. Problems of single samples are failures of the batch. Null if closed or out of memory.
  std::shared_ptr<Batch> submit(std::vector<FieldRequest> fields, std::vector<std::uint64_t> rows, std::uint64_t seed,
                                std::uint32_t epoch) noexcept;
  // For an engine without threads: do queued jobs in the calling thread until none is left or `seconds` have passed.
  void run_queued(double seconds) noexcept;
  // Wait for the next image for an external decoder, with its bytes read; null after `seconds` or if closed.
  std::unique_ptr<ExternalImage> next_external(double seconds) noexcept;
  // Limit reads to this many bytes per second; 0 removes the limit.
  void set_storage_rate(double rate) noexcept { shards_.set_rate(rate); }
  // Memory from the batches' pool, for batches that are made elsewhere; null if there is none.
  std::shared_ptr<Block> memory(std::size_t size) noexcept { return pool_->acquire_present(size); }
  EngineStats stats() const noexcept;
  // Cancel jobs that have not begun and end the threads. May be called several times.
  void close() noexcept;
  bool closed() const noexcept { return scheduler_.stopped(); }
  const Shards& shards() const noexcept { return shards_; }
  const BatchLimits& limits() const noexcept { return limits_; }

 private:
  struct Worker;

  void work(bool extra, Clock::time_point deadline = Clock::time_point::max()) noexcept;
  void run(Worker& worker, const JobClaim& claim, Job job, bool last) noexcept;
  Status decode(Worker& worker, const Batch& batch, const Job& job, Costs& costs) noexcept;
  Status read_tensor(Worker& worker, const Batch& batch, const Job& job, Costs& costs) noexcept;
  void read_external(Worker& worker, Task task, Costs& costs) noexcept;
  std::unique_ptr<ExternalImage> make_external(Task task) noexcept;
  void choose_rendition(const Batch& batch, Job& job, LoadReservation& reservation) noexcept;
  void hint_ahead(std::size_t max_images) noexcept;
  void hint(const Batch& batch, const Job& job) noexcept;

  const BatchLimits limits_;
  const bool has_threads_;
  Shards shards_;
  CostTable costs_;
  LoadBalancer balancer_;
  const std::shared_ptr<Pool> pool_;
  Scheduler scheduler_;  // last: its threads use the others
};

}  // namespace headrace
