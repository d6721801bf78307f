// SPDX-License-Identifier: Apache-2.0
// How the core says that something went wrong. Nothing in the core throws, prints or aborts.
#pragma once

#include <cstdint>

namespace headrace {

enum class Code : std::uint8_t {
  ok,
  corrupt,       // the bytes are not a valid image: damaged, truncated or hostile
  unsupported,   // valid as far as can be seen, but of a version or kind that we do not know
  too_large,     // more pixels than the caller allows
  bad_argument,  // the caller's request makes no sense
  no_memory,
  unreadable,  // a file is missing, shorter than it should be, or its device fails
};

// `what` is a static string in the present tense ("tile checksum does not match"). `offset` is in bytes from the start
// of the file; `tile` is -1 where no single tile is meant.
struct [[nodiscard]] Status {
  Code code = Code::ok;
  const char* what = "";
  std::uint64_t offset = 0;
  std::int64_t tile = -1;

  explicit operator bool() const noexcept { return code == Code::ok; }
};

}  // namespace headrace
