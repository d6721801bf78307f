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

RowError check_tensor(const Rendition& r, std::uint32_t n_bytes) noexcept {
  if (r.length == n_bytes) return {};
  return {{Code::corrupt, "the index has another length than that of a tensor of this field"}, "CorruptDataset"};
}

RowError check_row(const Rendition& r, std::uint32_t formats, std::uint64_t max_pixels) noexcept {
  const auto code = static_cast<std::uint32_t>(r.format);
  if (code < 1 || code >= kFormats || r.format == Format::tensor || r.shape.type.depth == 0)
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

std::uint32_t FieldRequest::views() const noexcept {
  std::uint32_t n = 0;
  for (const ViewGroup& group : groups) n += group.views;
  return n;
}

Batch::Batch(std::vector<FieldRequest> fields, std::vector<std::uint64_t> rows, std::uint64_t seed, std::uint32_t epoch,
             Pool& pool, const BatchLimits& limits, BatchJobs& all_jobs)
    : seed_(seed), epoch_(epoch), rows_(std::move(rows)), requests_(std::move(fields)), outputs_(requests_.size()) {
  failures_.reserve(1);
  std::uint64_t n_bytes = 0;  // at most limits.n_bytes
  for (std::uint32_t f = 0; f < requests_.size(); ++f) {
    const std::vector<ViewGroup>& groups = requests_[f].groups;
    outputs_[f].resize(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) outputs_[f][g].all.resize(rows_.size() * groups[g].views);
    const std::vector<Job> jobs = make_jobs(f, limits, n_bytes);
    bool placed = true;
    for (std::size_t g = 0; g < groups.size(); ++g)
      placed = placed && place_outputs(outputs_[f][g], groups[g].views, jobs, limits.n_bytes, pool);
    if (!placed) {
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
  std::vector<Job> jobs;
  jobs.reserve(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Job job{static_cast<std::uint32_t>(i), static_cast<std::uint16_t>(f)};
    if (!check_claims(job, limits)) continue;
    std::uint64_t own = 0;
    if (Status s = set_shapes(job, limits.n_bytes - n_bytes, own); !s) {
      fail(job, s);
    } else {
      n_bytes += own;
      jobs.push_back(job);
    }
  }
  return jobs;
}

Status Batch::set_shapes(const Job& job, std::uint64_t limit, std::uint64_t& n_bytes) {
  std::uint32_t view = 0;
  for (std::size_t g = 0; g < outputs_[job.field].size(); ++g) {
    const ViewGroup& group = requests_[job.field].groups[g];
    for (std::uint32_t v = 0; v < group.views; ++v, ++view) {
      OutputShape shape;
      if (is_tensor(job)) {
        shape = {1, requests_[job.field].tensor_bytes, 1, DType::uint8};
      } else if (Status s = output_shape(group.transform, rendition(job).shape, key(job, view), shape); !s) {
        return s;
      }
      if (aligned(shape.bytes()) > limit - n_bytes)
        return {Code::too_large,
                "the batch would take too much of the machine's memory: load smaller batches, or crop"};
      n_bytes += aligned(shape.bytes());
      outputs_[job.field][g].all[std::size_t{job.position} * group.views + v].shape = shape;
    }
  }
  return {};
}

void Batch::list_views(const Job& job, std::vector<View>& views) const {
  views.clear();
  std::uint32_t view = 0;
  for (std::size_t g = 0; g < outputs_[job.field].size(); ++g) {
    const ViewGroup& group = requests_[job.field].groups[g];
    for (std::uint32_t v = 0; v < group.views; ++v, ++view) {
      const Output& output = outputs_[job.field][g].all[std::size_t{job.position} * group.views + v];
      views.push_back({&group.transform, key(job, view), output.shape, output.data});
    }
  }
}

bool Batch::check_claims(Job& job, const BatchLimits& limits) {
  const std::size_t n = requests_[job.field].renditions.size();
  RowError first;
  for (std::size_t k = 0; k < n; ++k) {
    job.rendition = static_cast<std::uint8_t>(k);
    const RowError error = is_tensor(job) ? check_tensor(rendition(job), requests_[job.field].tensor_bytes)
                                          : check_row(rendition(job), limits.formats, transform(job).max_pixels);
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

bool Batch::place_outputs(GroupOutputs& group, std::size_t views, const std::vector<Job>& jobs, std::uint64_t limit,
                          Pool& pool) {
  if (jobs.empty()) return true;
  const auto each_output = [&](const auto& use) {
    for (const Job& job : jobs)
      for (std::size_t v = 0; v < views; ++v) use(group.all[job.position * views + v]);
  };
  const OutputShape shape = group.all[jobs.front().position * views].shape;
  std::uint64_t total = 0;  // within the limit, which make_jobs has checked
  bool uniform = shape.bytes() <= limit / group.all.size();
  each_output([&](const Output& output) {
    total += aligned(output.shape.bytes());
    uniform = uniform && output.shape == shape;
  });
  group.block = pool.acquire(uniform ? group.all.size() * shape.bytes() : total);
  if (!group.block) return false;
  group.uniform = uniform;
  std::uint8_t* at = group.block->data;
  if (!uniform) {
    each_output([&](Output& output) {
      output.data = at;
      at += aligned(output.shape.bytes());
    });
    return true;
  }
  // A failed sample keeps its place, so that the others keep theirs. Nobody reads it, and it is not cleared: the shape
  // is only a claim until an image was decoded, and writing to memory for a false claim would take that memory for
  // nothing.
  for (Output& each : group.all) {
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
