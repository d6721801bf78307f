// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "platform/platform.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace headrace::platform {
namespace {

// Linux reads no more than this at a time; macOS refuses more than INT_MAX.
constexpr std::size_t kMaxRead = 0x7FFFF000;

// Call a function again while a signal interrupts it.
template <class Call>
std::int64_t uninterrupted(const Call& call) noexcept {
  for (;;) {
    const ssize_t got = call();
    if (got >= 0 || errno != EINTR) return got;
  }
}

#if defined(__linux__)
// The number in a file of the kernel; UINT64_MAX if it has none, as for "max".
std::uint64_t number_in(const char* path) noexcept {
  const int handle = ::open(path, O_RDONLY | O_CLOEXEC);
  if (handle < 0) return UINT64_MAX;
  char text[32] = {};
  const ssize_t got = ::read(handle, text, sizeof text - 1);
  ::close(handle);
  char* end = text;
  const std::uint64_t number = got > 0 ? std::strtoull(text, &end, 10) : 0;
  return end == text ? UINT64_MAX : number;
}
#endif

}  // namespace

int open_file(const char* path, bool& direct) noexcept {
  // O_NONBLOCK: a pipe or a device in the place of a file is refused by the caller, not waited for.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
#if defined(O_DIRECT)
  if (direct) {
    const int handle = ::open(path, kFlags | O_DIRECT);
    if (handle >= 0) return handle;
  }
  direct = false;
#endif
  const int handle = ::open(path, kFlags);
#if !defined(O_DIRECT) && defined(F_NOCACHE)
  direct = direct && handle >= 0 && ::fcntl(handle, F_NOCACHE, 1) == 0;
#elif !defined(O_DIRECT)
  direct = false;
#endif
  return handle;
}

void close_file(int handle) noexcept { ::close(handle); }

bool file_status(int handle, FileStatus& status) noexcept {
  struct stat found{};
  if (::fstat(handle, &found) != 0) return false;
  status = {S_ISREG(found.st_mode), S_ISDIR(found.st_mode), static_cast<std::uint64_t>(found.st_size)};
  return true;
}

std::int64_t read_at(int handle, void* memory, std::size_t n, std::uint64_t offset) noexcept {
  return uninterrupted([&] { return ::pread(handle, memory, std::min(n, kMaxRead), static_cast<off_t>(offset)); });
}

std::int64_t read_parts_at(int handle, std::span<const Part> parts, std::uint64_t offset) noexcept {
  std::array<iovec, kMaxParts> vector;
  const std::size_t n = std::min(parts.size(), vector.size());
  for (std::size_t i = 0; i < n; ++i) vector[i] = {parts[i].memory, parts[i].size};
  return uninterrupted(
      [&] { return ::preadv(handle, vector.data(), static_cast<int>(n), static_cast<off_t>(offset)); });
}

CachedRead read_cached_at(int handle, void* memory, std::size_t n, std::uint64_t offset) noexcept {
#if defined(RWF_NOWAIT)
  const iovec part{memory, n};
  const ssize_t got = ::preadv2(handle, &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  if (got >= 0) return {static_cast<std::uint64_t>(got), true};
  return {0, errno == EAGAIN || errno == EINTR};
#else
  static_cast<void>(handle), static_cast<void>(memory), static_cast<void>(n), static_cast<void>(offset);
  return {};
#endif
}

void will_read(int handle, std::uint64_t offset, std::uint64_t n) noexcept {
#if defined(POSIX_FADV_WILLNEED)
  ::posix_fadvise(handle, static_cast<off_t>(offset), static_cast<off_t>(n), POSIX_FADV_WILLNEED);
#else
  constexpr std::uint64_t kMax = INT32_MAX;
  radvisory advice{static_cast<off_t>(offset), static_cast<int>(std::min(n, kMax))};
  ::fcntl(handle, F_RDADVISE, &advice);
#endif
}

void will_not_read_again(int handle) noexcept {
#if defined(POSIX_FADV_DONTNEED)
  ::posix_fadvise(handle, 0, 0, POSIX_FADV_DONTNEED);
#else
  static_cast<void>(handle);
#endif
}

std::size_t max_open_files() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return static_cast<std::size_t>(limit.rlim_cur);
}

void* map_memory(std::size_t n, bool huge) noexcept {
  void* memory = ::mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (huge) ::madvise(memory, n, MADV_HUGEPAGE);
#else
  static_cast<void>(huge);
#endif
  return memory;
}

void unmap_memory(void* memory, std::size_t n) noexcept { ::munmap(memory, n); }

void populate_memory(void* memory, std::size_t n) noexcept {
#if defined(__linux__)
  // The value of MADV_POPULATE_WRITE, which the headers of glibc before 2.35 lack. Kernels before 5.14 refuse it.
  constexpr int kPopulateWrite = 23;
  ::madvise(memory, n, kPopulateWrite);
#else
  static_cast<void>(memory), static_cast<void>(n);
#endif
}

void* allocate_aligned(std::size_t alignment, std::size_t n) noexcept { return std::aligned_alloc(alignment, n); }

void free_aligned(void* memory) noexcept { std::free(memory); }

std::uint64_t usable_memory() noexcept {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  std::uint64_t usable =
      pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) : UINT64_MAX;
#if defined(__linux__)
  usable = std::min(
      {usable, number_in("/sys/fs/cgroup/memory.max"), number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
#endif
  return usable;
}

double thread_seconds() noexcept {
  timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
}

int process_id() noexcept { return static_cast<int>(::getpid()); }

void sleep_forever() noexcept {
  for (;;) ::pause();
}

bool has_arm_crc32() noexcept {
#if defined(__aarch64__) && defined(__linux__)
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
  return true;  // every one of Apple's cores that runs macOS
#else
  return false;
#endif
}

}  // namespace headrace::platform
