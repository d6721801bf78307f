// SPDX-License-Identifier: Apache-2.0
#include "loading/external_image.h"

#include <new>
#include <utility>
#include <vector>

namespace headrace {

ExternalImage::ExternalImage(Shards& shards, CostTable& costs, Scheduler& scheduler, Task task) noexcept
    : shards_(shards), costs_(costs), scheduler_(scheduler), task_(std::move(task)), lease_(scheduler, true) {}

ExternalImage::~ExternalImage() {
  if (!ended_) fail("LoaderError", "the decoder's thread ended before the image was decoded");
}

void ExternalImage::read(CoreLease& lease, Costs& costs) noexcept {
  const auto begin = Clock::now();
  const std::uint64_t waited_before = lease.waited_ns();
  const Rendition& r = rendition();
  Status status = shards_.check(r.shard, r.offset, r.length);
  // The copy needs no core: it is little work, and this thread is needed for the next read.
  if (status) status = shards_.read_only(r.shard, r.offset, r.length, file_, extent_, lease);
  if (status) costs.bytes += r.length;
  costs.read_ns += nanoseconds_since(begin) - (lease.waited_ns() - waited_before);
  if (status && !task_.batch->cancelled()) return;
  if (!status && try_other_rendition()) return;
  if (!status) task_.batch->fail(task_.job, status);
  end();
}

void ExternalImage::read_with_own_core() noexcept {
  lease_.begin(late_order(), true);
  start_clocks();
  Costs costs;
  costs.images = 1;
  costs.stored_bytes = rendition().length;
  const Format format = rendition().format;
  read(lease_, costs);
  if (!ended_) lease_.resume();
  costs_.add(format, costs);
  begun_ = Clock::now();
}

void ExternalImage::begin_decoding() noexcept {
  lease_.begin(late_order(), false);
  lease_.resume();
  start_clocks();
  if (task_.batch->cancelled()) end();
}

void ExternalImage::start_clocks() noexcept {
  begun_ = Clock::now();
  cpu_begun_ = thread_cpu_nanoseconds();
  thread_ = std::this_thread::get_id();
}

void ExternalImage::finish(const Picture& picture) noexcept {
  if (ended_) return;
  const auto begin = Clock::now();
  // The threads of external decoders decode many images: each keeps one workspace.
  static thread_local Workspace workspace;
  PictureRows rows(picture);
  Status status;
  try {
    std::vector<View> views;
    task_.batch->list_views(task_.job, views);
    const ImageShape shape{picture.height, picture.width, picture.type};
    for (const View& view : views)
      if (status) status = transform_views({&view, 1}, shape, true, rows, workspace);
  } catch (const std::bad_alloc&) {
    status = {Code::no_memory, "no memory to transform an image", 0, -1};
  }
  const auto decode = std::chrono::duration_cast<std::chrono::nanoseconds>(begin - begun_);
  add_costs(static_cast<std::uint64_t>(decode.count()), nanoseconds_since(begin));
  if (!status && try_other_rendition()) return;
  if (!status) task_.batch->fail(task_.job, status);
  end();
}

void ExternalImage::fail(std::string error_name, std::string message) noexcept {
  if (ended_ || try_other_rendition()) return;
  task_.batch->fail(task_.job, {Code::corrupt, "", 0, -1}, std::move(error_name), std::move(message));
  end();
}

// Queue the job again with a rendition that has not failed; false if there is none.
bool ExternalImage::try_other_rendition() noexcept {
  Task next = task_;
  next.job.failed |= static_cast<std::uint8_t>(1U << next.job.rendition);
  if (!next.batch->has_usable_rendition(next.job)) return false;
  if (!scheduler_.retry(next)) return false;
  costs_.add_failed_rendition();
  ended_ = true;
  lease_.release();
  return true;
}

void ExternalImage::end() noexcept {
  ended_ = true;
  lease_.reservation.end();
  task_.batch->end_jobs();
  lease_.release();
}

void ExternalImage::add_costs(std::uint64_t decode_ns, std::uint64_t transform_ns) noexcept {
  Costs costs;
  const Rendition& r = rendition();
  costs.pixels = std::uint64_t{r.shape.height} * r.shape.width;
  costs.decode_ns = decode_ns;
  costs.transform_ns = transform_ns;
  // The CPU clock is per thread: it is only comparable in the thread that started it.
  if (thread_ == std::this_thread::get_id()) costs.cpu_ns = thread_cpu_nanoseconds() - cpu_begun_;
  costs_.add(r.format, costs);
}

}  // namespace headrace
