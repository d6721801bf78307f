// SPDX-License-Identifier: Apache-2.0
#include "loading/engine.h"

#include <algorithm>
#include <chrono>
#include <new>

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t since(Clock::time_point start) noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

std::chrono::nanoseconds to_nanoseconds(double seconds) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

// A thread takes several small images at once, as the queue's lock would else be what it waits for.
std::size_t jobs_at_once(std::size_t jobs, unsigned threads) noexcept {
  return std::clamp<std::size_t>(jobs / (std::size_t{threads} * 8), 1, 16);
}

// Times what an image's rows cost, apart from what is done with them.
class TimedRows final : public ImageRows, public RowSource {
 public:
  explicit TimedRows(ImageRows& image) noexcept : image_(image) {}
  Status start(Region region, RowSource*& rows) noexcept override {
    const auto begin = Clock::now();
    const Status status = image_.start(region, source_);
    nanoseconds += since(begin);
    rows = this;
    return status;
  }
  Status next(std::uint32_t most, Rows& rows) noexcept override {
    const auto begin = Clock::now();
    const Status status = source_->next(most, rows);
    nanoseconds += since(begin);
    return status;
  }

  bool reduce(unsigned denominator) noexcept override { return image_.reduce(denominator); }

  std::uint64_t nanoseconds = 0;

 private:
  ImageRows& image_;
  RowSource* source_ = nullptr;
};

class TimedBytes final : public ByteSource {
 public:
  explicit TimedBytes(ByteSource& bytes) noexcept : bytes_(bytes) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read(std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent) noexcept override {
    const auto begin = Clock::now();
    const Status status = bytes_.read(offset, n, buffer, extent);
    nanoseconds += since(begin);
    return status;
  }

  std::uint64_t nanoseconds = 0;

 private:
  ByteSource& bytes_;
};

}  // namespace

struct Engine::Claim {
  std::shared_ptr<Batch> batch;
  std::size_t begin = 0, end = 0;
};

struct Engine::Worker {
  Workspace workspace;
  Decoder decoder{workspace};
};

struct Engine::Times {
  std::uint64_t read = 0, decode = 0, transform = 0;
};

Engine::Engine(std::vector<Shard> shards, unsigned threads, bool direct)
    : shards_(std::move(shards), direct), pool_(std::make_shared<Pool>(8)), n_threads_(std::max(1U, threads)) {
  threads_.reserve(n_threads_);
  try {
    for (unsigned i = 0; i < n_threads_; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    if (threads_.empty()) throw;  // fewer than asked for will do
  }
}

Engine::~Engine() { close(); }

void Engine::close() noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_.store(true);
    for (const auto& batch : queue_) {
      batch->cancel();
      const std::size_t given_up =
          batch->core_jobs_.size() - batch->core_claimed_ + batch->foreign_jobs_.size() - batch->foreign_claimed_;
      batch->core_claimed_ = batch->core_jobs_.size();
      batch->foreign_claimed_ = batch->foreign_jobs_.size();
      batch->end_jobs(given_up);
    }
    queue_.clear();
  }
  work_.notify_all();
  const std::lock_guard<std::mutex> lock(join_mutex_);
  for (auto& thread : threads_)
    if (thread.joinable()) thread.join();
  threads_.clear();
}

std::shared_ptr<Batch> Engine::submit(std::vector<FieldRequest> fields, std::vector<std::uint64_t> rows,
                                      std::uint64_t seed, std::uint32_t epoch) noexcept {
  try {
    auto batch = std::make_shared<Batch>();
    batch->failures_.reserve(1);
    batch->samples_ = rows.size();
    batch->seed_ = seed;
    batch->epoch_ = epoch;
    batch->rows_ = std::move(rows);
    batch->requests_ = std::move(fields);
    if (!batch->lay_out(*pool_)) return nullptr;
    if (batch->remaining_ == 0) return closed() ? nullptr : batch;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closing_) return nullptr;
      queue_.push_back(batch);
    }
    work_.notify_all();
    return batch;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Engine::work() noexcept {
  Worker worker;
  for (Claim mine; claim(mine); mine.batch.reset()) {
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      Batch& batch = *mine.batch;
      if (!batch.cancelled()) run(worker, batch, batch.core_jobs_[i]);
      batch.end_job();
    }
    release_token();
  }
}

bool Engine::claim(Claim& claim) noexcept {
  std::size_t n = 0;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (closing_) return false;
      if (active_ < n_threads_) {
        const auto open = std::find_if(queue_.begin(), queue_.end(), [](const auto& batch) {
          return batch->core_claimed_ < batch->core_jobs_.size();
        });
        if (open != queue_.end()) {
          claim.batch = *open;
          Batch& batch = *claim.batch;
          claim.begin = batch.core_claimed_;
          n = std::min(batch.core_jobs_.size() - claim.begin, jobs_at_once(batch.core_jobs_.size(), n_threads_));
          claim.end = batch.core_claimed_ = claim.begin + n;
          drop_claimed();
          ++active_;
          break;
        }
      }
      work_.wait(lock);
    }
  }
  if (shards_.hints()) hint_ahead(2 * n);
  return true;
}

void Engine::drop_claimed() noexcept {
  while (!queue_.empty() && queue_.front()->core_claimed_ == queue_.front()->core_jobs_.size() &&
         queue_.front()->foreign_claimed_ == queue_.front()->foreign_jobs_.size())
    queue_.pop_front();
}

void Engine::release_token() noexcept {
  bool waited_for = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waited_for = active_ == n_threads_;
    --active_;
  }
  if (waited_for) work_.notify_all();
}

// Ask the kernel for what will be read soon: up to `most` further images, not too far beyond those under way.
void Engine::hint_ahead(std::size_t most) noexcept {
  const std::size_t ahead = 16 + 4 * std::size_t{n_threads_};
  for (std::size_t n = 0; n < most; ++n) {
    std::shared_ptr<Batch> batch;
    std::size_t at = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::size_t distance = 0;
      for (const auto& candidate : queue_) {
        candidate->hinted_ = std::max(candidate->hinted_, candidate->core_claimed_);
        distance += candidate->hinted_ - candidate->core_claimed_;
        if (distance >= ahead) return;
        if (candidate->hinted_ < candidate->core_jobs_.size()) {
          at = candidate->hinted_++;
          batch = candidate;
          break;
        }
      }
    }
    if (!batch) return;
    hint(*batch, batch->core_jobs_[at]);
  }
}

void Engine::hint(const Batch& batch, const Batch::Job& job) noexcept {
  constexpr std::uint64_t kWhole = 256 << 10;
  const Rendition& r = batch.rendition(job);
  if (!shards_.check(r.shard, r.offset, r.length)) return;
  Program program;
  if (r.length <= kWhole || r.format == Format::jpeg ||
      !make_program(batch.transform(job).ops, r.shape.height, r.shape.width, batch.key(job), program))
    return shards_.hint(r.shard, r.offset, r.length);
  // The rows of the crop lie in about their share of the file.
  const Axis& rows = program.passes[0].rows;
  const double share = static_cast<double>(r.length) / rows.input, margin = static_cast<double>(r.length) / 16;
  const auto begin = static_cast<std::uint64_t>(std::max(0.0, rows.start * share - margin));
  const auto end = std::min(r.length, static_cast<std::uint64_t>((rows.start + rows.size) * share + margin));
  if (begin > 0) shards_.hint(r.shard, r.offset, 16 << 10);
  shards_.hint(r.shard, r.offset + begin, end - begin);
}

void Engine::run(Worker& worker, Batch& batch, const Batch::Job& job) noexcept {
  const auto begin = Clock::now();
  const Rendition& r = batch.rendition(job);
  const Transform& transform = batch.transform(job);
  const Batch::Output& output = batch.output(job);
  ShardBytes stored(shards_, r.shard, r.offset, r.length);
  TimedBytes bytes(stored);
  TimedRows rows(worker.decoder);
  Status status = shards_.check(r.shard, r.offset, r.length);
  ImageShape shape;
  std::uint64_t opened = 0;
  if (status) {
    const Decoder::Wish wish{transform.rgb && !transform.mask, transform.approximate_jpeg, &r.checksum};
    status = worker.decoder.open(r.format, bytes, wish, shape);
    opened = since(begin);
  }
  if (status)
    status = transform_image(transform, shape, rows, batch.key(job), output.shape, output.data, worker.workspace);
  if (!status) batch.fail(job, status);
  const std::uint64_t read = bytes.nanoseconds, decode = opened + rows.nanoseconds - read;
  add({read, decode, since(begin) - opened - rows.nanoseconds});
}

void Engine::add(const Times& times) noexcept {
  read_ns_.fetch_add(times.read, std::memory_order_relaxed);
  decode_ns_.fetch_add(times.decode, std::memory_order_relaxed);
  transform_ns_.fetch_add(times.transform, std::memory_order_relaxed);
  images_.fetch_add(1, std::memory_order_relaxed);
}

void Engine::add_foreign(std::chrono::nanoseconds decode, std::chrono::nanoseconds transform) noexcept {
  decode_ns_.fetch_add(static_cast<std::uint64_t>(decode.count()), std::memory_order_relaxed);
  transform_ns_.fetch_add(static_cast<std::uint64_t>(transform.count()), std::memory_order_relaxed);
}

EngineStats Engine::stats() const noexcept {
  EngineStats stats;
  stats.read_seconds = static_cast<double>(read_ns_.load()) * 1e-9;
  stats.decode_seconds = static_cast<double>(decode_ns_.load()) * 1e-9;
  stats.transform_seconds = static_cast<double>(transform_ns_.load()) * 1e-9;
  stats.images = images_.load();
  stats.bytes_read = shards_.bytes_read();
  stats.blocks_in_use = pool_->blocks_in_use();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& batch : queue_)
    stats.queued_jobs +=
        batch->core_jobs_.size() - batch->core_claimed_ + batch->foreign_jobs_.size() - batch->foreign_claimed_;
  stats.active = active_;
  return stats;
}

std::unique_ptr<Foreign> Engine::next_foreign(double seconds) noexcept {
  std::unique_ptr<Foreign> foreign;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto deadline = Clock::now() + to_nanoseconds(seconds);
    for (;;) {
      if (closing_) return nullptr;
      const auto open =
          active_ >= n_threads_ ? queue_.end() : std::find_if(queue_.begin(), queue_.end(), [](const auto& batch) {
            return batch->foreign_claimed_ < batch->foreign_jobs_.size();
          });
      if (open != queue_.end()) {
        const std::shared_ptr<Batch> batch = *open;
        foreign.reset(new (std::nothrow) Foreign(*this, batch, batch->foreign_jobs_[batch->foreign_claimed_]));
        if (!foreign) return nullptr;
        ++batch->foreign_claimed_;
        drop_claimed();
        ++active_;
        break;
      }
      if (work_.wait_until(lock, deadline) == std::cv_status::timeout) return nullptr;
    }
  }
  const auto begin = Clock::now();
  const Rendition& r = foreign->rendition();
  Status status = shards_.check(r.shard, r.offset, r.length);
  if (status) status = shards_.read(r.shard, r.offset, r.length, foreign->file_, foreign->extent_);
  add({since(begin), 0, 0});
  foreign->begin_ = Clock::now();
  if (!status || foreign->batch_->cancelled()) {
    if (!status) foreign->batch_->fail(foreign->job_, status);
    foreign->end();
  }
  return foreign;
}

}  // namespace headrace
