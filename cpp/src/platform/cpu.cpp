// SPDX-License-Identifier: Apache-2.0
#include "platform/cpu.h"

#if defined(HEADRACE_X86)
#include <cpuid.h>

#include <cstdint>
#endif

namespace headrace::platform {
namespace {

#if defined(HEADRACE_X86)

struct Registers {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
};

// All zero if there is no such leaf.
Registers cpuid(std::uint32_t leaf) noexcept {
  Registers r;
  if (!__get_cpuid_count(leaf, 0, &r.a, &r.b, &r.c, &r.d)) return {};
  return r;
}

constexpr bool has(std::uint32_t bits, unsigned bit) noexcept { return ((bits >> bit) & 1U) != 0; }

// Which registers the operating system saves.
__attribute__((target("xsave"))) std::uint64_t saved_state() noexcept {
  std::uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

bool is_amd_before_zen3(std::uint32_t signature) noexcept {
  const Registers vendor = cpuid(0);
  constexpr std::uint32_t kAuthenticAmd = 0x68747541, kHygonGenuine = 0x6F677948;  // the first four letters
  std::uint32_t family = (signature >> 8) & 0xF;
  if (family == 0xF) family += (signature >> 20) & 0xFF;
  return (vendor.b == kAuthenticAmd && family < 0x19) || vendor.b == kHygonGenuine;
}

CpuFeatures find() noexcept {
  const Registers basic = cpuid(1), extended = cpuid(7);
  CpuFeatures f;
  f.sse42 = has(basic.c, 20);
  f.bmi2 = has(extended.b, 8);
  f.fast_pdep = f.bmi2 && !is_amd_before_zen3(basic.a);

  constexpr std::uint64_t kAvxState = 0x06, kAvx512State = 0xE6;
  const std::uint64_t state = has(basic.c, 27) ? saved_state() : 0;
  const bool popcnt = has(basic.c, 23), bmi1 = has(extended.b, 3);
  f.avx2 = (state & kAvxState) == kAvxState && has(extended.b, 5) && popcnt && bmi1;

  if ((state & kAvx512State) != kAvx512State) return f;
  const bool foundation = has(extended.b, 16), vl = has(extended.b, 31);
  const bool dq = has(extended.b, 17), bw = has(extended.b, 30);
  const bool vbmi = has(extended.c, 1), vbmi2 = has(extended.c, 6);
  const bool bitalg = has(extended.c, 12), vpopcntdq = has(extended.c, 14);
  f.avx512 = foundation && vl && dq && bw && vbmi && vbmi2 && bitalg && vpopcntdq;
  f.vpclmul = foundation && vl && has(extended.c, 10);
  return f;
}

#else

CpuFeatures find() noexcept { return {}; }

#endif

}  // namespace

const CpuFeatures& cpu_features() noexcept {
  static const CpuFeatures features = find();
  return features;
}

}  // namespace headrace::platform
