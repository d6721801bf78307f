// SPDX-License-Identifier: Apache-2.0
// A batch under way: what was asked for, where it goes, and what became of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "loading/pool.h"
#include "loading/sample.h"

namespace headrace {

// Where an image lies and what it is, as the index of the dataset claims. Nothing of it is trusted: lay_out checks what
// shapes and memory follow from, Shards::check the place, and the decoder compares the rest with the file. A dtype that
// is not known is a depth of 0.
struct Rendition {
  std::uint32_t shard = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  Format format = Format::raw;
  std::uint32_t checksum = 0;
  ImageShape shape;
};

// One field of a batch: the renditions of each of its samples, at least one and at most eight. Those of a sample decode
// to the same pixels, so that it does not matter which is taken.
struct FieldRequest {
  Transform transform;  // a copy: one that Python owns could only be let go of with the GIL, and workers let go
  std::uint16_t views = 1;
  std::vector<std::vector<Rendition>> renditions;  // [rendition][sample]
};

constexpr std::size_t kMostRenditions = 8;

// What every batch of an engine is held to.
struct BatchLimits {
  std::uint32_t formats = ~0U;                     // bit k: someone decodes the format of code k
  std::uint64_t n_bytes = std::uint64_t{1} << 62;  // of all outputs of a batch; at most 2^62, so that sums do not wrap
};

struct Failure {
  std::uint32_t position = 0;  // in the batch
  std::uint32_t field = 0;
  std::uint32_t rendition = 0;
  Status status;
  std::string message;  // if not empty, it stands for status.what
  std::string kind;     // likewise: the name of the error that someone else's decoder raised
};

// A batch under way. Its owner waits for it, then takes its outputs. Dropping it gives up what was not begun.
class Batch {
 public:
  struct Output {
    OutputShape shape;
    std::uint8_t* data = nullptr;
  };

  // True when every job has ended, by success, failure or cancellation.
  bool wait_for(double seconds) noexcept;
  void cancel() noexcept;
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }

  std::size_t samples() const noexcept { return samples_; }
  std::size_t fields() const noexcept { return requests_.size(); }
  const FieldRequest& field(std::size_t f) const noexcept { return requests_[f]; }
  // Of a field, views of a sample side by side. Those that lay_out failed have no data, unless the field is uniform.
  const std::vector<Output>& outputs(std::size_t f) const noexcept { return outputs_[f]; }
  // Do all samples of the field have one shape? Then they lie back to back from the first one's data.
  bool uniform(std::size_t f) const noexcept { return uniform_[f]; }
  const std::shared_ptr<Block>& block(std::size_t f) const noexcept { return blocks_[f]; }
  std::vector<Failure> failures() const;

 private:
  friend class Engine;
  friend class Foreign;
  struct Job {
    std::uint32_t position;
    std::uint16_t field;
    std::uint16_t view;
    std::uint8_t rendition = 0;
    std::uint8_t failed = 0;  // renditions that could not be decoded, a bit each
  };
  // Jobs of one kind, taken from the front. The counts are under the engine's mutex.
  struct Jobs {
    std::vector<Job> list;
    std::size_t claimed = 0, hinted = 0;

    std::size_t left() const noexcept { return list.size() - claimed; }
    // Are these less far than others? Kinds are taken in the proportion in which they occur.
    bool behind(const Jobs& other) const noexcept { return claimed * other.list.size() < other.claimed * list.size(); }
  };

  // Check claims, then work out shapes and places. Samples that cannot be done fail here, and have no job.
  void lay_out(Pool& pool, const BatchLimits& limits);
  // The jobs of a field whose outputs have their shapes; `n_bytes` grows by what these need.
  std::vector<Job> make_jobs(std::uint32_t f, const BatchLimits& limits, std::uint64_t& n_bytes);
  // Check what the index claims of a job's image, in its first rendition that is sound.
  bool check_claims(Job& job, const BatchLimits& limits);
  // Give the outputs of these jobs their memory; false if there is none.
  bool place_outputs(std::uint32_t f, const std::vector<Job>& jobs, std::uint64_t limit, Pool& pool);
  DrawKey key(const Job& job) const noexcept { return {seed_, epoch_, rows_[job.position], job.view}; }
  const Rendition& rendition(const Job& job) const noexcept {
    return requests_[job.field].renditions[job.rendition][job.position];
  }
  // Is there a choice of renditions? Not where the index claims that they differ, or one would be approximated.
  bool has_choice(const Job& job) const noexcept;
  std::size_t left() const noexcept { return core_.left() + foreign_.left() + open_.left(); }
  const Transform& transform(const Job& job) const noexcept { return requests_[job.field].transform; }
  Output& output(const Job& job) noexcept {
    return outputs_[job.field][std::size_t{job.position} * requests_[job.field].views + job.view];
  }
  void end_job() noexcept;
  void end_jobs(std::size_t n) noexcept;
  void fail(const Job& job, const Status& status, std::string kind = {}, std::string message = {}) noexcept;

  std::size_t samples_ = 0;
  std::uint64_t seed_ = 0;
  std::uint32_t epoch_ = 0;
  std::vector<std::uint64_t> rows_;
  std::vector<FieldRequest> requests_;
  std::vector<std::vector<Output>> outputs_;
  std::vector<bool> uniform_;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::uint64_t number_ = 0;    // of all that were submitted
  Jobs core_, foreign_, open_;  // of the core, of other decoders, and where that is still to be chosen

  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::size_t remaining_ = 0;
  std::vector<Failure> failures_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace headrace
