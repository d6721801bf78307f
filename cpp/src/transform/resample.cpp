// SPDX-License-Identifier: Apache-2.0
#include "transform/resample.h"

#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "transform/resample_taps.h"

namespace headrace {
namespace {

// With more taps, integer weights would be too coarse: at 256 the largest error of noise that we saw was 0.1 levels.
constexpr std::uint32_t kMostIntegerTaps = 256;

constexpr Status kNoMemory = {Code::no_memory, "there is no memory to resize the image"};

ResizedAxis rows_of(const Resample& job) noexcept {
  return {job.height, job.resized_height, job.window.top, job.window.height, job.filter, job.antialias};
}

ResizedAxis columns_of(const Resample& job) noexcept {
  return {job.width, job.resized_width, job.window.left, job.window.width, job.filter, job.antialias};
}

// Pieces of one buffer. Counted first, then laid out: both are the same calls.
class Pieces {
 public:
  explicit Pieces(std::uint8_t* base = nullptr) noexcept : base_(base) {}

  template <class T>
  T* take(std::size_t count) noexcept {
    T* const piece = base_ != nullptr ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
  std::size_t used() const noexcept { return used_; }

 private:
  std::uint8_t* base_;
  std::size_t used_ = 0;
};

// Let `lay_out` take its pieces of the buffer, which grows to hold them.
template <class F>
bool lay_out_in(Buffer& buffer, const F& lay_out) noexcept {
  Pieces counted;
  lay_out(counted);
  std::uint8_t* const base = buffer.reserve(counted.used());
  if (base == nullptr) return false;
  Pieces pieces(base);
  lay_out(pieces);
  return true;
}

// Bytes from one row to the next. Rows a multiple of a page apart would compete for the same lines of the cache.
std::size_t padded(std::size_t row_bytes) noexcept {
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
void sum_rows(const std::uint8_t* const* rows, PixelType, const std::int16_t* weights, std::uint32_t taps,
              std::size_t samples, std::int16_t* out) noexcept {
  kernels().pixels.sum_rows_8(rows, weights, taps, samples, out);
}
void sum_rows(const std::uint8_t* const* rows, PixelType type, const float* weights, std::uint32_t taps,
              std::size_t samples, float* out) noexcept {
  kernels().pixels.sum_rows_float(rows, type, weights, taps, samples, out);
}
void sum_numbers(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps, std::size_t samples,
                 std::int16_t* out) noexcept {
  kernels().pixels.sum_numbers_8(rows, weights, taps, samples, out);
}
void sum_numbers(const std::uint8_t* const* rows, const float* weights, std::uint32_t taps, std::size_t samples,
                 float* out) noexcept {
  kernels().pixels.sum_numbers_float(rows, weights, taps, samples, out);
}
void sum_columns(const ColumnSums<std::int16_t>& job) noexcept { kernels().pixels.sum_columns_8(job); }
void sum_columns(const ColumnSums<float>& job) noexcept { kernels().pixels.sum_columns_float(job); }
void clamp(std::int16_t* row, PixelType, std::size_t samples) noexcept { kernels().pixels.clamp_8(row, samples); }
void clamp(float* row, PixelType type, std::size_t samples) noexcept {
  kernels().pixels.clamp_float(row, type, samples);
}
void round_row(const std::int16_t* in, PixelType, std::size_t samples, std::uint8_t* out) noexcept {
  kernels().pixels.round_8(in, samples, out);
}
void round_row(const float* in, PixelType type, std::size_t samples, std::uint8_t* out) noexcept {
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
        kept_rows_(most_taps(axis.axis)),
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
      scratch_ = pieces.take<std::uint8_t>(column_scratch_bytes(type_.channels, most_taps(axis_.axis) + 2));
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
  Status next(std::uint32_t most, Rows& rows) noexcept override {
    Rows given;
    const Status status = source_.next(std::min(most, kBlockRows), given);
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

// All rows of the vertical pass through the horizontal one, a block at a time.
template <class Number>
Status run_passes(RowPass<Number>& row_pass, const ColumnPass<Number>& column_pass, const Resample& job,
                  std::uint8_t* out, std::ptrdiff_t row_stride) noexcept {
  for (std::uint32_t y = 0; y < job.window.height; y += kBlockRows) {
    const std::uint32_t count = std::min(job.window.height - y, kBlockRows);
    for (std::uint32_t i = 0; i < count; ++i) {
      const Status status = row_pass.next(y + i, column_pass.row(i));
      if (!status) return status;
      if (job.filter == Filter::bicubic) clamp(column_pass.row(i), job.type, column_pass.samples());
    }
    column_pass.run(count, true, out + static_cast<std::ptrdiff_t>(y) * row_stride, row_stride);
  }
  return {};
}

// The vertical pass comes first, as the rows arrive: it leaves fewer of them to the costlier horizontal one. Only where
// weights are negative does the order show: what overshoots is cut off between the passes. Pillow then starts with the
// height if it shrinks by over twice as many pixels as the width (since version 13; before, never).
bool starts_with_columns(const Resample& job) noexcept {
  if (job.filter != Filter::bicubic || job.width == job.resized_width) return false;
  const std::int64_t fewer_rows = std::int64_t{job.height} - job.resized_height;
  const std::int64_t fewer_columns = std::int64_t{job.width} - job.resized_width;
  return fewer_rows <= 0 || fewer_rows <= 2 * fewer_columns;
}

template <class Number>
Status resample_with(const Resample& job, RowSource& source, std::uint8_t* out, std::ptrdiff_t row_stride,
                     Workspace& workspace) noexcept {
  WeightedAxis<Number> rows{rows_of(job)}, columns{columns_of(job)};
  if (!lay_out_in(workspace.weights, [&](Pieces& pieces) {
        rows.lay_out(pieces);
        columns.lay_out(pieces);
      }))
    return kNoMemory;
  make_taps(rows.axis, false, rows.taps, rows.weights);
  make_taps(columns.axis, true, columns.taps, columns.weights);

  if (starts_with_columns(job)) {
    const std::uint32_t width = job.window.width;
    const WeightedAxis<Number> as_they_are{{width, width, 0, width, job.filter, job.antialias}};
    ResizedRows<Number> resized(columns, job.type, source);
    RowPass<Number> row_pass(rows, job.type, Made::numbers, width, resized);
    ColumnPass<Number> column_pass(as_they_are, job.type);
    if (!row_pass.reserve(workspace.window) || !lay_out_in(workspace.columns, [&](Pieces& pieces) {
          resized.lay_out(pieces);
          column_pass.lay_out(pieces);
        }))
      return kNoMemory;
    return run_passes(row_pass, column_pass, job, out, row_stride);
  }
  RowPass<Number> row_pass(rows, job.type, Made::samples, needed_region(job).width, source);
  ColumnPass<Number> column_pass(columns, job.type);
  if (!row_pass.reserve(workspace.window) ||
      !lay_out_in(workspace.columns, [&](Pieces& pieces) { column_pass.lay_out(pieces); }))
    return kNoMemory;
  return run_passes(row_pass, column_pass, job, out, row_stride);
}

template <std::size_t kBytes>
void copy_pixels(const std::uint8_t* from, const std::uint32_t* sources, std::uint32_t count,
                 std::uint8_t* to) noexcept {
  for (std::uint32_t x = 0; x < count; ++x, to += kBytes) std::memcpy(to, from + sources[x] * kBytes, kBytes);
}

void copy_nearest(const std::uint8_t* from, std::size_t pixel_bytes, const std::uint32_t* sources, std::uint32_t count,
                  std::uint8_t* to) noexcept {
  switch (pixel_bytes) {
    case 1:
      return copy_pixels<1>(from, sources, count, to);
    case 2:
      return copy_pixels<2>(from, sources, count, to);
    case 3:
      return copy_pixels<3>(from, sources, count, to);
    case 4:
      return copy_pixels<4>(from, sources, count, to);
    case 6:
      return copy_pixels<6>(from, sources, count, to);
    case 8:
      return copy_pixels<8>(from, sources, count, to);
    default:
      for (std::uint32_t x = 0; x < count; ++x, to += pixel_bytes)
        std::memcpy(to, from + sources[x] * pixel_bytes, pixel_bytes);
  }
}

Status resample_nearest(const Resample& job, RowSource& source, std::uint8_t* out, std::ptrdiff_t row_stride,
                        Workspace& workspace) noexcept {
  std::uint32_t *rows = nullptr, *columns = nullptr;
  if (!lay_out_in(workspace.weights, [&](Pieces& pieces) {
        rows = pieces.take<std::uint32_t>(job.window.height);
        columns = pieces.take<std::uint32_t>(job.window.width);
      }))
    return kNoMemory;
  make_nearest(rows_of(job), rows);
  make_nearest(columns_of(job), columns);
  const std::uint32_t height = needed_region(job).height, pixel_bytes = job.type.pixel_bytes();
  std::uint32_t given_begin = 0;
  Rows given;
  for (std::uint32_t y = 0; y < job.window.height; ++y, out += row_stride) {
    if (y > 0 && rows[y] == rows[y - 1]) {
      std::memcpy(out, out - row_stride, std::size_t{job.window.width} * pixel_bytes);
      continue;
    }
    while (given_begin + given.count <= rows[y]) {
      given_begin += given.count;
      const Status status = source.next(height - given_begin, given);
      if (!status) return status;
    }
    copy_nearest(given.row(rows[y] - given_begin), pixel_bytes, columns, job.window.width, out);
  }
  return {};
}

}  // namespace

Region needed_region(const Resample& job) noexcept {
  const Range rows = needed_range(rows_of(job)), columns = needed_range(columns_of(job));
  return {rows.begin, columns.begin, rows.end - rows.begin, columns.end - columns.begin};
}

Status resample(const Resample& job, RowSource& source, std::uint8_t* out, std::ptrdiff_t row_stride,
                Workspace& workspace) noexcept {
  if (job.filter == Filter::nearest) return resample_nearest(job, source, out, row_stride, workspace);
  const std::uint32_t taps = std::max(most_taps(rows_of(job)), most_taps(columns_of(job)));
  if (job.type.depth == 8 && taps <= kMostIntegerTaps)
    return resample_with<std::int16_t>(job, source, out, row_stride, workspace);
  return resample_with<float>(job, source, out, row_stride, workspace);
}

}  // namespace headrace
