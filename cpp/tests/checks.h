// SPDX-License-Identifier: Apache-2.0
// Counts what held and names what did not.
#pragma once

#include <cstdio>
#include <string>

namespace headrace::tests {

class Checks {
 public:
  bool expect(bool holds, const std::string& what) {
    ++(holds ? passed_ : failed_);
    if (!holds) std::printf("failed: %s\n", what.c_str());
    return holds;
  }
  int report() const {
    std::printf("%u passed, %u failed\n", passed_, failed_);
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }

 private:
  unsigned passed_ = 0, failed_ = 0;
};

}  // namespace headrace::tests
