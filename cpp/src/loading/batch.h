// SPDX-License-Identifier: Apache-2.0
// A batch in progress: the request, the memory of its outputs, and the failures of single samples.
//
// Ownership. The engine creates a batch and shares it with the consumer that waits for it and with each thread that has
// one of its jobs. The consumer reads outputs once wait_for has returned true; until then each output is written by the
// one thread that has its job. Outputs lie in a block of the engine's pool, which may outlive batch and engine.
//
// Locking. Everything but the failures and the number of unfinished jobs is constant after construction. Those two are
// guarded by the batch's own mutex, which is a leaf: nothing else is locked while it is held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loading/pool.h"
#include "loading/views.h"
#include "thread_safety.h"

namespace headrace {

// One row of a dataset's index: where an image is stored and what it is. Nothing in it is trusted. Batch checks what
// shapes and memory depend on, Shards::check the location, and the decoder compares the rest with the file. An unknown
// dtype has depth 0.
struct Rendition {
  std::uint32_t shard = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  Format format = Format::raw;
  std::uint32_t checksum = 0;
  ImageShape shape;
};

// One field of a batch. Each sample has 1 to kMaxRenditions renditions, which decode to the same pixels, so any of them
// may be used. Views are numbered through all groups. Groups differ in operations and normalization, not in how an
// image is decoded.
// The boxes of the samples of a batch, for crops that depend on them: those of sample i are [first[i], first[i + 1]).
struct SampleBoxes {
  std::vector<BoxCorners> corners;
  std::vector<std::size_t> first;  // one more than there are samples; ascending, at most corners.size()
};

struct FieldRequest {
  std::vector<ViewGroup> groups;                   // at least one; at most 65536 views in all
  std::vector<std::vector<Rendition>> renditions;  // [rendition][sample]
  std::shared_ptr<const SampleBoxes> boxes{};      // null unless the transforms look at them
  // If not 0, the field holds tensors of so many bytes each, which are stored as they are. Then there are one group of
  // one view, whose transform is not used, and one rendition.
  std::uint32_t tensor_bytes = 0;

  std::uint32_t views() const noexcept;
};

constexpr std::size_t kMaxRenditions = 8;

// Limits that apply to every batch of an engine.
struct BatchLimits {
  std::uint32_t formats = ~0U;                     // bit k: the dataset has the format with code k
  std::uint64_t n_bytes = std::uint64_t{1} << 62;  // of all outputs of a batch; at most 2^62, so sums do not overflow
};

struct Failure {
  std::uint32_t position = 0;  // in the batch
  std::uint32_t field = 0;
  std::uint32_t rendition = 0;
  Status status;
  std::string message;     // if not empty, replaces status.what
  std::string error_name;  // if not empty, replaces the error class that status.code stands for
};

// One field of one sample: read, decode, transform to each view.
struct Job {
  std::uint32_t position;
  std::uint16_t field;
  std::uint8_t rendition = 0;
  std::uint8_t failed = 0;  // bit k: rendition k is unusable
};

// Jobs of one kind, claimed from the front. Part of the scheduler's queue and guarded by its mutex.
struct JobList {
  std::vector<Job> jobs;
  std::size_t n_claimed = 0, n_hinted = 0;

  std::size_t unclaimed() const noexcept { return jobs.size() - n_claimed; }
  // True if a smaller share of these has been claimed. Kinds are claimed in the proportion in which they occur.
  bool behind(const JobList& other) const noexcept {
    return n_claimed * other.jobs.size() < other.n_claimed * jobs.size();
  }
};

// All jobs of a batch, by who decodes the image: the core, an external decoder, or whichever the engine chooses.
struct BatchJobs {
  JobList core, external, either;

  std::size_t unclaimed() const noexcept { return core.unclaimed() + external.unclaimed() + either.unclaimed(); }
};

class Batch {
 public:
  struct Output {
    OutputShape shape;
    std::uint8_t* data = nullptr;
  };

  // Check the request and allocate outputs. Samples that cannot be loaded fail here; `jobs` receives the rest, and each
  // of them must be ended exactly once. Throws std::bad_alloc.
  Batch(std::vector<FieldRequest> fields, std::vector<std::uint64_t> rows, std::uint64_t seed, std::uint32_t epoch,
        Pool& pool, const BatchLimits& limits, BatchJobs& jobs);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // For the consumer. Any thread may call these.

  // True when every job has ended: by success, failure or cancellation.
  bool wait_for(double seconds) noexcept EXCLUDES(mutex_);
  // Skip jobs that have not begun.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }
  std::size_t samples() const noexcept { return rows_.size(); }
  std::size_t fields() const noexcept { return requests_.size(); }
  const FieldRequest& field(std::size_t f) const noexcept { return requests_[f]; }
  // Of a group of views: [sample * views + view]. Samples that failed on construction have no data, unless the group is
  // uniform.
  const std::vector<Output>& outputs(std::size_t f, std::size_t g = 0) const noexcept { return outputs_[f][g].all; }
  // True if all samples of the group have the same shape. Then they are contiguous, from the first one's data.
  bool uniform(std::size_t f, std::size_t g = 0) const noexcept { return outputs_[f][g].uniform; }
  const std::shared_ptr<Block>& block(std::size_t f, std::size_t g = 0) const noexcept { return outputs_[f][g].block; }
  // Sorted by position, then field. Throws std::bad_alloc.
  std::vector<Failure> failures() const EXCLUDES(mutex_);

  // For threads that have one of the batch's jobs.

  const Rendition& rendition(const Job& job) const noexcept {
    return requests_[job.field].renditions[job.rendition][job.position];
  }
  bool is_tensor(const Job& job) const noexcept { return requests_[job.field].tensor_bytes != 0; }
  // Where the one view of a job goes.
  std::uint8_t* place(const Job& job) const noexcept { return outputs_[job.field][0].all[job.position].data; }
  // Of the first view; how the image is decoded is the same for all.
  const Transform& transform(const Job& job) const noexcept { return requests_[job.field].groups[0].transform; }
  DrawKey key(const Job& job, std::uint32_t view = 0) const noexcept {
    DrawKey key{seed_, epoch_, rows_[job.position], static_cast<std::uint16_t>(view)};
    if (const SampleBoxes* boxes = requests_[job.field].boxes.get()) {
      const std::size_t begin = boxes->first[job.position], end = boxes->first[job.position + 1];
      key.boxes = {boxes->corners.data() + begin, end - begin};
    }
    return key;
  }
  // What to make of the image; replaces what `views` held. Throws std::bad_alloc.
  void list_views(const Job& job, std::vector<View>& views) const;
  // True if the renditions of a job are interchangeable: not if the index claims that they differ, or if one would be
  // decoded approximately.
  bool has_choice(const Job& job) const noexcept;
  // True if there is a choice and not every rendition has failed.
  bool has_usable_rendition(const Job& job) const noexcept;
  void fail(const Job& job, const Status& status, std::string error_name = {}, std::string message = {}) noexcept
      EXCLUDES(mutex_);
  // End jobs; the last one wakes the consumer.
  void end_jobs(std::size_t n = 1) noexcept EXCLUDES(mutex_);

 private:
  struct GroupOutputs {
    std::vector<Output> all;
    bool uniform = false;
    std::shared_ptr<Block> block;
  };

  // The loadable jobs of a field, with the shapes of their outputs set; adds to `n_bytes` what these need.
  std::vector<Job> make_jobs(std::uint32_t f, const BatchLimits& limits, std::uint64_t& n_bytes);
  // Set the shapes of a job's outputs and return the bytes that they need.
  Status set_shapes(const Job& job, std::uint64_t limit, std::uint64_t& n_bytes);
  // Check the index row of a job's image and select its first usable rendition; false if it failed.
  bool check_claims(Job& job, const BatchLimits& limits);
  // Allocate the outputs of these jobs in a group of views; false if there is no memory.
  static bool place_outputs(GroupOutputs& group, std::size_t views, const std::vector<Job>& jobs, std::uint64_t limit,
                            Pool& pool);

  const std::uint64_t seed_;
  const std::uint32_t epoch_;
  const std::vector<std::uint64_t> rows_;
  const std::vector<FieldRequest> requests_;
  std::vector<std::vector<GroupOutputs>> outputs_;  // [field][group]
  std::atomic<bool> cancelled_{false};

  mutable Mutex mutex_;
  std::condition_variable done_;
  std::size_t n_unfinished_ GUARDED_BY(mutex_) = 0;
  std::vector<Failure> failures_ GUARDED_BY(mutex_);
};

// One job of a batch, as threads hand it to one another.
struct Task {
  std::shared_ptr<Batch> batch;
  std::uint64_t batch_number = 0;  // batches are numbered in the order in which they were submitted
  Job job{};

  const Rendition& rendition() const noexcept { return batch->rendition(job); }
  // Lower is more urgent: earlier batches come first, then earlier samples.
  std::uint64_t order() const noexcept { return batch_number << 24 | job.position; }
};

}  // namespace headrace
