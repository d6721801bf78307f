// SPDX-License-Identifier: Apache-2.0
#include "loading/engine.h"

#include <algorithm>
#include <array>
#include <new>

namespace headrace {
namespace {

// A batch may use up to a quarter of the memory: the next one is made while the consumer has this one.
constexpr std::uint64_t kMemoryShare = 4;

// Measures the time of decoding, without what is done with the rows.
class TimedRows final : public ImageRows, public RowSource {
 public:
  explicit TimedRows(ImageRows& image) noexcept : image_(image) {}
  Status start(Region region, RowSource*& rows) noexcept override {
    const auto begin = Clock::now();
    const Status status = image_.start(region, source_);
    nanoseconds += nanoseconds_since(begin);
    rows = this;
    return status;
  }
  Status next(std::uint32_t max_rows, Rows& rows) noexcept override {
    const auto begin = Clock::now();
    const Status status = source_->next(max_rows, rows);
    nanoseconds += nanoseconds_since(begin);
    return status;
  }

  bool reduce(unsigned denominator) noexcept override { return image_.reduce(denominator); }

  std::uint64_t nanoseconds = 0;

 private:
  ImageRows& image_;
  RowSource* source_ = nullptr;
};

// Measures the time of reading.
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
    nanoseconds += nanoseconds_since(begin);
    n_bytes += n;
  }

  ByteSource& bytes_;
};

}  // namespace

struct Engine::Worker {
  explicit Worker(Engine& engine) noexcept : recorder(engine.costs_), lease(engine.scheduler_) {}

  Workspace workspace;
  Decoder decoder{workspace};
  std::vector<View> views;
  CostRecorder recorder;
  CoreLease lease;
};

Engine::Engine(std::vector<Shard> shards, unsigned threads, bool direct, double storage_rate,
               std::vector<Identity> identities, std::uint32_t formats)
    : limits_{formats, usable_memory() / kMemoryShare},
      has_threads_(threads > 0),
      shards_(std::move(shards), std::move(identities), direct),
      balancer_(std::max(1U, threads)),
      pool_(std::make_shared<Pool>(8)),
      scheduler_(std::max(1U, threads), shards_, balancer_) {
  shards_.set_rate(storage_rate);
  if (has_threads_) scheduler_.start([this](bool extra) { work(extra); });
}

Engine::~Engine() { close(); }

void Engine::close() noexcept {
  scheduler_.stop();
  shards_.close();  // reads that wait for the rate return
  scheduler_.join();
}

std::shared_ptr<Batch> Engine::submit(std::vector<FieldRequest> fields, std::vector<std::uint64_t> rows,
                                      std::uint64_t seed, std::uint32_t epoch) noexcept {
  try {
    BatchJobs jobs;
    auto batch = std::make_shared<Batch>(std::move(fields), std::move(rows), seed, epoch, *pool_, limits_, jobs);
    const bool accepted = jobs.unclaimed() == 0 ? !closed() : scheduler_.submit(batch, std::move(jobs));
    return accepted ? batch : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Engine::run_queued(double seconds) noexcept {
  if (has_threads_) return;  // they do it
  const auto limit = std::chrono::duration<double>(std::clamp(seconds, 0.0, 3600.0));
  work(false, Clock::now() + std::chrono::duration_cast<Clock::duration>(limit));
}

void Engine::work(bool extra, Clock::time_point deadline) noexcept {
  Worker worker(*this);
  worker.recorder.begin();
  for (JobClaim claim; scheduler_.claim(claim, extra); claim.batch.reset()) {
    if (shards_.hints()) hint_ahead(2 * claim.jobs.size());
    worker.lease.begin(claim.task(claim.jobs.front()).order(), claim.has_core);
    for (const Job& job : claim.jobs) run(worker, claim, job, &job == &claim.jobs.back());
    worker.lease.release();
    worker.recorder.flush();
    if (!has_threads_ && Clock::now() >= deadline) return;
  }
}

void Engine::run(Worker& worker, const JobClaim& claim, Job job, bool last) noexcept {
  const std::shared_ptr<Batch>& batch = claim.batch;
  // Stats include a batch before its consumer sees that it has ended.
  const auto end = [&] {
    if (last) worker.recorder.flush();
    batch->end_jobs();
  };
  for (;;) {
    if (batch->cancelled()) return end();
    choose_rendition(*batch, job, worker.lease.reservation);
    const Rendition& r = batch->rendition(job);
    Costs& costs = worker.recorder.costs(r.format);
    costs.images += 1;
    costs.stored_bytes += r.length;
    // Storage can start while this thread waits for a core.
    if (!claim.has_core && shards_.hints()) hint(*batch, job);
    if (!core_decodes(r.format)) return read_external(worker, claim.task(job), costs);
    costs.pixels += std::uint64_t{r.shape.height} * r.shape.width;
    const Status status =
        batch->is_tensor(job) ? read_tensor(worker, *batch, job, costs) : decode(worker, *batch, job, costs);
    worker.lease.reservation.end();
    if (status) return end();
    job.failed |= static_cast<std::uint8_t>(1U << job.rendition);
    if (!batch->has_usable_rendition(job)) {
      batch->fail(job, status);
      return end();
    }
    costs_.add_failed_rendition();
  }
}

Status Engine::decode(Worker& worker, const Batch& batch, const Job& job, Costs& costs) noexcept {
  const auto begin = Clock::now();
  const std::uint64_t waited_before = worker.lease.waited_ns();
  const Rendition& r = batch.rendition(job);
  const Transform& transform = batch.transform(job);
  try {
    batch.list_views(job, worker.views);
  } catch (const std::bad_alloc&) {
    return {Code::no_memory, "no memory to transform an image", 0, -1};
  }
  ShardBytes stored(shards_, r.shard, r.offset, r.length, worker.lease);
  TimedBytes bytes(stored);
  TimedRows rows(worker.decoder);
  Status status = shards_.check(r.shard, r.offset, r.length);
  ImageShape shape;
  std::uint64_t opened = 0;
  if (status) {
    const DecodeOptions options{transform.color, r.shape.has_color, transform.max_pixels, transform.approximate_jpeg,
                                &r.checksum,     transform.mask};
    status = worker.decoder.open(r.format, bytes, options, shape);
    opened = nanoseconds_since(begin);
  }
  if (status) status = transform_views(worker.views, shape, reads_entire_file(r.format), rows, worker.workspace);
  // Only reads wait for a core, so the time of reading includes these waits.
  costs.bytes += bytes.n_bytes;
  costs.read_ns += bytes.nanoseconds - (worker.lease.waited_ns() - waited_before);
  costs.decode_ns += opened + rows.nanoseconds - bytes.nanoseconds;
  costs.transform_ns += nanoseconds_since(begin) - opened - rows.nanoseconds;
  return status;
}

// From the shard to its place in the batch; each piece is summed while it is in the cache.
Status Engine::read_tensor(Worker& worker, const Batch& batch, const Job& job, Costs& costs) noexcept {
  const Rendition& r = batch.rendition(job);
  if (Status s = shards_.check(r.shard, r.offset, r.length); !s) return s;
  const ShardBytes stored(shards_, r.shard, r.offset, r.length, worker.lease);
  std::uint8_t* const out = batch.place(job);
  std::uint32_t checksum = 0;
  for (std::uint64_t at = 0; at < r.length;) {
    const auto n = static_cast<std::size_t>(std::min(stored.chunk(), r.length - at));
    const std::uint64_t waited_before = worker.lease.waited_ns();
    const auto begin = Clock::now();
    if (Status s = shards_.read_to(r.shard, r.offset + at, n, out + at, worker.workspace.file, worker.lease); !s)
      return s;
    const std::uint64_t read_ns = nanoseconds_since(begin);
    checksum = crc32c({out + at, n}, checksum);
    costs.bytes += n;
    costs.read_ns += read_ns - (worker.lease.waited_ns() - waited_before);
    costs.decode_ns += nanoseconds_since(begin) - read_ns;
    at += n;
  }
  if (checksum != r.checksum)
    return {Code::corrupt, "the checksum of the bytes does not match the one in the index", 0, -1};
  return {};
}

std::unique_ptr<ExternalImage> Engine::make_external(Task task) noexcept {
  const std::shared_ptr<Batch> batch = task.batch;
  const Job job = task.job;
  std::unique_ptr<ExternalImage> image(new (std::nothrow) ExternalImage(shards_, costs_, scheduler_, std::move(task)));
  if (!image) {
    batch->fail(job, {Code::no_memory, "no memory to read an image", 0, -1});
    batch->end_jobs();
  }
  return image;
}

// In a thread of the engine: read the image and queue it for an external decoder.
void Engine::read_external(Worker& worker, Task task, Costs& costs) noexcept {
  std::unique_ptr<ExternalImage> image = make_external(std::move(task));
  if (!image) return;
  image->read(worker.lease, costs);
  worker.recorder.flush();  // before another thread can end the batch
  image->reserve(std::move(worker.lease.reservation));
  if (!image->ended()) scheduler_.add_ready(image);
}

std::unique_ptr<ExternalImage> Engine::next_external(double seconds) noexcept {
  ExternalClaim claim;
  if (!scheduler_.claim_external(claim, seconds)) return nullptr;
  if (claim.ready) {
    claim.ready->begin_decoding();
    return std::move(claim.ready);
  }
  if (shards_.hints()) hint_ahead(2);
  std::unique_ptr<ExternalImage> image = make_external(std::move(claim.task));
  if (image)
    image->read_with_own_core();
  else
    scheduler_.release_core(true, false, false);
  return image;
}

// Choose among the renditions that have not failed the one that suits the current load.
void Engine::choose_rendition(const Batch& batch, Job& job, LoadReservation& reservation) noexcept {
  if (!batch.has_usable_rendition(job)) return;
  const auto& renditions = batch.field(job.field).renditions;
  std::array<Load, kMaxRenditions> loads;
  std::array<std::uint8_t, kMaxRenditions> numbers{};
  std::size_t n = 0;
  for (std::size_t k = 0; k < renditions.size(); ++k) {
    if (job.failed >> k & 1) continue;
    const Rendition& r = renditions[k][job.position];
    const double ns = costs_.expected_time(r.format, std::uint64_t{r.shape.height} * r.shape.width);
    loads[n] = {costs_.expected_bytes(r.format, r.length), ns * 1e-9};
    numbers[n++] = static_cast<std::uint8_t>(k);
  }
  job.rendition = numbers[balancer_.choose({loads.data(), n}, reservation)];
}

// Ask the kernel to read the next images ahead, at most `max_images` of them.
void Engine::hint_ahead(std::size_t max_images) noexcept {
  Task task;
  for (std::size_t n = 0; n < max_images && scheduler_.next_to_hint(task); ++n) hint(*task.batch, task.job);
}

void Engine::hint(const Batch& batch, const Job& job) noexcept {
  constexpr std::uint64_t kMaxEntire = 256 << 10;
  const Rendition& r = batch.rendition(job);
  if (!shards_.check(r.shard, r.offset, r.length)) return;
  Program program;
  if (r.length <= kMaxEntire || reads_entire_file(r.format) || batch.is_tensor(job) ||
      batch.field(job.field).views() > 1 ||
      !make_program(batch.transform(job).ops, r.shape.height, r.shape.width, batch.key(job), program))
    return shards_.hint(r.shard, r.offset, r.length);
  // Assume that all rows of the image take the same number of bytes.
  const Axis& rows = program.passes[0].rows;
  const double share = static_cast<double>(r.length) / rows.input, margin = static_cast<double>(r.length) / 16;
  const auto begin = static_cast<std::uint64_t>(std::max(0.0, rows.start * share - margin));
  const auto end = std::min(r.length, static_cast<std::uint64_t>((rows.start + rows.size) * share + margin));
  if (begin > 0) shards_.hint(r.shard, r.offset, 16 << 10);
  shards_.hint(r.shard, r.offset + begin, end - begin);
}

EngineStats Engine::stats() const noexcept {
  EngineStats stats;
  for (std::size_t code = 0; code < kFormats; ++code) {
    stats.formats[code] = costs_.costs(static_cast<Format>(code));
    stats.all += stats.formats[code];
  }
  stats.bytes_read = shards_.bytes_read();
  stats.failed_renditions = costs_.failed_renditions();
  stats.blocks_in_use = pool_->blocks_in_use();
  stats.queued_jobs = scheduler_.queued_jobs();
  stats.active = scheduler_.busy_cores();
  return stats;
}

}  // namespace headrace
