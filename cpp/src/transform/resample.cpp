// SPDX-License-Identifier: Apache-2.0
#include "transform/resample.h"

#include <algorithm>

#include "transform/resample_passes.h"

namespace headrace {
namespace {

// With more taps than this, integer weights would become coarse. With 253, noise came out within 0.01 levels of the
// exact sum, its rounding apart.
constexpr std::uint32_t kMaxIntegerTaps = 256;

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
// weights are negative does the order show: what overshoots is cut off between the passes. Pillow 13 then starts with
// the height if it shrinks by over twice as many pixels as the width, and otherwise with the width.
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
    return kNoMemoryToResize;
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
      return kNoMemoryToResize;
    return run_passes(row_pass, column_pass, job, out, row_stride);
  }
  RowPass<Number> row_pass(rows, job.type, Made::samples, needed_region(job).width, source);
  ColumnPass<Number> column_pass(columns, job.type);
  if (!row_pass.reserve(workspace.window) ||
      !lay_out_in(workspace.columns, [&](Pieces& pieces) { column_pass.lay_out(pieces); }))
    return kNoMemoryToResize;
  return run_passes(row_pass, column_pass, job, out, row_stride);
}

}  // namespace

Region needed_region(const Resample& job) noexcept {
  const Range rows = needed_range(rows_of(job)), columns = needed_range(columns_of(job));
  return {rows.begin, columns.begin, rows.end - rows.begin, columns.end - columns.begin};
}

Status resample(const Resample& job, RowSource& source, std::uint8_t* out, std::ptrdiff_t row_stride,
                Workspace& workspace) noexcept {
  if (job.filter == Filter::nearest) return resample_nearest(job, source, out, row_stride, workspace);
  const std::uint32_t taps = std::max(max_taps(rows_of(job)), max_taps(columns_of(job)));
  if (job.type.depth == 8 && taps <= kMaxIntegerTaps)
    return resample_with<std::int16_t>(job, source, out, row_stride, workspace);
  return resample_with<float>(job, source, out, row_stride, workspace);
}

}  // namespace headrace
