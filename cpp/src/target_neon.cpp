// SPDX-License-Identifier: Apache-2.0
#include <arm_neon.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels.h"
#include "tables.h"
#include "transform/color_run.h"
#include "transform/warp/warp_run.h"

#define HR_STAGE __attribute__((noinline)) inline
#define HR_TARGET_NAME "neon"
#define HR_TARGET_CHECKSUMS kInstruction

// Each of these files needs the ones before it.

namespace headrace {
namespace neon {
#include "window-inl.h"
#include "simd/neon.h"
#include "simd/neon_bits.h"
#include "simd/neon_encode.h"
#include "simd/plain_pixels.h"
#include "simd/plain_noise.h"
#include "target-inl.h"
}  // namespace neon

const Kernels* neon_kernels() noexcept { return &neon::kKernels; }

}  // namespace headrace
