// SPDX-License-Identifier: Apache-2.0
// Images that someone else decodes.
#include <algorithm>
#include <new>
#include <utility>

#include "loading/engine_parts.h"

namespace headrace {
namespace {

std::chrono::nanoseconds to_nanoseconds(double seconds) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

Foreign::Foreign(Engine& engine, std::shared_ptr<Batch> batch, Batch::Job job) noexcept
    : engine_(engine), batch_(std::move(batch)), job_(job), hold_(engine, true) {}

Foreign::~Foreign() {
  if (!ended_) fail("LoaderError", "the decoder's thread ended before the image was decoded");
}

const Rendition& Foreign::rendition() const noexcept { return batch_->rendition(job_); }

const Transform& Foreign::transform() const noexcept { return batch_->transform(job_); }

std::uint64_t Foreign::order() const noexcept { return order_of(batch_->number_, job_.position); }

void Foreign::read(CoreHold& hold, Costs& costs) noexcept {
  const auto begin = Clock::now();
  const std::uint64_t waited = hold.waited_ns();
  const Rendition& r = rendition();
  Status status = engine_.shards_.check(r.shard, r.offset, r.length);
  // It is copied beside the cores: little work, and the thread is needed for the next read.
  if (status) status = engine_.shards_.read_only(r.shard, r.offset, r.length, file_, extent_, hold);
  if (status) costs.bytes += r.length;
  costs.read_ns += since(begin) - (hold.waited_ns() - waited);
  if (status && !batch_->cancelled()) return;
  if (!status && engine_.try_again(batch_, job_)) {
    ended_ = true;
    return;
  }
  if (!status) batch_->fail(job_, status);
  end();
}

// From now on a thread works on it.
void Foreign::begin() noexcept {
  begun_ = Clock::now();
  cpu_begun_ = thread_cpu_nanoseconds();
  thread_ = std::this_thread::get_id();
}

void Foreign::finish(const Picture& picture) noexcept {
  if (ended_) return;
  const auto begin = Clock::now();
  // A thread that decodes for us comes back: its workspace is kept for it.
  static thread_local Workspace workspace;
  PictureRows rows(picture);
  const Batch::Output& output = batch_->output(job_);
  const Status status = transform_image(transform(), {picture.height, picture.width, picture.type}, rows,
                                        batch_->key(job_), output.shape, output.data, workspace);
  const auto decode = std::chrono::duration_cast<std::chrono::nanoseconds>(begin - begun_);
  add_costs(static_cast<std::uint64_t>(decode.count()), since(begin));
  if (!status && engine_.try_again(batch_, job_)) {
    ended_ = true;
    return hold_.release();
  }
  if (!status) batch_->fail(job_, status);
  end();
}

void Foreign::fail(std::string kind, std::string message) noexcept {
  if (ended_) return;
  if (engine_.try_again(batch_, job_)) {
    ended_ = true;
    return hold_.release();
  }
  batch_->fail(job_, {Code::corrupt, "", 0, -1}, std::move(kind), std::move(message));
  end();
}

void Foreign::end() noexcept {
  ended_ = true;
  hold_.share.end();
  batch_->end_job();
  hold_.release();
}

void Foreign::add_costs(std::uint64_t decode_ns, std::uint64_t transform_ns) noexcept {
  Costs costs;
  const Rendition& r = rendition();
  costs.pixels = std::uint64_t{r.shape.height} * r.shape.width;
  costs.decode_ns = decode_ns;
  costs.transform_ns = transform_ns;
  // The clock is the thread's: another one's says nothing of it.
  if (thread_ == std::this_thread::get_id()) costs.cpu_ns = thread_cpu_nanoseconds() - cpu_begun_;
  engine_.ledger_.add(r.format, costs);
}

// In one of our threads: read, and leave the rest to whoever asks next.
void Engine::read_foreign(Worker& worker, const std::shared_ptr<Batch>& batch, const Batch::Job& job,
                          Costs& costs) noexcept {
  std::unique_ptr<Foreign> foreign(new (std::nothrow) Foreign(*this, batch, job));
  if (!foreign) {
    batch->fail(job, {Code::no_memory, "no memory to read an image", 0, -1});
    return batch->end_job();
  }
  foreign->read(worker.hold, costs);
  worker.tally.flush();  // before anyone can end it
  foreign->hold_.share = std::move(worker.hold.share);
  if (foreign->ended()) return;
  const std::size_t n_bytes = foreign->data().size();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!closing_) {
      try {
        ready_.push_back(std::move(foreign));
        ready_bytes_ += n_bytes;
      } catch (const std::bad_alloc&) {
        // `foreign` is destroyed without the mutex, and tells the batch.
      }
    }
  }
  foreign_work_.notify_one();
}

std::unique_ptr<Foreign> Engine::next_foreign(double seconds) noexcept {
  std::unique_ptr<Foreign> foreign;
  std::vector<std::shared_ptr<Batch>> gone;
  bool read = false;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto deadline = Clock::now() + to_nanoseconds(seconds);
    for (;;) {
      if (closing_) return nullptr;
      if (!ready_.empty()) {
        const auto first = std::min_element(ready_.begin(), ready_.end(),
                                            [](const auto& a, const auto& b) { return a->order() < b->order(); });
        const bool had_room = ready_has_room();
        foreign = std::move(*first);
        ready_.erase(first);
        ready_bytes_ -= foreign->data().size();
        foreign->hold_.begin(foreign->order() | kAfterAll, false);
        read = true;
        if (!had_room) {
          work_.notify_all();
          spare_work_.notify_all();
        }
        break;
      }
      const auto open = overlaps_ || !cores_.free() ? queue_.end()
                                                    : std::find_if(queue_.begin(), queue_.end(), [](const auto& batch) {
                                                        return batch->foreign_.left() > 0;
                                                      });
      if (open != queue_.end()) {
        const std::shared_ptr<Batch> batch = *open;
        foreign.reset(new (std::nothrow) Foreign(*this, batch, batch->foreign_.list[batch->foreign_.claimed]));
        if (!foreign) return nullptr;
        ++batch->foreign_.claimed;
        drop_claimed(gone);
        cores_.take();
        foreign->hold_.begin(foreign->order() | kAfterAll, true);
        break;
      }
      if (foreign_work_.wait_until(lock, deadline) == std::cv_status::timeout) return nullptr;
    }
  }
  if (read) {
    foreign->hold_.resume();
    foreign->begin();
    if (foreign->batch_->cancelled()) foreign->end();
    return foreign;
  }
  if (shards_.hints()) hint_ahead(2);
  foreign->begin();
  const Rendition& r = foreign->rendition();
  Costs costs;
  costs.images = 1;
  costs.stored_bytes = r.length;
  foreign->read(foreign->hold_, costs);
  foreign->hold_.resume();
  ledger_.add(r.format, costs);
  foreign->begun_ = Clock::now();
  return foreign;
}

}  // namespace headrace
