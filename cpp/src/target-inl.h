// SPDX-License-Identifier: Apache-2.0
// The kernels of one target. A target_*.cpp defines its name and checksums and includes this inside its namespace,
// after its vector operations: one source, compiled once a target. No function of the standard library that could be
// emitted out of line may be used in here, or the linker might keep a copy with the instructions of the wrong target.

#include "wave-inl.h"
#include "expand-inl.h"
#include "emit-inl.h"
#include "tile_decode-inl.h"
#include "tile_encode-inl.h"
#include "png/unfilter-inl.h"
#include "png/filter-inl.h"
#include "transform/resample-inl.h"
#include "transform/finish-inl.h"
#include "transform/photometric/rows-inl.h"
#include "transform/color-inl.h"
#include "transform/noise-inl.h"
#include "transform/warp/bend-inl.h"
#include "transform/warp/warp-inl.h"

inline const Kernels kKernels = {
    HR_TARGET_NAME,
    HR_TARGET_CHECKSUMS,
    decode_scratch_bytes,
    decode_tiles,
    encode_scratch_bytes,
    encode_tile,
    unfilter_rows,
    filter_row,
    {sum_rows_8, sum_rows_float, sum_numbers_8, sum_numbers_float, sum_columns_8, sum_columns_float, clamp_8,
     clamp_float, round_8, round_float, finish_rows, color_rows, random_words, normal_numbers, write_halves,
     add_numbers, sharpen, warp_rows},
};
