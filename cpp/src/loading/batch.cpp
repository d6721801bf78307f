// SPDX-License-Identifier: Apache-2.0
#include "loading/batch.h"

#include <algorithm>
#include <chrono>
#include <new>

namespace headrace {
namespace {

// Samples of differing shape begin on cache lines.
constexpr std::uint64_t kAlignment = 64;

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

bool Batch::lay_out(Pool& pool) {
  outputs_.resize(requests_.size());
  uniform_.assign(requests_.size(), true);
  blocks_.resize(requests_.size());
  for (std::size_t f = 0; f < requests_.size(); ++f) {
    const FieldRequest& request = requests_[f];
    std::vector<Output>& outputs = outputs_[f];
    outputs.resize(samples_ * request.views);
    std::vector<bool> sound(outputs.size(), false);
    const Output* first = nullptr;
    for (std::uint32_t i = 0; i < outputs.size(); ++i) {
      const Job job{i / request.views, static_cast<std::uint16_t>(f), static_cast<std::uint16_t>(i % request.views)};
      const Rendition& r = rendition(job);
      if (Status s = output_shape(request.transform, r.shape, key(job), outputs[i].shape); !s) {
        fail(job, s);
        continue;
      }
      sound[i] = true;
      if (!first) first = &outputs[i];
      if (!(outputs[i].shape == first->shape)) uniform_[f] = false;
      Jobs& kind = has_choice(job) ? open_ : core_decodes(r.format) ? core_ : foreign_;
      kind.list.push_back(job);
    }
    if (!first) {
      uniform_[f] = false;
      continue;
    }
    // A failed sample leaves its place empty, so that the others stay where they would be.
    const auto room = [&](std::size_t i) {
      if (uniform_[f]) return first->shape.bytes();
      return sound[i] ? (outputs[i].shape.bytes() + kAlignment - 1) / kAlignment * kAlignment : 0;
    };
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) total += room(i);
    blocks_[f] = pool.acquire(total);
    if (!blocks_[f]) return false;
    std::uint8_t* at = blocks_[f]->data;
    for (std::size_t i = 0; i < outputs.size(); at += room(i), ++i) {
      outputs[i].data = at;
      if (!sound[i] && uniform_[f]) {
        outputs[i].shape = first->shape;
        std::fill_n(at, room(i), std::uint8_t{0});
      }
    }
  }
  remaining_ = left();
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
