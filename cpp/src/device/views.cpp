// SPDX-License-Identifier: Apache-2.0
#include "device/views.h"

#include "transform/resample_taps.h"

namespace headrace::device {
namespace {

Method method_of(const Program& program, bool mask) noexcept {
  const Pass& pass = program.passes[0];
  if (program.pass_count != 1 || pass.warps || pass.color_count > 0 || pass.rows.has_border() ||
      pass.columns.has_border())
    return Method::none;
  if (!pass.resizes()) return Method::cut;
  if (mask) return Method::nearest;
  return pass.filter == Filter::bilinear && pass.antialias ? Method::bilinear : Method::none;
}

Range decoded_range(const Axis& axis, Method method) noexcept {
  const auto begin = static_cast<std::uint32_t>(-axis.offset);  // there is no border
  if (method == Method::cut) return {begin, begin + axis.canvas};
  const Filter filter = method == Method::nearest ? Filter::nearest : Filter::bilinear;
  const ResizedAxis resized{axis.size, axis.resized, begin, axis.canvas, filter, true};
  return method == Method::nearest ? needed_range(resized) : triangle_range(resized);
}

}  // namespace

void plan_view(const ViewRequest& request, std::uint32_t height, std::uint32_t width, const DrawKey& key,
               const Table& views, std::size_t column) noexcept {
  const auto set = [&](ViewRow row, auto value) { views.at(row, column) = static_cast<std::int64_t>(value); };
  Program program;
  Method method = Method::none;
  if (make_program(request.ops, height, width, key, program) && check_pixels(program, request.max_pixels))
    method = method_of(program, request.mask);
  set(kViewMethod, method);
  if (method == Method::none) return;
  const Axis &rows = program.passes[0].rows, &columns = program.passes[0].columns;
  set(kViewStartY, rows.start);
  set(kViewStartX, columns.start);
  set(kViewSizeY, rows.size);
  set(kViewSizeX, columns.size);
  set(kViewResizedY, rows.resized);
  set(kViewResizedX, columns.resized);
  set(kViewBeginY, -rows.offset);
  set(kViewBeginX, -columns.offset);
  set(kViewExtentY, rows.canvas);
  set(kViewExtentX, columns.canvas);
  set(kViewUpsideDown, rows.flipped);
  set(kViewMirrored, columns.flipped);
  const Range down = decoded_range(rows, method), across = decoded_range(columns, method);
  set(kViewTop, rows.start + down.begin);
  set(kViewLeft, columns.start + across.begin);
  set(kViewHeight, down.end - down.begin);
  set(kViewWidth, across.end - across.begin);
}

}  // namespace headrace::device
