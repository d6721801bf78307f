// SPDX-License-Identifier: Apache-2.0
#include "loading/batch.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "loading/ledger.h"

namespace headrace {
namespace {

// Samples of differing shape begin on cache lines. Outputs have less than 2^57 bytes (OutputShape), so nothing wraps.
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t aligned(std::uint64_t n_bytes) noexcept {
  return (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr std::uint32_t kMaxStoredSide = 65535;

// What is wrong with a claim, and the name of the error if it is not the one of the status.
struct Flaw {
  Status status;
  const char* kind = "";
};

Flaw flaw_of(const Rendition& r, std::uint32_t formats, std::uint64_t max_pixels) noexcept {
  const auto code = static_cast<std::uint32_t>(r.format);
  if (code < 1 || code >= kFormats || r.shape.type.depth == 0)
    return {{Code::corrupt, "the index has a format or dtype code that this version does not know"},
            "UnsupportedDataset"};
  if ((formats >> code & 1) == 0)
    return {{Code::corrupt, "the index has a format that dataset.json does not list"}, "CorruptDataset"};
  const ImageShape& s = r.shape;
  if (s.height < 1 || s.width < 1 || s.height > kMaxStoredSide || s.width > kMaxStoredSide || s.type.channels < 1 ||
      s.type.channels > kMaxChannels)
    return {{Code::corrupt, "the index claims a size that no image has: 1 to 65535 on a side, 1 to 64 channels"},
            "CorruptDataset"};
  if (reads_whole(r.format) && std::uint64_t{s.height} * s.width > max_pixels) return {kTooManyPixels};
  return {};
}

}  // namespace

bool Batch::wait_for(double seconds) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  return done_.wait_for(lock, time, [this] { return remaining_ == 0; });
}

void Batch::cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }

std::vector<Failure> Batch::failures() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Failure> sorted = failures_;
  std::sort(sorted.begin(), sorted.end(), [](const Failure& a, const Failure& b) {
    return a.position != b.position ? a.position < b.position : a.field < b.field;
  });
  return sorted;
}

void Batch::lay_out(Pool& pool, const BatchLimits& limits) {
  outputs_.resize(requests_.size());
  uniform_.assign(requests_.size(), false);
  blocks_.resize(requests_.size());
  std::uint64_t n_bytes = 0;  // at most limits.n_bytes
  for (std::uint32_t f = 0; f < requests_.size(); ++f) {
    outputs_[f].resize(samples_ * requests_[f].views);
    const std::vector<Job> jobs = make_jobs(f, limits, n_bytes);
    if (!place_outputs(f, jobs, limits.n_bytes, pool)) {
      for (const Job& job : jobs) fail(job, {Code::no_memory, "no memory for the images of the batch"});
      continue;
    }
    for (const Job& job : jobs) {
      Jobs& kind = has_choice(job) ? open_ : core_decodes(rendition(job).format) ? core_ : foreign_;
      kind.list.push_back(job);
    }
  }
  remaining_ = left();
}

std::vector<Batch::Job> Batch::make_jobs(std::uint32_t f, const BatchLimits& limits, std::uint64_t& n_bytes) {
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
      output(job).shape = shape;
      jobs.push_back(job);
    }
  }
  return jobs;
}

bool Batch::check_claims(Job& job, const BatchLimits& limits) {
  const std::size_t n = requests_[job.field].renditions.size();
  Flaw first;
  for (std::size_t k = 0; k < n; ++k) {
    job.rendition = static_cast<std::uint8_t>(k);
    const Flaw flaw = flaw_of(rendition(job), limits.formats, transform(job).max_pixels);
    if (!flaw.status) job.failed |= static_cast<std::uint8_t>(1U << k);
    if (k == 0) first = flaw;
  }
  job.rendition = 0;
  if (first.status) return true;
  // Renditions that are interchangeable stand in for one another.
  if (job.failed != (1U << n) - 1 && has_choice(job)) {
    while (job.failed >> job.rendition & 1) ++job.rendition;
    return true;
  }
  fail(job, first.status, first.kind, first.kind[0] == 0 ? "" : first.status.what);
  return false;
}

bool Batch::place_outputs(std::uint32_t f, const std::vector<Job>& jobs, std::uint64_t limit, Pool& pool) {
  if (jobs.empty()) return true;
  std::vector<Output>& outputs = outputs_[f];
  const OutputShape shape = output(jobs.front()).shape;
  std::uint64_t total = 0;  // within the limit: make_jobs has added them up
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
      output(job).data = at;
      at += aligned(output(job).shape.bytes());
    }
    return true;
  }
  // A failed sample leaves its place empty, so that the others stay where they would be.
  if (jobs.size() < outputs.size()) std::fill_n(at, outputs.size() * shape.bytes(), std::uint8_t{0});
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

void Batch::end_job() noexcept { end_jobs(1); }

void Batch::end_jobs(std::size_t n) noexcept {
  if (n == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  remaining_ -= n;
  if (remaining_ == 0) done_.notify_all();
}

void Batch::fail(const Job& job, const Status& status, std::string kind, std::string message) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    failures_.push_back({job.position, job.field, job.rendition, status, std::move(message), std::move(kind)});
  } catch (const std::bad_alloc&) {
    // Room for one was reserved when the batch was made, so at least one failure is always told.
  }
}

}  // namespace headrace
