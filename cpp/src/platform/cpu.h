// SPDX-License-Identifier: Apache-2.0
// The instruction sets of an x86 core that the core library has code for, read with CPUID. The compilers' own
// __builtin_cpu_supports needs a function of their runtime, which Zig's lacks.
#pragma once

namespace headrace::platform {

struct CpuFeatures {
  bool sse42 = false;
  bool avx2 = false;  // with POPCNT and BMI1
  bool bmi2 = false;
  bool fast_pdep = false;  // false on AMD before Zen 3, where pdep and pext take hundreds of cycles
  bool avx512 = false;     // F, BW, DQ, VL, VBMI, VBMI2, BITALG and VPOPCNTDQ
  bool vpclmul = false;    // with AVX-512 F and VL
};

// Of this machine. Only features that the operating system saves the registers of count.
const CpuFeatures& cpu_features() noexcept;

}  // namespace headrace::platform
