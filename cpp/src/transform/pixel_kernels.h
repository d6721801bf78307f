// SPDX-License-Identifier: Apache-2.0
// What a SIMD target offers to the transforms: the hot loops over samples, as a table of functions. All targets give
// the same bits: integers are exact in any order, and floats are multiplied, rounded and added in the order of the
// taps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transform/finish.h"
#include "transform/rows.h"

namespace headrace {

// The horizontal pass takes blocks of this many rows, so that a row is a lane and no sample has to cross lanes.
inline constexpr std::uint32_t kBlockRows = 16;

// 8-bit samples are weighted in integers. Weights have 14 bits of fraction and add up to exactly one; what lies between
// the passes has 6. The absolute weights of one sample add up to at most 1.25 (bicubic, where an edge cuts the filter).
inline constexpr int kWeightBits = 14;
inline constexpr int kMiddleBits = 6;
static_assert(255 * 5 / 4 * (1 << kMiddleBits) < 32768, "what lies between the passes fits 16 bits");
static_assert(255LL * 25 / 16 * (1 << (kMiddleBits + kWeightBits)) + (1 << 19) < 2147483648LL, "sums fit 32 bits");

// Source samples [first, first + count) make one sample of the result.
struct Taps {
  std::uint32_t first;
  std::uint32_t count;
};

// Sixteen rows of what the vertical pass left, to the samples of the same rows. `Number` is int16_t for 8 bits and
// float otherwise.
template <class Number>
struct ColumnSums {
  const Number* const* rows;  // kBlockRows of them; those from `count` on repeat an earlier one
  std::uint32_t count;
  PixelType type;  // of the result
  std::uint32_t width;
  const Taps* taps;  // for each pixel of the result; with int16_t `first` and `count` are even
  const Number* weights;
  std::uint32_t weight_stride;  // weights from one pixel of the result to the next
  bool rounds;                  // to levels; else what comes out are numbers like those that went in
  std::uint8_t* out;
  std::ptrdiff_t row_stride;
  std::uint8_t* scratch;  // column_scratch_bytes(), 64-byte aligned
};

// Numbers that must be readable beyond the end of each row that column sums are taken of. They count for nothing.
inline constexpr std::size_t column_overread(std::uint32_t channels) { return 2 * std::size_t{channels} + 16; }

// Columns that are turned at a time, so that they stay in the first-level cache; more where one pixel needs more.
inline constexpr std::uint32_t column_group(std::uint32_t channels, std::uint32_t max_taps) {
  const std::uint32_t fitting = 768 / channels / 2 * 2, needed = (max_taps + 3) / 2 * 2;
  return fitting > needed ? fitting : needed;
}
inline constexpr std::uint32_t kGroupPixels = 64;  // of the result, at a time
inline constexpr std::size_t turned_bytes(std::uint32_t channels, std::uint32_t max_taps) {
  return std::size_t{column_group(channels, max_taps)} * channels * kBlockRows * sizeof(float);
}
inline constexpr std::size_t column_scratch_bytes(std::uint32_t channels, std::uint32_t max_taps) {
  return turned_bytes(channels, max_taps) + 2 * std::size_t{kGroupPixels} * channels * kBlockRows * sizeof(float) + 256;
}

struct ColorRun;
struct WarpRun;

struct PixelKernels {
  // out[i] = the weighted sum of rows[k][i]; of int16_t, taps is even. Rows of samples as they come from a file, then
  // rows that went through the horizontal pass.
  void (*sum_rows_8)(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                     std::size_t samples, std::int16_t* out) noexcept;
  void (*sum_rows_float)(const std::uint8_t* const* rows, PixelType type, const float* weights, std::uint32_t taps,
                         std::size_t samples, float* out) noexcept;
  void (*sum_numbers_8)(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                        std::size_t samples, std::int16_t* out) noexcept;
  void (*sum_numbers_float)(const std::uint8_t* const* rows, const float* weights, std::uint32_t taps,
                            std::size_t samples, float* out) noexcept;
  void (*sum_columns_8)(const ColumnSums<std::int16_t>& job) noexcept;
  void (*sum_columns_float)(const ColumnSums<float>& job) noexcept;
  // Between two passes: back into the range of levels, fractions kept.
  void (*clamp_8)(std::int16_t* row, std::size_t samples) noexcept;
  void (*clamp_float)(float* row, PixelType type, std::size_t samples) noexcept;
  // The rounding of column sums alone, for an axis that keeps its size.
  void (*round_8)(const std::int16_t* in, std::size_t samples, std::uint8_t* out) noexcept;
  void (*round_float)(const float* in, PixelType type, std::size_t samples, std::uint8_t* out) noexcept;
  void (*finish_rows)(const FinishRows& job) noexcept;
  void (*color_rows)(ColorRun& job) noexcept;
  // Random numbers in long runs (noise-inl.h): four words of each block from `first` on; a normal number of each word.
  void (*random_words)(std::uint32_t key0, std::uint32_t key1, std::uint64_t first, std::size_t blocks,
                       std::uint32_t* out) noexcept;
  void (*normal_numbers)(const std::uint32_t* words, std::size_t n, float* out) noexcept;
  void (*write_halves)(const float* in, std::size_t n, std::uint16_t* out) noexcept;
  // Rows of noise and of sharpness (photometric/rows-inl.h). `rows` are the one above, the row itself and the one
  // below.
  void (*add_numbers)(std::uint8_t* samples, PixelType type, const float* numbers, std::size_t n, float scale,
                      float shift) noexcept;
  void (*sharpen)(const std::uint8_t* const* rows, PixelType type, std::size_t n, float factor,
                  std::uint8_t* out) noexcept;
  void (*warp_rows)(const WarpRun& job) noexcept;
};

}  // namespace headrace
