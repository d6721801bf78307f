// SPDX-License-Identifier: Apache-2.0
#include "loading/shards.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include "kernels.h"
#include "platform/platform.h"

namespace headrace {
namespace {

// What direct reads must be aligned to on every device in use.
constexpr std::uint64_t kBlock = 4096;

// Leave most handles to the trainer.
std::size_t max_open_files() noexcept { return std::clamp<std::size_t>(platform::max_open_files() / 4, 16, 4096); }

Status unreadable(const char* what, std::uint64_t offset) noexcept { return {Code::unreadable, what, offset, -1}; }

bool still_there(const Identity& identity) noexcept {
  if (identity.path.empty()) return true;
  std::array<char, 64> ending{};
  const std::size_t n = identity.ending.size();
  if (n > ending.size() || n > identity.size) return false;
  bool direct = false;
  const int handle = platform::open_file(identity.path.c_str(), direct);
  if (handle < 0) return false;
  platform::FileStatus found;
  const bool same = platform::file_status(handle, found) && found.is_regular && found.size == identity.size &&
                    platform::read_at(handle, ending.data(), n, identity.size - n) == static_cast<std::int64_t>(n) &&
                    std::equal(identity.ending.begin(), identity.ending.end(), ending.begin());
  platform::close_file(handle);
  return same;
}

}  // namespace

// Where bytes of a shard go, and how many have come. Direct reads may fill up their last block.
struct Shards::Span {
  std::uint8_t* memory;
  std::uint64_t begin, wanted, room;
  std::size_t counts;  // how many of them are still to be counted
  std::uint64_t done = 0;
};

struct Shards::File {
  int handle;
  bool direct;

  File(int opened, bool is_direct) noexcept : handle(opened), direct(is_direct) {}
  ~File() { platform::close_file(handle); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
};

Shards::Shards(std::vector<Shard> shards, std::vector<Identity> identities, bool direct)
    : shards_(std::move(shards)),
      identities_(std::move(identities)),
      direct_(direct),
      max_open_(max_open_files()),
      files_(shards_.size()) {}

Status Shards::check(std::uint32_t shard, std::uint64_t offset, std::uint64_t length) const noexcept {
  if (shard >= shards_.size()) return {Code::corrupt, "the index names a shard that does not exist", 0, -1};
  const std::uint64_t size = shards_[shard].size;
  if (length == 0 || offset > size || length > size - offset)
    return {Code::corrupt, "the index names bytes beyond the end of the shard", size, -1};
  return {};
}

// The shard comes first: if the dataset is replaced between the two looks, the second one shows it.
Status Shards::check_opened(int handle, std::uint32_t shard) const noexcept {
  platform::FileStatus found;
  if (!platform::file_status(handle, found) || !found.is_regular)
    return unreadable("the shard is not a regular file", 0);
  if (found.size != shards_[shard].size)
    return unreadable(found.size < shards_[shard].size
                          ? "the shard was cut short: restore it or build again"
                          : "the shard is longer than dataset.json has recorded: restore it or build again",
                      std::min(found.size, shards_[shard].size));
  const std::uint32_t dataset = shards_[shard].dataset;
  return dataset >= identities_.size() || still_there(identities_[dataset])
             ? Status{}
             : unreadable("the dataset has been rebuilt or removed since it was opened: open it again", 0);
}

std::shared_ptr<Shards::File> Shards::open(std::uint32_t shard, Status& status) noexcept {
  const MutexLock lock(mutex_);
  if (files_[shard]) return files_[shard];
  bool direct = direct_;
  const int handle = platform::open_file(shards_[shard].path.c_str(), direct);
  if (handle < 0) {
    status = errno == ENOENT ? unreadable("the shard is missing: restore it or build again", 0)
             : errno == EMFILE || errno == ENFILE
                 ? unreadable("no file descriptors are left: raise the limit (ulimit -n)", 0)
                 : unreadable("the shard cannot be opened", 0);
    return nullptr;
  }
  if (status = check_opened(handle, shard); !status) {
    platform::close_file(handle);
    return nullptr;
  }
  try {
    auto file = std::make_shared<File>(handle, direct);
    // Files in use stay open until they are read; which ones to keep is not worth a list in order of use.
    if (open_count_ >= max_open_) {
      std::fill(files_.begin(), files_.end(), nullptr);
      open_count_ = 0;
    }
    files_[shard] = file;
    ++open_count_;
    return file;
  } catch (const std::bad_alloc&) {
    platform::close_file(handle);
    status = {Code::no_memory, "no memory to open a shard", 0, -1};
    return nullptr;
  }
}

Status Shards::read_only(std::uint32_t shard, std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent,
                         ReadObserver& observer) noexcept {
  class Waiting final : public ReadObserver {
   public:
    explicit Waiting(ReadObserver& observer) noexcept : observer_(observer) {}
    void pause() noexcept override { observer_.pause(); }
    void arrived(std::size_t bytes) noexcept override { observer_.arrived(bytes); }
    void resume() noexcept override {}

   private:
    ReadObserver& observer_;
  } waiting(observer);
  return read(shard, offset, n, buffer, extent, waiting);
}

Status Shards::read(std::uint32_t shard, std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent,
                    ReadObserver& observer) noexcept {
  Status status;
  const std::shared_ptr<File> file = open(shard, status);
  if (!file) return status;
  const std::uint64_t begin = file->direct ? offset / kBlock * kBlock : offset;
  const std::uint64_t wanted = offset + n - begin;
  const std::size_t room = (wanted + kBlock - 1) / kBlock * kBlock + kOverread;
  std::uint8_t* memory = buffer.reserve(room + kBlock);
  if (!memory) return {Code::no_memory, "no memory to read an image", offset, -1};
  // Direct reads need aligned memory.
  memory += (kBlock - reinterpret_cast<std::uintptr_t>(memory) % kBlock) % kBlock;

  Span span{memory, begin, wanted, room - kOverread, n};
  if (Status s = deliver(*file, span, observer); !s) return s;
  extent = {{memory + (offset - begin), n}, memory + room};
  return {};
}

Status Shards::read_to(std::uint32_t shard, std::uint64_t offset, std::size_t n, std::uint8_t* memory, Buffer& buffer,
                       ReadObserver& observer) noexcept {
  Status status;
  const std::shared_ptr<File> file = open(shard, status);
  if (!file) return status;
  if (file->direct && (offset | n | reinterpret_cast<std::uintptr_t>(memory)) % kBlock != 0) {
    Extent extent;
    if (Status s = read(shard, offset, n, buffer, extent, observer); !s) return s;
    std::memcpy(memory, extent.bytes.data(), n);
    return {};
  }
  Span span{memory, offset, n, n, n};
  return deliver(*file, span, observer);
}

// Fill the span at the rate that was set.
Status Shards::deliver(const File& file, Span& span, ReadObserver& observer) noexcept {
  bool waited = false;
  if (throttle_.limits()) {
    const std::size_t n = span.counts;
    const Throttle::Ticket ticket = throttle_.request(n);
    if (ticket.waits) {
      observer.pause();
      throttle_.wait(ticket);
      waited = true;
    }
    arrived(n, observer);
    span.counts = 0;
  }
  if (Status s = fill(file, span, observer, waited); !s) return s;
  note_wait(waited);
  return {};
}

// Copying what the kernel has at hand is work for a core; waiting for the device is not.
Status Shards::fill(const File& file, Span& span, ReadObserver& observer, bool& waited) noexcept {
  using Clock = std::chrono::steady_clock;
  if (!file.direct) {
    observer.resume();
    if (can_try_.load(std::memory_order_relaxed)) {
      const platform::CachedRead cached = platform::read_cached_at(file.handle, span.memory, span.wanted, span.begin);
      span.done = cached.bytes;
      if (!cached.is_supported) can_try_.store(false, std::memory_order_relaxed);
    }
  }
  if (span.done < span.wanted) {
    // Where the kernel cannot be asked, a device is expected if there was one lately.
    const bool waits = file.direct || hints() || can_try_.load(std::memory_order_relaxed);
    if (waits) observer.pause();
    const auto start = Clock::now();
    while (span.done < span.wanted) {
      const std::uint64_t ask = (file.direct ? span.room : span.wanted) - span.done;
      const std::int64_t got = platform::read_at(file.handle, span.memory + span.done, ask, span.begin + span.done);
      if (got < 0) return unreadable("the device failed to read the shard", span.begin + span.done);
      if (got == 0)
        return unreadable("the shard ends too early: it was cut short; restore it or build again",
                          span.begin + span.done);
      span.done += static_cast<std::uint64_t>(got);
    }
    note_slow(std::chrono::duration<double>(Clock::now() - start).count(), span.wanted);
    waited |= waits;
  } else {
    note_slow(0, 0);
  }
  arrived(span.counts, observer);
  observer.resume();
  return {};
}

void Shards::arrived(std::size_t n, ReadObserver& observer) noexcept {
  if (n == 0) return;
  bytes_read_.fetch_add(n, std::memory_order_relaxed);
  observer.arrived(n);
}

void Shards::note_wait(bool waited) noexcept {
  if (waited)
    waits_left_.store(kWaitsAfterWait, std::memory_order_relaxed);
  else if (waits_left_.load(std::memory_order_relaxed) > 0)
    waits_left_.fetch_sub(1, std::memory_order_relaxed);
}

// A read from the page cache takes microseconds and some 0.2 ns a byte; anything far beyond came from a device, where
// hints ahead keep more requests under way than there are threads.
void Shards::note_slow(double seconds, std::size_t n) noexcept {
  if (seconds > 40e-6 + static_cast<double>(n) * 1e-9)
    hints_left_.store(kHintsAfterWait, std::memory_order_relaxed);
  else if (hints_left_.load(std::memory_order_relaxed) > 0)
    hints_left_.fetch_sub(1, std::memory_order_relaxed);
}

void Shards::hint(std::uint32_t shard, std::uint64_t offset, std::uint64_t n) noexcept {
  if constexpr (!platform::kHasReadAhead) return;
  Status status;
  if (const std::shared_ptr<File> file = open(shard, status)) platform::will_read(file->handle, offset, n);
}

}  // namespace headrace
