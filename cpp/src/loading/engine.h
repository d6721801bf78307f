// SPDX-License-Identifier: Apache-2.0
// Threads that read, decode and transform the images of batches, in the order in which they were submitted, into memory
// that is used again. Nothing here knows Python.
//
// At most `threads` of them compute at a time. While a read waits for storage its thread leaves its core to another,
// and more threads are started, up to a limit, so that storage has as much to do as it can take while all cores are
// busy. Where reads do not wait, as from the page cache, nothing of this happens.
//
// A sample with several renditions is read from the one that suits the moment (loading/balance.h).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loading/balance.h"
#include "loading/batch.h"
#include "loading/cores.h"
#include "loading/ledger.h"
#include "loading/shards.h"

namespace headrace {

class Engine;

// A thread's hold on a core, for the work that it has at hand.
class CoreHold final : public Reader {
 public:
  // A thread that `comes_back` for other work of its kind at once needs nobody to be woken for it.
  explicit CoreHold(Engine& engine, bool comes_back = false) noexcept : engine_(engine), comes_back_(comes_back) {}
  ~CoreHold() override { release(); }
  CoreHold(const CoreHold&) = delete;
  CoreHold& operator=(const CoreHold&) = delete;

  // Begin with other work, with or without a core; `order` is lower for what is wanted earlier.
  void begin(std::uint64_t order, bool held) noexcept;
  void pause() noexcept override;
  void arrived(std::size_t n) noexcept override;
  void resume() noexcept override;
  void release() noexcept;
  // How long it has waited for a core since it was made.
  std::uint64_t waited_ns() const noexcept { return waited_ns_; }

  Share share;  // of the image at hand

 private:
  Engine& engine_;
  const bool comes_back_;
  std::uint64_t order_ = 0, waited_ns_ = 0;
  bool held_ = false, paused_ = false;
};

// An image in a format that the core does not decode. Whoever took it decodes it and calls finish or fail, once.
class Foreign {
 public:
  ~Foreign();
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  bool ended() const noexcept { return ended_; }  // already, as its bytes could not be read
  Bytes data() const noexcept { return extent_.bytes; }
  const Rendition& rendition() const noexcept;
  const Transform& transform() const noexcept;
  std::uint32_t position() const noexcept { return job_.position; }
  std::uint32_t field() const noexcept { return job_.field; }
  // Transform the decoded image, channels as the transform's colour asks, and put it into the batch.
  void finish(const Picture& picture) noexcept;
  void fail(std::string kind, std::string message) noexcept;

 private:
  friend class Engine;
  Foreign(Engine& engine, std::shared_ptr<Batch> batch, Batch::Job job) noexcept;
  std::uint64_t order() const noexcept;
  void read(CoreHold& hold, Costs& costs) noexcept;  // ends it if that fails
  void begin() noexcept;
  void end() noexcept;
  void add_costs(std::uint64_t decode_ns, std::uint64_t transform_ns) noexcept;

  Engine& engine_;
  std::shared_ptr<Batch> batch_;
  Batch::Job job_;
  CoreHold hold_;
  Buffer file_;
  Extent extent_;
  std::chrono::steady_clock::time_point begun_;
  std::uint64_t cpu_begun_ = 0;
  std::thread::id thread_;
  bool ended_ = false;
};

struct EngineStats {
  Costs all;
  std::array<Costs, kFormats> formats;  // by their codes
  std::uint64_t bytes_read = 0, failed_renditions = 0;
  std::size_t queued_jobs = 0, active = 0, blocks_in_use = 0;
};

class Engine {
 public:
  // `threads` at least 1; a rate of 0 is no limit; bit k of `formats`: the dataset has the format of code k. Whoever
  // names a format that the core does not decode must call next_foreign until it is closed. Throws std::system_error if
  // no thread can be started, std::bad_alloc.
  Engine(std::vector<Shard> shards, unsigned threads, bool direct, double storage_rate, Identity identity = {},
         std::uint32_t formats = ~0U);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queue a batch. What is wrong with single samples shows as failures of the batch. Null when closed or out of memory.
  std::shared_ptr<Batch> submit(std::vector<FieldRequest> fields, std::vector<std::uint64_t> rows, std::uint64_t seed,
                                std::uint32_t epoch) noexcept;
  // The next image for someone else's decoder; null after `seconds`. Its bytes have been read.
  std::unique_ptr<Foreign> next_foreign(double seconds) noexcept;
  // Read no faster than this many bytes a second; 0 lifts the limit. At any time.
  void set_storage_rate(double rate) noexcept { shards_.set_rate(rate); }
  // Memory from where batches have theirs, for those that were made elsewhere; null if there is none.
  std::shared_ptr<Block> memory(std::size_t size) noexcept { return pool_->acquire_present(size); }
  EngineStats stats() const noexcept;
  // Give up what was not begun and end the threads. Any thread may call it, any number of times.
  void close() noexcept;
  bool closed() const noexcept { return closing_.load(); }
  const Shards& shards() const noexcept { return shards_; }
  const BatchLimits& limits() const noexcept { return limits_; }

 private:
  friend class CoreHold;
  friend class Foreign;
  struct Claim;
  struct Worker;

  void work(bool spare) noexcept;
  void run(Worker& worker, const Claim& claim, Batch::Job job, bool last) noexcept;
  Status decode(Worker& worker, Batch& batch, const Batch::Job& job, Costs& costs) noexcept;
  void read_foreign(Worker& worker, const std::shared_ptr<Batch>& batch, const Batch::Job& job, Costs& costs) noexcept;

  bool claim(Claim& claim, bool spare) noexcept;
  // Under the mutex.
  bool find_job(Claim& claim, bool spare) noexcept;
  Batch::Jobs* open_jobs(Batch& batch, bool spare) const noexcept;
  std::size_t jobs_at_once(const Batch& batch, const Batch::Jobs& jobs) const noexcept;
  bool has_own_work() const noexcept;
  bool ready_has_room() const noexcept;
  // Batches of which nothing is left to claim leave the queue; whoever calls it lets go of them without the mutex, as
  // what a batch holds needs the pool's lock to end.
  void drop_claimed(std::vector<std::shared_ptr<Batch>>& gone) noexcept;
  void core_came_free(bool comes_back) noexcept;
  void wait_for_storage(bool begins) noexcept;
  void storage_keeps_waiting() noexcept;

  static bool has_other(const Batch& batch,
                        const Batch::Job& job) noexcept;  // rendition, that has not failed
  void choose(const Batch& batch, Batch::Job& job, Share& share) noexcept;
  bool try_again(const std::shared_ptr<Batch>& batch, Batch::Job job) noexcept;
  void hint_ahead(std::size_t most) noexcept;
  void hint(const Batch& batch, const Batch::Job& job) noexcept;

  const BatchLimits limits_;
  Shards shards_;
  Ledger ledger_;
  Balance balance_;
  const std::shared_ptr<Pool> pool_;
  std::atomic<bool> closing_{false};
  std::atomic<std::uint64_t> failed_renditions_{0};

  mutable std::mutex mutex_;
  std::condition_variable work_, spare_work_, foreign_work_;
  Cores cores_;
  std::deque<std::shared_ptr<Batch>> queue_;
  std::deque<std::pair<std::shared_ptr<Batch>, Batch::Job>> again_;  // jobs of which one rendition has failed
  std::deque<std::unique_ptr<Foreign>> ready_;                       // read, and waiting for someone else's decoder
  std::size_t ready_bytes_ = 0;
  std::uint64_t submitted_ = 0;
  bool overlaps_ = false;    // reads wait for storage, so there is something to do meanwhile
  std::size_t reading_ = 0;  // threads that wait for storage
  unsigned spares_ = 0, idle_spares_ = 0;
  std::vector<std::thread> threads_;

  std::mutex join_mutex_;
};

}  // namespace headrace
