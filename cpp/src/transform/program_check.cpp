// SPDX-License-Identifier: Apache-2.0
// The ranges of all operations' parameters. What is checked here, make_program relies on.
#include <cmath>
#include <limits>

#include "headrace/transform.h"
#include "transform/control.h"
#include "transform/photometric/operations.h"
#include "transform/warp/operations.h"

namespace headrace {
namespace {

constexpr double kMaxParameterSide = 65535;
constexpr double kMaxValue = 1e6;
constexpr double kMaxWeight = 1e9;  // sums of weights stay finite
constexpr double kMinRatio = 1e-3, kMaxRatio = 1e3;
constexpr double kMaxShortestSizes = 12;

constexpr Status bad(const char* what) noexcept { return {Code::bad_argument, what}; }

// Each of these is false for what is not a number, too.
bool within(double x, double lowest, double highest) noexcept { return x >= lowest && x <= highest; }
bool whole(double x, double lowest, double highest) noexcept {
  return within(x, lowest, highest) && std::floor(x) == x;
}
bool flag(double x) noexcept { return x == 0 || x == 1; }
bool side(double x) noexcept { return whole(x, 1, kMaxParameterSide); }
bool range(double from, double to, double lowest, double highest) noexcept {
  return from >= lowest && from <= to && to <= highest;
}

Status check_resampling(double filter, double antialias) noexcept {
  if (!whole(filter, 0, static_cast<double>(Filter::bicubic))) return bad("the filter is unknown");
  if (!flag(antialias)) return bad("antialias must be 0 or 1");
  return {};
}

Status check_border(double fill, double border) noexcept {
  if (!whole(border, 0, static_cast<double>(Border::reflect))) return bad("the border is unknown");
  if (!within(fill, -32768, 65535)) return bad("fill must be in [-32768, 65535]");
  return {};
}

Status check_jitter(const Parameters& p) noexcept {
  constexpr double kMaxFactor = std::numeric_limits<float>::max();
  if (!range(p[0], p[1], 0, kMaxFactor)) return bad("brightness must be a range of factors, from <= to");
  if (!range(p[2], p[3], 0, kMaxFactor)) return bad("contrast must be a range of factors, from <= to");
  if (!range(p[4], p[5], 0, kMaxFactor)) return bad("saturation must be a range of factors, from <= to");
  if (!range(p[6], p[7], -0.5, 0.5)) return bad("hue must be a range within [-0.5, 0.5]");
  return {};
}

Status check_erasing(const Parameters& p) noexcept {
  constexpr double kMaxRectangles = 100, kMaxValues = 7;
  if (!within(p[0], 0, 1)) return bad("random_erasing: the probability must be in [0, 1]");
  if (!range(p[1], p[2], 1e-9, 1)) return bad("random_erasing: scale must be a range of fractions of the area");
  if (!range(p[3], p[4], kMinRatio, kMaxRatio))
    return bad("random_erasing: ratio must be a range of aspect ratios, above 0");
  if (!whole(p[5], 1, kMaxRectangles) || !whole(p[6], p[5], kMaxRectangles))
    return bad("random_erasing: count must be a range within [1, 100]");
  if (!whole(p[7], 0, 2)) return bad("random_erasing: the fill must be 0, 1 or 2");
  if (!whole(p[8], p[7] == 0 ? 1 : 0, kMaxValues)) return bad("random_erasing: there must be 1 to 7 values");
  for (std::size_t k = 9; k < p.size(); ++k)
    if (!within(p[k], -kMaxValue, kMaxValue)) return bad("random_erasing: every value must be in [-1e6, 1e6]");
  return {};
}

Status check_length(double length) noexcept {
  return whole(length, 0, kMaxOps) ? Status{} : bad("the length of a body must be in [0, 512]");
}

Status check_op(const Op& op) noexcept {
  const auto& p = op.parameters;
  switch (op.kind) {
    case OpKind::resize:
      if (!flag(p[0])) return bad("resize: exact must be 0 or 1");
      if (!side(p[1]) || (p[0] == 1 && !side(p[2]))) return bad("resize: every side must be in [1, 65535]");
      return check_resampling(p[3], p[4]);
    case OpKind::center_crop:
      if (!side(p[0]) || !side(p[1])) return bad("center_crop: every side must be in [1, 65535]");
      return {};
    case OpKind::random_crop:
      if (!side(p[0]) || !side(p[1])) return bad("random_crop: every side must be in [1, 65535]");
      if (!flag(p[2])) return bad("random_crop: pad_if_needed must be 0 or 1");
      return check_border(p[3], p[4]);
    case OpKind::random_resized_crop:
      if (!side(p[0]) || !side(p[1])) return bad("random_resized_crop: every side must be in [1, 65535]");
      if (!range(p[2], p[3], std::numeric_limits<float>::min(), kMaxRatio))
        return bad("random_resized_crop: scale must be a range of fractions of the area, above 0");
      if (!range(p[4], p[5], kMinRatio, kMaxRatio))
        return bad("random_resized_crop: ratio must be a range of aspect ratios, above 0");
      return check_resampling(p[6], p[7]);
    case OpKind::horizontal_flip:
    case OpKind::vertical_flip:
      return within(p[0], 0, 1) ? Status{} : bad("flip: the probability must be in [0, 1]");
    case OpKind::pad:
      for (int k = 0; k < 4; ++k)
        if (!whole(p[k], 0, kMaxParameterSide)) return bad("pad: every width must be in [0, 65535]");
      return check_border(p[4], p[5]);
    case OpKind::color_jitter:
      return check_jitter(p);
    case OpKind::grayscale:
      if (!within(p[0], 0, 1)) return bad("grayscale: the probability must be in [0, 1]");
      if (p[1] != 1 && p[1] != 3) return bad("grayscale: the number of output channels must be 1 or 3");
      // Else the number of channels would be random, and samples would not fit into one batch.
      if (p[0] < 1 && p[1] != 3)
        return bad("grayscale: with a probability < 1 the number of output channels must be 3");
      return {};
    case OpKind::random_erasing:
      return check_erasing(p);
    case OpKind::apply:
      return within(p[0], 0, 1) ? check_length(p[1]) : bad("apply: the probability must be in [0, 1]");
    case OpKind::choice:
    case OpKind::order:
      return check_length(p[0]);
    case OpKind::branch:
      return within(p[0], 0, kMaxWeight) ? check_length(p[1]) : bad("branch: the weight must be in [0, 1e9]");
    case OpKind::affine:
    case OpKind::affine_level:
    case OpKind::perspective:
    case OpKind::elastic:
      return check_warp(op);
    case OpKind::invert:
    case OpKind::posterize:
    case OpKind::solarize:
    case OpKind::solarize_add:
    case OpKind::autocontrast:
    case OpKind::equalize:
    case OpKind::enhance:
    case OpKind::gaussian_blur:
    case OpKind::gaussian_noise:
    case OpKind::permute_channels:
    case OpKind::jpeg:
      return check_photometric(op);
    case OpKind::mix:
      if (!within(p[0], 0.01, 100)) return bad("mix: alpha must be in [0.01, 100]");
      return check_length(p[1]);
    case OpKind::scale_jitter:
      if (!side(p[0]) || !side(p[1])) return bad("scale_jitter: every side must be in [1, 65535]");
      if (!range(p[2], p[3], kMinRatio, kMaxRatio)) return bad("scale_jitter: scale must be a range above 0");
      return check_resampling(p[4], p[5]);
    case OpKind::shortest_size:
      if (!whole(p[0], 0, kMaxParameterSide)) return bad("shortest_size: the longer side must be in [0, 65535]");
      if (!whole(p[3], 1, kMaxShortestSizes)) return bad("shortest_size: there must be 1 to 12 sizes");
      for (std::size_t k = 0; k < static_cast<std::size_t>(p[3]); ++k)
        if (!side(p[4 + k])) return bad("shortest_size: every size must be in [1, 65535]");
      return check_resampling(p[1], p[2]);
    case OpKind::letterbox:
      if (!side(p[0]) || !side(p[1])) return bad("letterbox: every side must be in [1, 65535]");
      if (!flag(p[2]) || !flag(p[3])) return bad("letterbox: flags must be 0 or 1");
      if (const Status s = check_border(p[4], 0); !s) return s;
      return check_resampling(p[5], p[6]);
    case OpKind::zoom_out:
      if (!within(p[0], 0, 1)) return bad("zoom_out: the probability must be in [0, 1]");
      if (!range(p[1], p[2], 1, kMaxRatio)) return bad("zoom_out: the factors must be a range within [1, 1000]");
      return check_border(p[3], 0);
  }
  return bad("the operation is unknown");
}

// Sides are below 2^24, so no product wraps.
std::uint64_t area(std::uint32_t rows, std::uint32_t columns) noexcept { return std::uint64_t{rows} * columns; }

}  // namespace

Status check_ops(std::span<const Op> ops) noexcept {
  if (ops.size() > kMaxOps) return bad("there must be at most 512 operations");
  for (const Op& op : ops)
    if (const Status status = check_op(op); !status) return status;
  for (std::size_t k = 1; k < ops.size(); ++k)
    if (ops[k - 1].kind == OpKind::random_erasing && ops[k].kind != OpKind::random_erasing)
      return bad("random_erasing must be the last operation");
  return check_nesting(ops);
}

Status check_pixels(const Program& program, std::uint64_t max_pixels) noexcept {
  for (std::uint32_t i = 0; i < program.pass_count; ++i) {
    const Axis &rows = program.passes[i].rows, &columns = program.passes[i].columns;
    // What is resized and then seen only in part is computed only in part, unless a border mirrors all of it.
    const bool mirrors = program.passes[i].border != Border::constant && (rows.has_border() || columns.has_border());
    if (area(rows.size, columns.size) > max_pixels || area(rows.canvas, columns.canvas) > max_pixels ||
        (mirrors && area(rows.resized, columns.resized) > max_pixels))
      return kTooManyPixels;
  }
  return {};
}

}  // namespace headrace
