// SPDX-License-Identifier: Apache-2.0
#include "headrace/targets.h"

#include <array>
#include <atomic>
#include <cstring>

#include "kernels.h"
#include "platform/cpu.h"

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
    const platform::CpuFeatures& cpu = platform::cpu_features();
    if (cpu.avx2) a.add(avx2_kernels());
    if (cpu.avx2 && cpu.fast_pdep) a.add(avx2_bmi2_kernels());
    if (cpu.avx512 && cpu.bmi2) a.add(avx512_kernels());
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
