// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels.h"
#include "tables.h"
#include "transform/color_run.h"
#include "transform/warp/warp_run.h"

#define HR_STAGE __attribute__((noinline)) inline
#define HR_TARGET_NAME "scalar"
#define HR_TARGET_CHECKSUMS kTables

namespace headrace {
namespace scalar {
#include "window-inl.h"
#include "simd/scalar.h"
#include "simd/scalar_encode.h"
#include "simd/plain_pixels.h"
#include "simd/plain_noise.h"
#include "target-inl.h"
}  // namespace scalar

const Kernels* scalar_kernels() noexcept { return &scalar::kKernels; }

}  // namespace headrace
