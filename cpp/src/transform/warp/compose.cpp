// SPDX-License-Identifier: Apache-2.0
// How operations enter a pass that warps, and how a warp takes in the pass before it, so that all of them are one
// resampling. The rules, where none of them holds a new pass is begun:
//
//   warp after crops, flips, pads and a resize   takes them in, if nothing but its own fill was padded, and the resize
//                     halves no side: what shrinks more is better, and faster, resized by the separable filters.
//   warp after warp   multiplies the maps, if both have the same fill and at most one is a perspective: what lies
//                     behind the horizon of the second could come before that of both.
//                     Of elastic deformations and perspectives, a pass holds one.
//   crop, flip        always.
//   pad               with the same constant fill.
//   resize            as long as it does not shrink by more than 8 in all; each pixel of a canvas that shrinks
//                     is the mean of several samples. The filter is the better of the two.
//
// The canvas of an operation cuts off what lies outside. Where a later one makes such places visible again, the edges
// of the earlier canvas become gates. If there is no room for four more gates, a new pass is begun.
//
// Flips that come last stay flags: they move finished pixels. Any other operation after them folds them into the map.
#include <algorithm>
#include <cmath>

#include "transform/program.h"
#include "transform/warp/warp.h"

namespace headrace {
namespace {

constexpr double kMaxAbsorbedShrink = 2;
constexpr double kMaxShrink = 8;

void transform_gates(Warp& warp, const Matrix& map) noexcept {
  for (std::uint32_t k = warp.elastic.gate_count; k < warp.gate_count; ++k) {
    const auto gate = warp.gates[k];
    for (std::size_t c = 0; c < 3; ++c)
      warp.gates[k][c] = gate[0] * map[c] + gate[1] * map[3 + c] + gate[2] * map[6 + c];
  }
}

// Of the content of an axis that shrinks under the canvas.
double shrink(const Axis& axis) noexcept { return static_cast<double>(axis.size) / axis.resized; }

bool hides_resized(const Axis& axis) noexcept {
  return axis.resized != axis.size &&
         (axis.offset < 0 || std::int64_t{axis.offset} + axis.resized > std::int64_t{axis.canvas});
}

// From the canvas of an axis to its cut input: factor * x + added.
struct Along {
  double factor, added;
};
Along along(const Axis& axis) noexcept {
  const double scale = shrink(axis);
  if (axis.flipped) return {-scale, (static_cast<double>(axis.canvas) - axis.offset) * scale};
  return {scale, -axis.offset * scale};
}

void reset(Axis& axis, std::uint32_t canvas) noexcept {
  axis.resized = axis.size;
  axis.offset = 0;
  axis.canvas = canvas;
  axis.flipped = false;
}

// The better of two: that of a warp that takes in a resize.
Filter better(Filter a, Filter b) noexcept {
  const auto smooth = [](Filter filter) { return filter == Filter::area ? Filter::bilinear : filter; };
  return std::max(smooth(a), smooth(b));
}

bool same_fill(const WarpFill& fill, double level) noexcept {
  return std::all_of(fill.begin(), fill.end(), [level](std::int32_t each) { return each == level; });
}

}  // namespace

Status Composer::warp(const WarpStep& step) noexcept {
  const bool fits = pass().warps ? can_follow(step) : can_absorb(step.fill);
  if (pass().color_count > 0 || !fits)
    if (const Status status = begin_pass(); !status) return status;
  if (pass().warps) {
    fold_flips();
    add_gates();
    pass().filter = better(pass().filter, step.filter);
  } else {
    const bool resized = pass().resizes();
    absorb();
    pass().filter = resized ? better(pass().filter, step.filter) : step.filter;
  }
  pass().warp.fill = step.fill;
  if (step.elastic.bends) bend(step.elastic);
  move_canvas(step.map, {step.height, step.width});
  return {};
}

bool Composer::can_follow(const WarpStep& step) noexcept {
  const Warp& warp = pass().warp;
  const bool bends = warp.elastic.bends || step.elastic.bends, twice = warp.elastic.bends && step.elastic.bends;
  const int affine = is_affine(warp.map) + is_affine(step.map);
  return warp.fill == step.fill && warp.gate_count + 4 <= kMaxGates && !twice && affine >= (bends ? 2 : 1);
}

bool Composer::can_absorb(const WarpFill& fill) noexcept {
  const Pass& p = pass();
  const bool bordered = p.rows.has_border() || p.columns.has_border();
  return (!bordered || (p.border == Border::constant && same_fill(fill, p.fill))) &&
         shrink(p.rows) <= kMaxAbsorbedShrink && shrink(p.columns) <= kMaxAbsorbedShrink;
}

// A pass of crops, pads, a resize and flips becomes one that warps, of the same canvas.
void Composer::absorb() noexcept {
  Pass& p = pass();
  const Size size = {height(), width()};
  const bool hides = hides_resized(p.rows) || hides_resized(p.columns);
  const Along down = along(p.rows), across = along(p.columns);
  p.warps = true;
  p.warp = {};
  if (hides) add_gates();
  p.warp.map = {across.factor, 0, across.added, 0, down.factor, down.added, 0, 0, 1};
  reset(p.rows, size.height);
  reset(p.columns, size.width);
  p.border = Border::constant;
}

// What the pass did so far happens to positions that the deformation has moved.
void Composer::bend(const Elastic& elastic) noexcept {
  Warp& warp = pass().warp;
  warp.elastic = elastic;
  warp.elastic.map = warp.map;
  warp.elastic.gate_count = warp.gate_count;
  warp.map = kIdentity;
}

void Composer::fold_flips() noexcept {
  Axis &rows = pass().rows, &columns = pass().columns;
  if (!rows.flipped && !columns.flipped) return;
  const double across = columns.flipped ? -1 : 1, down = rows.flipped ? -1 : 1;
  const Matrix flip = {across, 0, columns.flipped ? width() : 0.0, 0, down, rows.flipped ? height() : 0.0, 0, 0, 1};
  rows.flipped = columns.flipped = false;
  pass().warp.map = pass().warp.map * flip;
  transform_gates(pass().warp, flip);
}

// `map` leads from the new canvas to the old one.
void Composer::move_canvas(const Matrix& map, Size size) noexcept {
  fold_flips();
  Warp& warp = pass().warp;
  warp.map = warp.map * map;
  transform_gates(warp, map);
  pass().rows.canvas = size.height;
  pass().columns.canvas = size.width;
}

// What lies outside of the canvas now stays invisible. There is room.
void Composer::add_gates() noexcept {
  fold_flips();
  Warp& warp = pass().warp;
  const double right = width(), bottom = height();
  for (const std::array<double, 3>& gate : {std::array<double, 3>{1, 0, 0}, {-1, 0, right}, {0, 1, 0}, {0, -1, bottom}})
    warp.gates[warp.gate_count++] = gate;
}

bool Composer::can_resize_warp(Size size) noexcept {
  const Matrix m = undeformed_map(pass().warp);
  const double areas = static_cast<double>(height()) * width() / (static_cast<double>(size.height) * size.width);
  return pass().color_count == 0 && std::fabs(m[0] * m[4] - m[1] * m[3]) * areas <= kMaxShrink * kMaxShrink;
}

void Composer::resize_warp(Size size, Filter filter) noexcept {
  pass().filter = better(pass().filter, filter);
  move_canvas(scaling(static_cast<double>(width()) / size.width, static_cast<double>(height()) / size.height), size);
}

bool Composer::can_pad_warp(Border border, double fill) noexcept {
  const Warp& warp = pass().warp;
  return pass().color_count == 0 && border == Border::constant && same_fill(warp.fill, fill) &&
         warp.gate_count + 4 <= kMaxGates;
}

}  // namespace headrace
