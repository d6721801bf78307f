// SPDX-License-Identifier: Apache-2.0
// What translated kernels are made of: types, the arithmetic that C has no operator for, and lanes of a warp.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef _Float16 f16;

#define WARPS ((THREADS + 31) / 32)
#define EACH_THREAD for (int t = 0; t < THREADS; t++)

static inline f32 as_f32(u32 bits) { f32 value; memcpy(&value, &bits, 4); return value; }
static inline u32 bits_f32(f32 value) { u32 bits; memcpy(&bits, &value, 4); return bits; }
static inline f16 as_f16(u16 bits) { f16 value; memcpy(&value, &bits, 2); return value; }
static inline u16 bits_f16(f16 value) { u16 bits; memcpy(&bits, &value, 2); return bits; }

// Shifts by the width of the type or more, which C leaves undefined, shift everything out.
static inline u64 shift_left(u64 value, u32 by, u32 bits) { return by >= bits ? 0 : value << by; }
static inline u64 shift_right(u64 value, u32 by, u32 bits) { return by >= bits ? 0 : value >> by; }
static inline s64 shift_right_signed(s64 value, u32 by, u32 bits) { return value >> (by >= bits ? bits - 1 : by); }

// .ftz: a subnormal number is 0 with its sign.
static inline f32 flush(f32 value) { return fpclassify(value) == FP_SUBNORMAL ? copysignf(0, value) : value; }

// A float as an integer: NaN is 0, what lies outside of the type is its nearest value.
static inline s64 saturate(double value, double low, double high) {
  return value != value ? 0 : (s64)(value < low ? low : value > high ? high : value);
}

static inline u32 extract_u32(u32 value, u32 begin, u32 count) {
  begin &= 255, count &= 255;
  if (count == 0 || begin > 31) return 0;
  value >>= begin;
  return count > 31 ? value : value & ((1u << count) - 1);
}

static inline s32 extract_s32(s32 value, u32 begin, u32 count) {
  begin &= 255, count &= 255;
  if (count == 0) return 0;
  u32 last = begin + count - 1 < 31 ? begin + count - 1 : 31;
  u32 sign = ((u32)value >> last) & 1, found = 0;
  for (u32 i = 0; i < 32; i++) found |= (i < count && begin + i < 32 ? ((u32)value >> (begin + i)) & 1 : sign) << i;
  return (s32)found;
}

static inline u32 insert_bits(u32 value, u32 into, u32 begin, u32 count) {
  begin &= 255, count &= 255;
  for (u32 i = 0; i < count && begin + i < 32; i++)
    into = (into & ~(1u << (begin + i))) | ((value >> i) & 1) << (begin + i);
  return into;
}

// Each nibble of the selector takes one of eight bytes, or eight times its sign.
static inline u32 prmt(u32 low, u32 high, u32 selector) {
  u64 both = (u64)high << 32 | low;
  u32 made = 0;
  for (int i = 0; i < 4; i++) {
    u32 chosen = selector >> (4 * i) & 15, byte = both >> (8 * (chosen & 7)) & 255;
    made |= (chosen & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return made;
}

static inline u32 lop3(u32 a, u32 b, u32 c, u32 table) {
  u32 made = 0;
  for (u32 i = 0; i < 8; i++)
    if (table >> i & 1) made |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return made;
}

// The lane that a shuffle reads from (modes up, down, bfly, idx), and whether it is in range (PTX ISA, shfl.sync).
static inline u32 shuffle_lane(int mode, int lane, u32 by, u32 clamp_and_mask, u8* valid) {
  int step = by & 31, clamp = clamp_and_mask & 31, segment = clamp_and_mask >> 8 & 31;
  int bound = (lane & segment) | (clamp & ~segment);
  int from = mode == 0 ? lane - step : mode == 1 ? lane + step : mode == 2 ? lane ^ step
                                                                           : (lane & segment) | (step & ~segment);
  *valid = mode == 0 ? from >= bound : from <= bound;
  return *valid ? from : lane;
}

#include "shadow.h"
