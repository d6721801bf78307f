// SPDX-License-Identifier: Apache-2.0
#include "loading/engine.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "loading/engine_parts.h"

namespace headrace {
namespace {

// A batch may take up to a quarter of the memory, as the next one is made while the trainer has this one.
constexpr std::uint64_t kMemoryShare = 4;

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
    count(begin, n);
    return status;
  }
  Status read_head(std::size_t n, Buffer& buffer, Extent& extent) noexcept override {
    const auto begin = Clock::now();
    const Status status = bytes_.read_head(n, buffer, extent);
    count(begin, n);
    return status;
  }
  std::uint64_t chunk() const noexcept override { return bytes_.chunk(); }

  std::uint64_t nanoseconds = 0, n_bytes = 0;

 private:
  void count(Clock::time_point begin, std::size_t n) noexcept {
    nanoseconds += since(begin);
    n_bytes += n;
  }

  ByteSource& bytes_;
};

}  // namespace

Engine::Engine(std::vector<Shard> shards, unsigned threads, bool direct, double storage_rate, Identity identity,
               std::uint32_t formats)
    : limits_{formats, usable_memory() / kMemoryShare},
      shards_(std::move(shards), std::move(identity), direct),
      balance_(std::max(1U, threads)),
      pool_(std::make_shared<Pool>(8)),
      cores_(std::max(1U, threads)) {
  shards_.set_rate(storage_rate);
  threads_.reserve(cores_.count() + kMostSpares);
  try {
    for (unsigned i = 0; i < cores_.count(); ++i) threads_.emplace_back([this] { work(false); });
  } catch (const std::system_error&) {
    if (threads_.empty()) throw;  // fewer than asked for will do
  }
}

Engine::~Engine() { close(); }

void Engine::close() noexcept {
  // What is given up ends without the mutex: some needs it to end, and some needs other locks.
  decltype(ready_) ready;
  decltype(queue_) queue;
  decltype(again_) again;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_.store(true);
    for (const auto& batch : queue_) {
      batch->cancel();
      const std::size_t given_up = batch->left();
      for (Batch::Jobs* jobs : {&batch->core_, &batch->foreign_, &batch->open_}) jobs->claimed = jobs->list.size();
      batch->end_jobs(given_up);
    }
    queue.swap(queue_);
    for (const auto& [batch, job] : again_) {
      batch->cancel();
      batch->end_job();
    }
    again.swap(again_);
    for (const auto& foreign : ready_) foreign->batch_->cancel();
    ready.swap(ready_);
    cores_.close();
  }
  ready.clear();
  shards_.close();
  for (std::condition_variable* each : {&work_, &spare_work_, &foreign_work_}) each->notify_all();
  const std::lock_guard<std::mutex> lock(join_mutex_);
  std::vector<std::thread> threads;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    threads.swap(threads_);
  }
  for (auto& thread : threads)
    if (thread.joinable()) thread.join();
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
    batch->lay_out(*pool_, limits_);
    if (batch->remaining_ == 0) return closed() ? nullptr : batch;
    bool overlaps = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closing_) return nullptr;
      batch->number_ = submitted_++;
      queue_.push_back(batch);
      overlaps = overlaps_;
    }
    work_.notify_all();
    if (overlaps) spare_work_.notify_all();
    if (!batch->foreign_.list.empty()) foreign_work_.notify_all();
    return batch;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Engine::work(bool spare) noexcept {
  Worker worker(*this);
  worker.tally.begin();
  for (Claim mine; claim(mine, spare); mine.batch.reset()) {
    worker.hold.begin(order_of(mine.batch->number_, mine.jobs.front().position), mine.has_core);
    for (const Batch::Job& job : mine.jobs) run(worker, mine, job, &job == &mine.jobs.back());
    worker.hold.release();
    worker.tally.flush();
  }
}

void Engine::run(Worker& worker, const Claim& claim, Batch::Job job, bool last) noexcept {
  const std::shared_ptr<Batch>& batch = claim.batch;
  // Whoever has seen the end of a batch finds all of it in the stats.
  const auto end = [&] {
    if (last) worker.tally.flush();
    batch->end_job();
  };
  for (;;) {
    if (batch->cancelled()) return end();
    choose(*batch, job, worker.hold.share);
    const Rendition& r = batch->rendition(job);
    Costs& costs = worker.tally.costs(r.format);
    costs.images += 1;
    costs.stored_bytes += r.length;
    // Storage may begin while this thread waits for a core.
    if (!claim.has_core && shards_.hints()) hint(*batch, job);
    if (!core_decodes(r.format)) return read_foreign(worker, batch, job, costs);
    costs.pixels += std::uint64_t{r.shape.height} * r.shape.width;
    const Status status = decode(worker, *batch, job, costs);
    worker.hold.share.end();
    if (status) return end();
    job.failed |= static_cast<std::uint8_t>(1U << job.rendition);
    if (!has_other(*batch, job)) {
      batch->fail(job, status);
      return end();
    }
    failed_renditions_.fetch_add(1, std::memory_order_relaxed);
  }
}

Status Engine::decode(Worker& worker, Batch& batch, const Batch::Job& job, Costs& costs) noexcept {
  const auto begin = Clock::now();
  const std::uint64_t waited = worker.hold.waited_ns();
  const Rendition& r = batch.rendition(job);
  const Transform& transform = batch.transform(job);
  const Batch::Output& output = batch.output(job);
  ShardBytes stored(shards_, r.shard, r.offset, r.length, worker.hold);
  TimedBytes bytes(stored);
  TimedRows rows(worker.decoder);
  Status status = shards_.check(r.shard, r.offset, r.length);
  ImageShape shape;
  std::uint64_t opened = 0;
  if (status) {
    const Decoder::Wish wish{transform.color, r.shape.has_color, transform.max_pixels, transform.approximate_jpeg,
                             &r.checksum};
    status = worker.decoder.open(r.format, bytes, wish, shape);
    opened = since(begin);
  }
  if (status)
    status = transform_image(transform, shape, rows, batch.key(job), output.shape, output.data, worker.workspace);
  // Nothing but reads waits for a core, so that such waits lie within them.
  costs.bytes += bytes.n_bytes;
  costs.read_ns += bytes.nanoseconds - (worker.hold.waited_ns() - waited);
  costs.decode_ns += opened + rows.nanoseconds - bytes.nanoseconds;
  costs.transform_ns += since(begin) - opened - rows.nanoseconds;
  return status;
}

EngineStats Engine::stats() const noexcept {
  EngineStats stats;
  for (std::size_t code = 0; code < kFormats; ++code) {
    stats.formats[code] = ledger_.costs(static_cast<Format>(code));
    stats.all += stats.formats[code];
  }
  stats.bytes_read = shards_.bytes_read();
  stats.failed_renditions = failed_renditions_.load(std::memory_order_relaxed);
  stats.blocks_in_use = pool_->blocks_in_use();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& batch : queue_) stats.queued_jobs += batch->left();
  stats.queued_jobs += ready_.size() + again_.size();
  stats.active = cores_.busy();
  return stats;
}

}  // namespace headrace
