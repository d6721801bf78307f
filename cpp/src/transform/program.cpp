// SPDX-License-Identifier: Apache-2.0
// From operations to passes. An operation speaks of the picture that the operations before it made; a pass can hold
// several of them, because on each axis it does four things in a fixed order:
//
//   input --cut--> [start, start + size) --resize--> content --place--> canvas --flip--> what the next one sees
//
// All is per axis but colors, border and filter, which are the pass's. The rules by which an operation enters the
// current pass; if its rule does not hold, a new pass is begun whose input is what the current one leaves:
//
//   any but a flip    needs a pass without colors: contrast depends on every pixel that it was given.
//   crop to [t, t+n)  canvas = n, offset -= t; always possible. Then an axis that is not resized is trimmed: what its
//                     canvas does not show is cut from its input. One that is resized must not be, since a filter
//                     reaches beyond the crop; its canvas is a window, and only the window is computed.
//   pad by (b, a)     offset += b, canvas += b + a. Needs, on an axis that grows, that the canvas hides no content, for
//                     it would come to light; that the pass has no border yet, or the same one; and if it reflects,
//                     that this axis has none, for a reflection of a reflection is another picture.
//   resize to n       resized = canvas = n. Needs a pass that resizes nothing and whose canvas is its content, and a
//                     filter that is its own mirror image if the axis is flipped: nearest and area round to one side.
//   flip              toggles; always possible. Later positions and widths are mirrored into the canvas.
//   warps             are in warp/compose.cpp.
//   colors            follow in order, as long as there is room. Noise and JPEG need a pass that flips nothing so far,
//                     for they would differ in a mirrored picture.
//
// Invariants after each operation, on each axis:
//   start + size <= input; size, resized and canvas are at least 1; canvas <= kMaxSide.
//   If resized = size and no border shows, then offset = 0 and canvas = size: such an axis hides nothing.
//   With an edge or constant border, an axis that is not resized hides nothing either, unless its canvas is nothing but
//   border; then size = 1 and the content is the pixel that is nearest to the canvas.
#include "transform/program.h"

#include <algorithm>
#include <memory>

#include "transform/photometric/operations.h"

namespace headrace {
namespace {

constexpr Status bad(const char* what) noexcept { return {Code::bad_argument, what}; }

bool is_content(const Axis& axis) noexcept { return axis.offset == 0 && axis.canvas == axis.resized; }

bool hides(const Axis& axis) noexcept {
  return axis.offset < 0 || std::int64_t{axis.offset} + axis.resized > std::int64_t{axis.canvas};
}

void trim(Axis& axis, Border border) noexcept {
  if (axis.resized != axis.size || (border == Border::reflect && axis.has_border())) return;
  const auto hidden = [&axis](std::int64_t pixels) {
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(pixels, 0, axis.size - 1));
  };
  const std::uint32_t before = hidden(-std::int64_t{axis.offset});
  axis.start += before;
  axis.size -= before;
  axis.offset += static_cast<std::int32_t>(before);
  axis.size -= hidden(std::int64_t{axis.offset} + axis.size - axis.canvas);
  axis.resized = axis.size;
}

void crop_axis(Axis& axis, std::uint32_t position, std::uint32_t size, Border border) noexcept {
  axis.offset -= static_cast<std::int32_t>(axis.flipped ? axis.canvas - position - size : position);
  axis.canvas = size;
  trim(axis, border);
}

bool can_pad(const Axis& axis, std::uint32_t before, std::uint32_t after, Border border) noexcept {
  if (before + after == 0) return true;
  return border == Border::reflect ? is_content(axis) : !hides(axis);
}

void pad_axis(Axis& axis, std::uint32_t before, std::uint32_t after) noexcept {
  axis.offset += static_cast<std::int32_t>(axis.flipped ? after : before);
  axis.canvas += before + after;
}

}  // namespace

Composer::Composer(Program& program, Size size) noexcept : program_(program) {
  program_.pass_count = 0;
  append(size);
}

Status Composer::crop(Window window) noexcept {
  if (window.height == height() && window.width == width()) return {};
  if (pass().color_count > 0)
    if (const Status status = begin_pass(); !status) return status;
  if (pass().warps) {
    move_canvas(shift(window.left, window.top), {window.height, window.width});
    return {};
  }
  crop_axis(pass().rows, window.top, window.height, pass().border);
  crop_axis(pass().columns, window.left, window.width, pass().border);
  return {};
}

Status Composer::resize(Size size, Filter filter, bool antialias) noexcept {
  if (size.height > kMaxSide || size.width > kMaxSide) return bad("the resized image is larger than 16777215 pixels");
  if (size.height == height() && size.width == width()) return {};
  if (!(pass().warps ? can_resize_warp(size) : can_resize(size, filter)))
    if (const Status status = begin_pass(); !status) return status;
  if (pass().warps) {
    resize_warp(size, filter);
    return {};
  }
  pass().rows.resized = pass().rows.canvas = size.height;
  pass().columns.resized = pass().columns.canvas = size.width;
  pass().filter = filter;
  pass().antialias = antialias;
  return {};
}

Status Composer::pad(Edges edges, Border border, double fill) noexcept {
  const std::uint32_t down = edges.top + edges.bottom, across = edges.left + edges.right;
  if (down + across == 0) return {};
  if (down > kMaxSide - height() || across > kMaxSide - width())
    return bad("the padded image is larger than 16777215 pixels");
  if (!(pass().warps ? can_pad_warp(border, fill) : can_pad(edges, border, fill)))
    if (const Status status = begin_pass(); !status) return status;
  if (pass().warps) {
    add_gates();
    move_canvas(shift(-static_cast<double>(edges.left), -static_cast<double>(edges.top)),
                {height() + down, width() + across});
    return {};
  }
  pad_axis(pass().rows, edges.top, edges.bottom);
  pad_axis(pass().columns, edges.left, edges.right);
  pass().border = border;
  pass().fill = fill;
  return {};
}

Status Composer::color(ColorStep step) noexcept {
  const bool mirrored = pass().rows.flipped || pass().columns.flipped;
  if (pass().color_count == kMaxColorSteps || (mirrored && has_direction(step.kind)))
    if (const Status status = begin_pass(); !status) return status;
  pass().colors[pass().color_count++] = step;
  return {};
}

void Composer::begin_mix(double weight) noexcept {
  pass().keeps = true;
  pass().weight = weight;
  kept_ = {height(), width()};
}

Status Composer::begin_branch() noexcept {
  if (const Status status = begin_pass(); !status) return status;
  pass().input = PassInput::kept;
  return {};
}

Status Composer::end_branch(double weight) noexcept {
  if (height() != kept_.height || width() != kept_.width)
    return bad("the operations of a mix must keep the size of the image");
  pass().adds = true;
  pass().weight = weight;
  return {};
}

Status Composer::end_mix() noexcept {
  if (const Status status = begin_pass(); !status) return status;
  pass().input = PassInput::mixed;
  return {};
}

void Composer::append(Size size) noexcept {
  Pass& next = *std::construct_at(&program_.passes[program_.pass_count++]);
  next.rows.input = next.rows.size = next.rows.resized = next.rows.canvas = size.height;
  next.columns.input = next.columns.size = next.columns.resized = next.columns.canvas = size.width;
}

Status Composer::begin_pass() noexcept {
  if (program_.pass_count == kMaxPasses)
    return bad("the operations need more than 16 passes; put crops and resizes before color operations and pads");
  append({height(), width()});
  return {};
}

bool Composer::can_resize(Size size, Filter filter) noexcept {
  const Pass& p = pass();
  const bool one_sided = filter == Filter::nearest || filter == Filter::area;
  const bool mirrors = (p.rows.flipped && size.height != height()) || (p.columns.flipped && size.width != width());
  return p.color_count == 0 && !p.resizes() && is_content(p.rows) && is_content(p.columns) && !(one_sided && mirrors);
}

bool Composer::can_pad(Edges edges, Border border, double fill) noexcept {
  const Pass& p = pass();
  const bool bordered = p.rows.has_border() || p.columns.has_border();
  const bool same = p.border == border && (border != Border::constant || p.fill == fill);
  return p.color_count == 0 && (!bordered || same) && headrace::can_pad(p.rows, edges.top, edges.bottom, border) &&
         headrace::can_pad(p.columns, edges.left, edges.right, border);
}

}  // namespace headrace
