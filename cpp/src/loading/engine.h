// SPDX-License-Identifier: Apache-2.0
// Threads that read, decode and transform the images of batches, in the order in which they were submitted, into memory
// that is used again. Nothing here knows Python.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "loading/batch.h"
#include "loading/shards.h"

namespace headrace {

class Engine;

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
  Foreign(Engine& engine, std::shared_ptr<Batch> batch, Batch::Job job) noexcept
      : engine_(engine), batch_(std::move(batch)), job_(job) {}
  void end() noexcept;

  Engine& engine_;
  std::shared_ptr<Batch> batch_;
  Batch::Job job_;
  Buffer file_;
  Extent extent_;
  std::chrono::steady_clock::time_point begin_;
  bool ended_ = false;
};

struct EngineStats {
  double read_seconds = 0, decode_seconds = 0, transform_seconds = 0;
  std::uint64_t images = 0, bytes_read = 0;
  std::size_t queued_jobs = 0, active = 0, blocks_in_use = 0;
};

class Engine {
 public:
  // `threads` at least 1; throws std::system_error if none can be started, std::bad_alloc.
  Engine(std::vector<Shard> shards, unsigned threads, bool direct);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queue a batch. What is wrong with single samples shows as failures of the batch. Null when closed or out of memory.
  std::shared_ptr<Batch> submit(std::vector<FieldRequest> fields, std::vector<std::uint64_t> rows, std::uint64_t seed,
                                std::uint32_t epoch) noexcept;
  // The next image for someone else's decoder; null after `seconds`. Its bytes have been read.
  std::unique_ptr<Foreign> next_foreign(double seconds) noexcept;
  EngineStats stats() const noexcept;
  // Give up what was not begun and end the threads. Any thread may call it, any number of times.
  void close() noexcept;
  bool closed() const noexcept { return closing_.load(); }
  const Shards& shards() const noexcept { return shards_; }

 private:
  friend class Foreign;
  struct Claim;
  struct Worker;
  struct Times;

  void work() noexcept;
  bool claim(Claim& claim) noexcept;
  void drop_claimed() noexcept;  // under the mutex: batches of which nothing is left to claim
  void hint_ahead(std::size_t most) noexcept;
  void hint(const Batch& batch, const Batch::Job& job) noexcept;
  void run(Worker& worker, Batch& batch, const Batch::Job& job) noexcept;
  void release_token() noexcept;
  void add(const Times& times) noexcept;
  void add_foreign(std::chrono::nanoseconds decode, std::chrono::nanoseconds transform) noexcept;

  Shards shards_;
  const std::shared_ptr<Pool> pool_;
  const unsigned n_threads_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::deque<std::shared_ptr<Batch>> queue_;
  unsigned active_ = 0;  // threads at work, the foreign ones included; at most n_threads_
  std::atomic<bool> closing_{false};
  std::mutex join_mutex_;
  std::vector<std::thread> threads_;
  std::atomic<std::uint64_t> read_ns_{0}, decode_ns_{0}, transform_ns_{0}, images_{0};
};

}  // namespace headrace
