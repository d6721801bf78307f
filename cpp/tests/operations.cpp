// SPDX-License-Identifier: Apache-2.0
// Checks NEON's vector operations against the plain loops of the scalar target, with inputs that our encoder does not
// make but a file may hold. For AArch64, where any file may use NEON; the x86 targets are reached through parity.cpp
// and the fuzzer.
#include <arm_neon.h>

#include <cstdio>

#include "images.h"
#include "kernels.h"
#include "tables.h"

#define HR_STAGE inline

namespace headrace::tests {

struct Inputs {
  std::uint8_t bytes[1024];
  std::uint16_t words[256];
  std::uint8_t extra[32], flags[32];  // bits that each lane takes
  unsigned bits, bits16;
  std::uint32_t widths;
  std::uint64_t first_bit;
  std::size_t count;
};

struct Check {
  const char* name;
  void (*run)(const Inputs& in, std::uint8_t* out);
};

}  // namespace headrace::tests

// Each of these files needs the ones before it.
// clang-format off
namespace headrace {
namespace scalar {
#include "simd/scalar.h"
#include "simd/scalar_encode.h"
#include "operations-inl.h"
}  // namespace scalar
namespace neon {
#include "simd/neon.h"
#include "simd/neon_bits.h"
#include "simd/neon_encode.h"
#include "operations-inl.h"
}  // namespace neon
}  // namespace headrace
// clang-format on

namespace headrace::tests {
namespace {

Inputs make_inputs(unsigned round, Random& random) {
  Inputs in;
  for (auto& x : in.bytes) x = static_cast<std::uint8_t>(random.next());
  for (auto& x : in.words) x = static_cast<std::uint16_t>(random.below(4) == 0 ? 0x8000 : random.next());
  const std::uint32_t lowest = round % 8 == 0 ? 4 : 0;  // at times all lanes take the most they may
  for (auto& x : in.extra) x = static_cast<std::uint8_t>(lowest + random.below(5 - lowest));
  for (auto& x : in.flags) x = static_cast<std::uint8_t>(random.below(2));
  in.bits = round % 9;
  in.bits16 = round % 17;
  in.widths = 0;
  for (int g = 0; g < 4; ++g) in.widths = in.widths << 8 | random.below(9);
  in.first_bit = random.below(64);
  in.count = round % 300;
  return in;
}

int run() {
  Random random(1);
  unsigned passed = 0, failed = 0;
  for (unsigned round = 0; round < 3000; ++round) {
    const Inputs in = make_inputs(round, random);
    for (std::size_t k = 0; k < std::size(scalar::kChecks); ++k) {
      std::array<std::uint8_t, 4096> expected{}, found{};
      scalar::kChecks[k].run(in, expected.data());
      neon::kChecks[k].run(in, found.data());
      ++(expected == found ? passed : failed);
      if (expected != found) std::printf("failed: %s in round %u\n", neon::kChecks[k].name, round);
    }
  }
  std::printf("%u passed, %u failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace headrace::tests

int main() { return headrace::tests::run(); }
