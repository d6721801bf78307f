// SPDX-License-Identifier: Apache-2.0
#include "loading/whole_file.h"

#include <algorithm>
#include <cerrno>

#include "headrace/codec.h"
#include "loading/byte_source.h"
#include "platform/platform.h"

namespace headrace {
namespace {

constexpr std::uint64_t kBlock = 4096;
// Linux reads no more than this at a time, and so much is a whole number of blocks.
constexpr std::uint64_t kMaxBytes = 0x7FFFF000;

// Carries a sum on over bytes [begin, begin + part.size()) of a file.
std::uint32_t sum_on(std::uint32_t checksum, Bytes part, std::uint64_t begin, Blank blank) noexcept {
  const std::uint64_t end = begin + part.size();
  const std::uint64_t from = std::clamp<std::uint64_t>(blank.begin, begin, end);
  const std::uint64_t to = std::clamp<std::uint64_t>(blank.begin + blank.size, from, end);
  checksum = crc32c(part.first(from - begin), checksum);
  constexpr std::uint8_t zero = '0';
  for (std::uint64_t i = from; i < to; ++i) checksum = crc32c({&zero, 1}, checksum);
  return crc32c(part.subspan(to - begin), checksum);
}

}  // namespace

WholeFile read_whole_file(int handle, std::span<std::uint8_t> memory, bool direct, Blank blank) noexcept {
  WholeFile file;
  const auto failed = [&file](int error) {
    file.error = error;
    return file;
  };
  platform::FileStatus status;
  if (!platform::file_status(handle, status)) return failed(errno);
  if (!status.is_regular) return failed(status.is_folder ? EISDIR : ENXIO);
  file.size = status.size;
  // A direct read fills up its last block.
  const std::uint64_t room = direct ? (file.size + kBlock - 1) / kBlock * kBlock : file.size;
  if (room > memory.size()) return file;
  file.fits = true;

  // What the kernel has copied is summed while it is in the second cache; a device is asked for all at once.
  const std::uint64_t step = direct ? kMaxBytes : ByteSource::kCachedChunk;
  std::uint64_t done = 0;
  while (done < file.size) {
    const std::uint64_t ask = std::min(step, room - done);
    const std::int64_t got = platform::read_at(handle, memory.data() + done, ask, done);
    if (got < 0) return failed(errno);
    if (got == 0) break;
    const std::uint64_t n = std::min(static_cast<std::uint64_t>(got), file.size - done);
    file.checksum = sum_on(file.checksum, {memory.data() + done, n}, done, blank);
    done += n;
    if (direct && done < file.size && done % kBlock != 0) return failed(EINVAL);  // the next read could not go on
  }
  file.size = done;
  if (!direct) platform::will_not_read_again(handle);
  return file;
}

}  // namespace headrace
