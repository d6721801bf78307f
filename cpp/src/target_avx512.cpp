// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels.h"
#include "tables.h"
#include "transform/color_run.h"
#include "transform/warp/warp_run.h"

#define HR_STAGE __attribute__((noinline)) inline
#define HR_TARGET_NAME "avx512"
#define HR_TARGET_CHECKSUMS kProducts

namespace headrace {
namespace avx512 {
#include "window-inl.h"
#include "simd/avx2.h"
#include "simd/avx2_bits.h"
#include "simd/avx512_bits.h"
#include "simd/avx2_encode.h"
namespace plain {
#include "simd/plain_pixels.h"
}
#include "simd/avx2_pixels.h"
#include "simd/avx2_turns.h"
#include "simd/avx2_noise.h"
#include "target-inl.h"
}  // namespace avx512

const Kernels* avx512_kernels() noexcept { return &avx512::kKernels; }

}  // namespace headrace
