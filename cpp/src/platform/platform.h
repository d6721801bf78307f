// SPDX-License-Identifier: Apache-2.0
// Everything that the core asks of the operating system beyond the standard library. posix.cpp serves Linux and macOS,
// windows.cpp Windows; CMake compiles one of them. Where a system lacks something, the comment says what happens
// instead. No function throws, and any thread may call them.
//
// A handle is a file descriptor; on Windows one of the C runtime, as Python has them. Functions that can fail set
// errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::platform {

// Open a file for reading and return its handle; -1 on an error. A pipe or a device does not block the call. `direct`
// asks to bypass the page cache, and is set to false if the system or the file system cannot. Direct reads need
// offsets, lengths and memory in multiples of 4096 bytes.
int open_file(const char* path, bool& direct) noexcept;
void close_file(int handle) noexcept;

struct FileStatus {
  bool is_regular = false, is_folder = false;
  std::uint64_t size = 0;
};
bool file_status(int handle, FileStatus& status) noexcept;

// Read up to `n` bytes at an offset, and return how many: 0 at the end of the file, -1 on an error. The position of the
// file is not used; Windows moves it.
std::int64_t read_at(int handle, void* memory, std::size_t n, std::uint64_t offset) noexcept;

struct Part {
  std::uint8_t* memory;
  std::size_t size;
};
constexpr std::size_t kMaxParts = 256;  // POSIX promises 16; Linux and macOS take 1024
// The same into at most kMaxParts pieces of memory, one after the other. One system call, but on Windows one per part.
std::int64_t read_parts_at(int handle, std::span<const Part> parts, std::uint64_t offset) noexcept;

struct CachedRead {
  std::uint64_t bytes = 0;
  bool is_supported = false;
};
// Read what the kernel has in memory, without waiting for a device. Only Linux can; elsewhere is_supported is false.
CachedRead read_cached_at(int handle, void* memory, std::size_t n, std::uint64_t offset) noexcept;

// Hints to the kernel: these bytes will be read soon (nothing on Windows), and this file will not be read again soon
// (nothing on macOS and Windows). kHasReadAhead says whether the first one does anything.
#if defined(_WIN32)
constexpr bool kHasReadAhead = false;
#else
constexpr bool kHasReadAhead = true;
#endif
void will_read(int handle, std::uint64_t offset, std::uint64_t n) noexcept;
void will_not_read_again(int handle) noexcept;

// How many files this process may have open.
std::size_t max_open_files() noexcept;

// Zeroed pages from the system; null if there are none. Huge pages are used where the system offers them, if asked.
void* map_memory(std::size_t n, bool huge) noexcept;
void unmap_memory(void* memory, std::size_t n) noexcept;
// Give the pages their memory now, not at their first use. Only newer Linux can; elsewhere nothing happens.
void populate_memory(void* memory, std::size_t n) noexcept;

// Memory with an alignment, a power of two that divides `n`. Free it with free_aligned.
void* allocate_aligned(std::size_t alignment, std::size_t n) noexcept;
void free_aligned(void* memory) noexcept;

// Bytes of memory that this process may use: the machine's, or its container's limit on Linux.
std::uint64_t usable_memory() noexcept;

// CPU seconds of the calling thread.
double thread_seconds() noexcept;
// Changes with a fork.
int process_id() noexcept;
[[noreturn]] void sleep_forever() noexcept;

// Has this ARM core the CRC-32C instructions?
bool has_arm_crc32() noexcept;

}  // namespace headrace::platform
