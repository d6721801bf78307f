// SPDX-License-Identifier: Apache-2.0
#include "loading/batch.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "loading/costs.h"

namespace headrace {
namespace {

// Samples of different shapes start on cache lines. An output has less than 2^57 bytes (OutputShape): no overflow.
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t aligned(std::uint64_t n_bytes) noexcept {
  return (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr std::uint32_t kMaxStoredSide = 65535;

// What is wrong with an index row, and the error class if it is not that of the status.
struct RowError {
  Status status;
  const char* error_name = "";
};

RowError check_row(const Rendition& r, std::uint32_t formats, std::uint64_t max_pixels) noexcept {
  const auto code = static_cast<std::uint32_t>(r.format);
  if (code < 1 || code >= kFormats || r.shape.type.depth == 0)
    return {{Code::corrupt, "the index has a format or dtype code that this version does not know"},
            "UnsupportedDataset"};
  if ((formats >> code & 1) == 0)
    return {{Code::corrupt, "the index has a format that dataset.json does not list"}, "CorruptDataset"};
  const ImageShape& s = r.shape;
  if (s.height < 1 || s.width < 1 || s.height > kMaxStoredSide || s.width > kMaxStoredSide || s.type.channels < 1 ||
      s.type.channels > kMaxChannels)
    return {{Code::corrupt,
             "an image must have 1 to 65535 rows and columns and 1 to 64 channels; the index claims another size"},
            "CorruptDataset"};
  if (reads_entire_file(r.format) && std::uint64_t{s.height} * s.width > max_pixels) return {kTooManyPixels};
  return {};
}

}  // namespace

bool Batch::wait_for(double seconds) noexcept {
  MutexLock lock(mutex_);
  const auto timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (n_unfinished_ > 0)
    if (done_.wait_until(lock.native(), deadline) == std::cv_status::timeout) return n_unfinished_ == 0;
  return true;
}

std::vector<Failure> Batch::failures() const {
  const MutexLock lock(mutex_);
  std::vector<Failure> sorted = failures_;
  std::sort(sorted.begin(), sorted.end(), [](const Failure& a, const Failure& b) {
    return a.position != b.position ? a.position < b.position : a.field < b.field;
  });
  return sorted;
}

Batch::Batch(std::vector<FieldRequest> fields, std::vector<std::uint64_t> rows, std::uint64_t seed, std::uint32_t epoch,
             Pool& pool, const BatchLimits& limits, BatchJobs& all_jobs)
    : seed_(seed),
      epoch_(epoch),
      rows_(std::move(rows)),
      requests_(std::move(fields)),
      outputs_(requests_.size()),
      uniform_(requests_.size(), false),
      blocks_(requests_.size()) {
  failures_.reserve(1);
  std::uint64_t n_bytes = 0;  // at most limits.n_bytes
  for (std::uint32_t f = 0; f < requests_.size(); ++f) {
    outputs_[f].resize(rows_.size() * requests_[f].views);
    const std::vector<Job> jobs = make_jobs(f, limits, n_bytes);
    if (!place_outputs(f, jobs, limits.n_bytes, pool)) {
      for (const Job& job : jobs) fail(job, {Code::no_memory, "no memory for the images of the batch"});
      continue;
    }
    for (const Job& job : jobs) {
      JobList& kind = has_choice(job)                       ? all_jobs.either
                      : core_decodes(rendition(job).format) ? all_jobs.core
                                                            : all_jobs.external;
      kind.jobs.push_back(job);
    }
  }
  n_unfinished_ = all_jobs.unclaimed();
}

std::vector<Job> Batch::make_jobs(std::uint32_t f, const BatchLimits& limits, std::uint64_t& n_bytes) {
  const FieldRequest& request = requests_[f];
  std::vector<Job> jobs;
  jobs.reserve(outputs_[f].size());
  for (std::size_t i = 0; i < outputs_[f].size(); ++i) {
    Job job{static_cast<std::uint32_t>(i / request.views), static_cast<std::uint16_t>(f),
            static_cast<std::uint16_t>(i % request.views)};
    if (!check_claims(job, limits)) continue;
    OutputShape shape;
    if (Status s = output_shape(request.transform, rendition(job).shape, key(job), shape); !s) {
      fail(job, s);
    } else if (aligned(shape.bytes()) > limits.n_bytes - n_bytes) {
      fail(job,
           {Code::too_large, "the batch would take too much of the machine's memory: load smaller batches, or crop"});
    } else {
      n_bytes += aligned(shape.bytes());
      mutable_output(job).shape = shape;
      jobs.push_back(job);
    }
  }
  return jobs;
}

bool Batch::check_claims(Job& job, const BatchLimits& limits) {
  const std::size_t n = requests_[job.field].renditions.size();
  RowError first;
  for (std::size_t k = 0; k < n; ++k) {
    job.rendition = static_cast<std::uint8_t>(k);
    const RowError error = check_row(rendition(job), limits.formats, transform(job).max_pixels);
    if (!error.status) job.failed |= static_cast<std::uint8_t>(1U << k);
    if (k == 0) first = error;
  }
  job.rendition = 0;
  if (first.status) return true;
  if (has_usable_rendition(job)) {
    while (job.failed >> job.rendition & 1) ++job.rendition;
    return true;
  }
  fail(job, first.status, first.error_name, first.error_name[0] == 0 ? "" : first.status.what);
  return false;
}

bool Batch::place_outputs(std::uint32_t f, const std::vector<Job>& jobs, std::uint64_t limit, Pool& pool) {
  if (jobs.empty()) return true;
  std::vector<Output>& outputs = outputs_[f];
  const OutputShape shape = output(jobs.front()).shape;
  std::uint64_t total = 0;  // within the limit, which make_jobs has checked
  bool uniform = shape.bytes() <= limit / outputs.size();
  for (const Job& job : jobs) {
    total += aligned(output(job).shape.bytes());
    uniform = uniform && output(job).shape == shape;
  }
  blocks_[f] = pool.acquire(uniform ? outputs.size() * shape.bytes() : total);
  if (!blocks_[f]) return false;
  uniform_[f] = uniform;
  std::uint8_t* at = blocks_[f]->data;
  if (!uniform) {
    for (const Job& job : jobs) {
      mutable_output(job).data = at;
      at += aligned(output(job).shape.bytes());
    }
    return true;
  }
  // A failed sample keeps its place, so that the others keep theirs. Nobody reads it, and it is not cleared: the shape
  // is only a claim until an image was decoded, and writing to memory for a false claim would take that memory for
  // nothing.
  for (Output& each : outputs) {
    each = {shape, at};
    at += shape.bytes();
  }
  return true;
}

bool Batch::has_choice(const Job& job) const noexcept {
  const auto& renditions = requests_[job.field].renditions;
  const Rendition& first = renditions[0][job.position];
  for (const auto& each : renditions) {
    const Rendition& r = each[job.position];
    if (!(r.shape == first.shape) || (r.format == Format::jpeg && transform(job).approximate_jpeg)) return false;
  }
  return renditions.size() > 1;
}

bool Batch::has_usable_rendition(const Job& job) const noexcept {
  const std::size_t n = requests_[job.field].renditions.size();
  return n > 1 && job.failed != (1U << n) - 1 && has_choice(job);
}

void Batch::end_jobs(std::size_t n) noexcept {
  if (n == 0) return;
  const MutexLock lock(mutex_);
  n_unfinished_ -= n;
  if (n_unfinished_ == 0) done_.notify_all();
}

void Batch::fail(const Job& job, const Status& status, std::string error_name, std::string message) noexcept {
  const MutexLock lock(mutex_);
  try {
    failures_.push_back({job.position, job.field, job.rendition, status, std::move(message), std::move(error_name)});
  } catch (const std::bad_alloc&) {
    // The constructor has reserved memory for one, so at least one failure is always reported.
  }
}

}  // namespace headrace
