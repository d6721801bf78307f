// SPDX-License-Identifier: Apache-2.0
// The two passes of a resize, over rows as they arrive. `Number` is int16_t for 8 bits and float otherwise.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "transform/resample_pieces.h"

namespace headrace {

// Bytes from one row to the next. Rows a multiple of a page apart would compete for the same lines of the cache.
inline std::size_t padded(std::size_t row_bytes) noexcept {
  const std::size_t bytes = (row_bytes + 63) / 64 * 64;
  return bytes % 1024 == 0 ? bytes + 64 : bytes;
}

template <class Number>
struct WeightedAxis {
  ResizedAxis axis;
  Taps* taps = nullptr;
  Number* weights = nullptr;

  void lay_out(Pieces& pieces) noexcept {
    taps = pieces.take<Taps>(axis.count);
    weights = pieces.take<Number>(std::size_t{axis.count} * weight_stride(axis));
  }
  const Number* weights_of(std::uint32_t i) const noexcept { return weights + std::size_t{i} * weight_stride(axis); }
};

// The kernels for integers and floats by the same names.
inline void sum_rows(const std::uint8_t* const* rows, PixelType, const std::int16_t* weights, std::uint32_t taps,
                     std::size_t samples, std::int16_t* out) noexcept {
  kernels().pixels.sum_rows_8(rows, weights, taps, samples, out);
}
inline void sum_rows(const std::uint8_t* const* rows, PixelType type, const float* weights, std::uint32_t taps,
                     std::size_t samples, float* out) noexcept {
  kernels().pixels.sum_rows_float(rows, type, weights, taps, samples, out);
}
inline void sum_numbers(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                        std::size_t samples, std::int16_t* out) noexcept {
  kernels().pixels.sum_numbers_8(rows, weights, taps, samples, out);
}
inline void sum_numbers(const std::uint8_t* const* rows, const float* weights, std::uint32_t taps, std::size_t samples,
                        float* out) noexcept {
  kernels().pixels.sum_numbers_float(rows, weights, taps, samples, out);
}
inline void sum_columns(const ColumnSums<std::int16_t>& job) noexcept { kernels().pixels.sum_columns_8(job); }
inline void sum_columns(const ColumnSums<float>& job) noexcept { kernels().pixels.sum_columns_float(job); }
inline void clamp(std::int16_t* row, PixelType, std::size_t samples) noexcept {
  kernels().pixels.clamp_8(row, samples);
}
inline void clamp(float* row, PixelType type, std::size_t samples) noexcept {
  kernels().pixels.clamp_float(row, type, samples);
}
inline void round_row(const std::int16_t* in, PixelType, std::size_t samples, std::uint8_t* out) noexcept {
  kernels().pixels.round_8(in, samples, out);
}
inline void round_row(const float* in, PixelType type, std::size_t samples, std::uint8_t* out) noexcept {
  kernels().pixels.round_float(in, type, samples, out);
}

// What the rows of a source are made of: samples as in a file, or the numbers that a horizontal pass left.
enum class Made { samples, numbers };

// The vertical pass: asks the source for rows as they are needed. Rows that later results need are kept when the
// source is asked again; those that all lie in what it gave last are used where they are.
template <class Number>
class RowPass {
 public:
  RowPass(const WeightedAxis<Number>& axis, PixelType type, Made made, std::uint32_t width, RowSource& source) noexcept
      : axis_(axis),
        type_(type),
        made_(made),
        samples_(std::size_t{width} * type.channels),
        row_bytes_(samples_ * (made == Made::samples ? type.sample_bytes() : sizeof(Number))),
        pitch_(padded(row_bytes_)),
        kept_rows_(max_taps(axis.axis)),
        source_(source) {
    const Range range = needed_range(axis.axis);
    rows_ = range.end - range.begin;
  }

  bool reserve(Buffer& buffer) noexcept {
    return lay_out_in(buffer, [&](Pieces& pieces) {
      pointers_ = pieces.take<const std::uint8_t*>(std::size_t{kept_rows_} + 3);
      kept_ = pieces.take<std::uint8_t>(kept_rows_ * pitch_);
    });
  }

  // Row i of the result; rows are asked for in order.
  Status next(std::uint32_t i, Number* out) noexcept {
    const Taps taps = axis_.taps[i];
    const std::uint32_t end = std::min(taps.first + taps.count, rows_);
    while (given_begin_ + given_.count < end) {
      keep(taps.first);
      const std::uint32_t begin = given_begin_ + given_.count;
      const Status status = source_.next(rows_ - begin, given_);
      if (!status) return status;
      given_begin_ = begin;
    }
    for (std::uint32_t k = 0; k < taps.count; ++k) {
      const std::uint32_t row = std::min(taps.first + k, rows_ - 1);  // padding points anywhere
      pointers_[k] = row >= given_begin_ ? given_.row(row - given_begin_) : kept(row);
    }
    if (made_ == Made::samples)
      sum_rows(pointers_, type_, axis_.weights_of(i), taps.count, samples_, out);
    else
      sum_numbers(pointers_, axis_.weights_of(i), taps.count, samples_, out);
    return {};
  }

 private:
  std::uint8_t* kept(std::uint32_t row) noexcept { return kept_ + row % kept_rows_ * pitch_; }
  void keep(std::uint32_t from) noexcept {
    for (std::uint32_t row = std::max(from, given_begin_); row < given_begin_ + given_.count; ++row)
      std::memcpy(kept(row), given_.row(row - given_begin_), row_bytes_);
  }

  const WeightedAxis<Number>& axis_;
  PixelType type_;
  Made made_;
  std::size_t samples_, row_bytes_, pitch_;
  std::uint32_t kept_rows_;
  RowSource& source_;
  std::uint32_t rows_ = 0, given_begin_ = 0;
  Rows given_;
  const std::uint8_t** pointers_ = nullptr;
  std::uint8_t* kept_ = nullptr;
};

// The horizontal pass: a block of rows that wait for it, and the pass over them.
template <class Number>
class ColumnPass {
 public:
  ColumnPass(const WeightedAxis<Number>& axis, PixelType type) noexcept : axis_(axis), type_(type) {
    const Range range = needed_range(axis.axis);
    samples_ = std::size_t{range.end - range.begin} * type.channels;
    pitch_ = padded((samples_ + column_overread(type.channels)) * sizeof(Number)) / sizeof(Number);
  }

  void lay_out(Pieces& pieces) noexcept {
    rows_ = pieces.take<Number>(kBlockRows * pitch_);
    if (!axis_.axis.is_identity())
      scratch_ = pieces.take<std::uint8_t>(column_scratch_bytes(type_.channels, max_taps(axis_.axis) + 2));
  }
  Number* row(std::uint32_t i) const noexcept { return rows_ + i * pitch_; }
  std::size_t samples() const noexcept { return samples_; }

  // The first `count` rows of the block, to as many rows of levels or numbers.
  void run(std::uint32_t count, bool rounds, std::uint8_t* out, std::ptrdiff_t row_stride) const noexcept {
    if (axis_.axis.is_identity()) {
      for (std::uint32_t i = 0; i < count; ++i) round_row(row(i), type_, samples_, out + i * row_stride);
      return;
    }
    const Number* rows[kBlockRows];
    for (std::uint32_t i = 0; i < kBlockRows; ++i) rows[i] = row(i < count ? i : 0);
    sum_columns({rows, count, type_, axis_.axis.count, axis_.taps, axis_.weights, weight_stride(axis_.axis), rounds,
                 out, row_stride, scratch_});
  }

 private:
  const WeightedAxis<Number>& axis_;
  PixelType type_;
  std::size_t samples_ = 0, pitch_ = 0;  // in numbers
  Number* rows_ = nullptr;
  std::uint8_t* scratch_ = nullptr;
};

// Rows that went through the horizontal pass first: rows of numbers.
template <class Number>
class ResizedRows final : public RowSource {
 public:
  ResizedRows(const WeightedAxis<Number>& axis, PixelType type, RowSource& source) noexcept
      : pass_(axis, type), type_(type), samples_(std::size_t{axis.axis.count} * type.channels), source_(source) {
    stride_ = static_cast<std::ptrdiff_t>(padded(samples_ * sizeof(Number)));
  }

  void lay_out(Pieces& pieces) noexcept {
    pass_.lay_out(pieces);
    out_ = pieces.take<std::uint8_t>(kBlockRows * static_cast<std::size_t>(stride_));
  }
  Status next(std::uint32_t max_rows, Rows& rows) noexcept override {
    Rows given;
    const Status status = source_.next(std::min(max_rows, kBlockRows), given);
    if (!status) return status;
    constexpr bool kInteger = sizeof(Number) == 2;
    constexpr Number kOne[2] = {kInteger ? 1 << kWeightBits : 1, 0};
    for (std::uint32_t i = 0; i < given.count; ++i) {
      const std::uint8_t* const alone[2] = {given.row(i), given.row(i)};
      sum_rows(alone, type_, kOne, kInteger ? 2 : 1, pass_.samples(), pass_.row(i));
    }
    pass_.run(given.count, false, out_, stride_);
    rows = {out_, stride_, given.count};
    for (std::uint32_t i = 0; i < given.count; ++i)
      clamp(reinterpret_cast<Number*>(out_ + i * stride_), type_, samples_);
    return {};
  }

 private:
  ColumnPass<Number> pass_;
  PixelType type_;
  std::size_t samples_;
  std::ptrdiff_t stride_ = 0;
  RowSource& source_;
  std::uint8_t* out_ = nullptr;
};

}  // namespace headrace
