// SPDX-License-Identifier: Apache-2.0
// A whole file in one call: read into the caller's memory and summed, as a prepared batch is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

// Bytes of a file that are summed as if they were the digit 0: where its own checksum stands.
struct Blank {
  std::size_t begin = 0, size = 0;
};

struct WholeFile {
  int error = 0;               // errno of the call that failed; nothing else counts then
  std::uint64_t size = 0;      // bytes of the file
  bool fits = false;           // whether there was memory for it; else nothing was read
  std::uint32_t checksum = 0;  // CRC-32C of all of it
};

// Read the regular file of an open handle into `memory`, whose unused rest has unspecified contents. A file that is cut
// short meanwhile counts as long as it then is. `direct`: the handle was opened with O_DIRECT, which needs memory
// aligned to 4096 bytes, a multiple of that long; EINVAL if the file system cannot. Else the file's pages are given
// back: it is read once. Any thread may.
WholeFile read_whole_file(int handle, std::span<std::uint8_t> memory, bool direct, Blank blank) noexcept;

}  // namespace headrace
