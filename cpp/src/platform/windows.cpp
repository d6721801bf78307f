// SPDX-License-Identifier: Apache-2.0
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <fcntl.h>
#include <io.h>
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

#include "platform/platform.h"

namespace headrace::platform {
namespace {

// ReadFile counts in 32 bits; so much is a whole number of blocks.
constexpr std::size_t kMaxRead = 0x7FFFF000;
// Descriptors that the C runtime can have open.
constexpr std::size_t kMaxDescriptors = 8192;

int errno_of(DWORD error) noexcept {
  switch (error) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
      return ENOENT;
    case ERROR_TOO_MANY_OPEN_FILES:
      return EMFILE;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_LOCK_VIOLATION:
      return EACCES;
    case ERROR_INVALID_HANDLE:
      return EBADF;
    case ERROR_INVALID_PARAMETER:  // a direct read that is not aligned
      return EINVAL;
    default:
      return EIO;
  }
}

HANDLE native(int handle) noexcept { return reinterpret_cast<HANDLE>(_get_osfhandle(handle)); }

// Gives INVALID_HANDLE_VALUE on an error. Others may replace or remove the file meanwhile, as on POSIX.
HANDLE open_native(const wchar_t* path, DWORD flags) noexcept {
  return CreateFileW(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr, OPEN_EXISTING,
                     FILE_ATTRIBUTE_NORMAL | flags, nullptr);
}

}  // namespace

int open_file(const char* path, bool& direct) noexcept {
  const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, nullptr, 0);
  const std::unique_ptr<wchar_t[]> wide(n > 0 ? new (std::nothrow) wchar_t[static_cast<std::size_t>(n)] : nullptr);
  if (!wide) {
    errno = n > 0 ? ENOMEM : ENOENT;
    return -1;
  }
  MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide.get(), n);
  HANDLE file = direct ? open_native(wide.get(), FILE_FLAG_NO_BUFFERING) : INVALID_HANDLE_VALUE;
  direct = direct && file != INVALID_HANDLE_VALUE;
  if (!direct) file = open_native(wide.get(), 0);
  if (file == INVALID_HANDLE_VALUE) {
    errno = errno_of(GetLastError());
    return -1;
  }
  const int handle = _open_osfhandle(reinterpret_cast<intptr_t>(file), _O_RDONLY | _O_BINARY | _O_NOINHERIT);
  if (handle < 0) CloseHandle(file);  // errno is EMFILE
  return handle;
}

void close_file(int handle) noexcept { _close(handle); }

bool file_status(int handle, FileStatus& status) noexcept {
  LARGE_INTEGER size{};
  const HANDLE file = native(handle);
  if (GetFileType(file) != FILE_TYPE_DISK) {
    status = {};
    return file != INVALID_HANDLE_VALUE;
  }
  if (!GetFileSizeEx(file, &size)) {
    errno = errno_of(GetLastError());
    return false;
  }
  status = {true, false, static_cast<std::uint64_t>(size.QuadPart)};  // the C runtime has no handles of folders
  return true;
}

std::int64_t read_at(int handle, void* memory, std::size_t n, std::uint64_t offset) noexcept {
  OVERLAPPED at{};
  at.Offset = static_cast<DWORD>(offset);
  at.OffsetHigh = static_cast<DWORD>(offset >> 32);
  DWORD got = 0;
  if (ReadFile(native(handle), memory, static_cast<DWORD>(std::min(n, kMaxRead)), &got, &at)) return got;
  const DWORD error = GetLastError();
  if (error == ERROR_HANDLE_EOF) return 0;
  errno = errno_of(error);
  return -1;
}

std::int64_t read_parts_at(int handle, std::span<const Part> parts, std::uint64_t offset) noexcept {
  std::int64_t done = 0;
  for (const Part& part : parts) {
    const std::int64_t got = read_at(handle, part.memory, part.size, offset + static_cast<std::uint64_t>(done));
    if (got < 0) return done > 0 ? done : got;
    done += got;
    if (static_cast<std::size_t>(got) < part.size) break;
  }
  return done;
}

CachedRead read_cached_at(int, void*, std::size_t, std::uint64_t) noexcept { return {}; }

void will_read(int, std::uint64_t, std::uint64_t) noexcept {}

void will_not_read_again(int) noexcept {}

std::size_t max_open_files() noexcept { return kMaxDescriptors; }

void* map_memory(std::size_t n, bool) noexcept {
  return VirtualAlloc(nullptr, n, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void unmap_memory(void* memory, std::size_t) noexcept { VirtualFree(memory, 0, MEM_RELEASE); }

void populate_memory(void*, std::size_t) noexcept {}

void* allocate_aligned(std::size_t alignment, std::size_t n) noexcept { return _aligned_malloc(n, alignment); }

void free_aligned(void* memory) noexcept { _aligned_free(memory); }

std::uint64_t usable_memory() noexcept {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) ? status.ullTotalPhys : UINT64_MAX;
}

double thread_seconds() noexcept {
  FILETIME created{}, exited{}, kernel{}, user{};
  if (!GetThreadTimes(GetCurrentThread(), &created, &exited, &kernel, &user)) return 0;
  const auto ticks = [](const FILETIME& time) {
    return (static_cast<std::uint64_t>(time.dwHighDateTime) << 32) | time.dwLowDateTime;
  };
  return 1e-7 * static_cast<double>(ticks(kernel) + ticks(user));
}

int process_id() noexcept { return static_cast<int>(GetCurrentProcessId()); }

void sleep_forever() noexcept {
  for (;;) Sleep(INFINITE);
}

bool has_arm_crc32() noexcept {
#if defined(_M_ARM64) || defined(__aarch64__)
  return IsProcessorFeaturePresent(PF_ARM_V8_CRC32_INSTRUCTIONS_AVAILABLE) != 0;
#else
  return false;
#endif
}

}  // namespace headrace::platform
