// SPDX-License-Identifier: Apache-2.0
// An image in a format that the core does not decode: the engine reads it, and an external decoder makes its pixels.
//
// Ownership. An image belongs to one thread at a time: the thread that reads it, then the scheduler's queue, then the
// thread that decodes it. It holds one job of its batch and ends it exactly once; one that is destroyed before that
// fails its sample. It must not outlive the engine.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "loading/costs.h"
#include "loading/scheduler.h"

namespace headrace {

class ExternalImage {
 public:
  ExternalImage(Shards& shards, CostTable& costs, Scheduler& scheduler, Task task) noexcept;
  ~ExternalImage();
  ExternalImage(const ExternalImage&) = delete;
  ExternalImage& operator=(const ExternalImage&) = delete;

  // For the decoder, which calls finish or fail once.

  // True if there is nothing to decode: its bytes could not be read, or its batch was cancelled.
  bool ended() const noexcept { return ended_; }
  Bytes data() const noexcept { return extent_.bytes; }
  const Rendition& rendition() const noexcept { return task_.rendition(); }
  const Transform& transform() const noexcept { return task_.batch->transform(task_.job); }
  std::uint32_t position() const noexcept { return task_.job.position; }
  std::uint32_t field() const noexcept { return task_.job.field; }
  // Transform the decoded image, with the channels that the transform's color requires, and write it to the batch.
  void finish(const Picture& picture) noexcept;
  // Try another rendition, or fail the sample with an error class of this name.
  void fail(std::string error_name, std::string message) noexcept;

  // For the engine, before the decoder has it.

  const Task& task() const noexcept { return task_; }
  // Read its bytes; ends it if that fails.
  void read(CoreLease& lease, Costs& costs) noexcept;
  // The same in the thread that decodes it, which has a core.
  void read_with_own_core() noexcept;
  // Take over the load that its reader has announced.
  void reserve(LoadReservation reservation) noexcept { lease_.reservation = std::move(reservation); }
  // Wait for a core; from now on its time counts as decoding. Ends it if its batch was cancelled.
  void begin_decoding() noexcept;

 private:
  bool try_other_rendition() noexcept;
  void end() noexcept;
  void start_clocks() noexcept;
  void add_costs(std::uint64_t decode_ns, std::uint64_t transform_ns) noexcept;
  // Threads of the engine get cores first: a decoder keeps one for long, and storage would wait for the next read.
  std::uint64_t late_order() const noexcept { return task_.order() | std::uint64_t{1} << 63; }

  Shards& shards_;
  CostTable& costs_;
  Scheduler& scheduler_;
  Task task_;
  CoreLease lease_;
  Buffer file_;
  Extent extent_;
  Clock::time_point begun_;
  std::uint64_t cpu_begun_ = 0;
  std::thread::id thread_;
  bool ended_ = false;
};

}  // namespace headrace
