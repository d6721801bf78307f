// SPDX-License-Identifier: Apache-2.0
#include "headrace/targets.h"

#include <array>
#include <atomic>
#include <cstring>

#include "kernels.h"

namespace headrace {
namespace {

struct Available {
  std::array<const Kernels*, 5> kernels{};
  std::array<const char*, 5> names{};
  std::size_t count = 0;

  void add(const Kernels* k) noexcept {
    kernels[count] = k;
    names[count++] = k->name;
  }
};

const Available& available() noexcept {
  static const Available list = [] {
    Available a;
    a.add(scalar_kernels());
#if defined(HEADRACE_X86)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi"))
      a.add(avx2_kernels());
    // Before Zen 3, AMD's pdep and pext are microcode that takes hundreds of cycles.
    const bool slow_pdep = __builtin_cpu_is("znver1") || __builtin_cpu_is("znver2") || __builtin_cpu_is("bdver4");
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi") &&
        __builtin_cpu_supports("bmi2") && !slow_pdep)
      a.add(avx2_bmi2_kernels());
    if (__builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bitalg") &&
        __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("bmi2"))
      a.add(avx512_kernels());
#endif
#if defined(HEADRACE_NEON)
    a.add(neon_kernels());
#endif
    return a;
  }();
  return list;
}

std::atomic<const Kernels*>& active() noexcept {
  static std::atomic<const Kernels*> kernels{available().kernels[available().count - 1]};
  return kernels;
}

}  // namespace

const Kernels& kernels() noexcept { return *active().load(std::memory_order_relaxed); }

std::span<const char* const> targets() noexcept { return {available().names.data(), available().count}; }

const char* active_target() noexcept { return kernels().name; }

bool use_target(const char* name) noexcept {
  const Available& a = available();
  for (std::size_t i = 0; i < a.count; ++i) {
    if (std::strcmp(a.names[i], name) == 0) {
      active().store(a.kernels[i], std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

}  // namespace headrace
