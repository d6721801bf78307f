// SPDX-License-Identifier: Apache-2.0
// Maps go from the new canvas to the old picture, in continuous coordinates: pixel i covers [i, i + 1).
#include "transform/warp/operations.h"

#include <algorithm>
#include <cmath>

#include "transform/draws.h"
#include "transform/level.h"
#include "transform/program.h"
#include "transform/trigonometry.h"
#include "transform/warp/field.h"

namespace headrace {
namespace {

constexpr double kMinScale = 1e-3, kMaxScale = 1e3;
constexpr double kMaxShear = 89;  // degrees
constexpr double kMaxPixels = 65535;
constexpr double kMaxAlpha = 1e5, kMinSigma = 1, kMaxSigma = 1000;
constexpr std::uint32_t kDrawnFilter = 4;
constexpr std::uint32_t kFilterBits = 7;

constexpr Status bad(const char* what) noexcept { return {Code::bad_argument, what}; }

bool range(const Parameters& p, std::size_t k, double lowest, double highest) noexcept {
  return p[k] >= lowest && p[k] <= p[k + 1] && p[k + 1] <= highest;
}

bool whole(double x, double lowest, double highest) noexcept {
  return x >= lowest && x <= highest && std::floor(x) == x;
}

Status check_resampling(double resampling, std::uint32_t flags) noexcept {
  if (!whole(resampling, 0, 127)) return bad("the resampling of a warp is unknown");
  const auto bits = static_cast<std::uint32_t>(resampling);
  const std::uint32_t filter = bits & kFilterBits;
  const bool drawn = filter == kDrawnFilter && (flags & kWarpCorner);
  if (filter != 0 && filter != 2 && filter != 3 && !drawn)
    return bad("the filter of a warp must be nearest, bilinear or bicubic");
  if ((bits & ~kFilterBits & ~flags) != 0) return bad("the resampling of a warp has flags of another operation");
  return {};
}

Status check_fill(double fill) noexcept {
  if (!whole(fill, 0, 0x1p51 - 1)) return bad("the fill of a warp must be three packed levels");
  return {};
}

WarpFill unpack_fill(double packed) noexcept {
  const auto bits = static_cast<std::uint64_t>(packed);
  WarpFill fill{};
  for (std::size_t c = 0; c < 3; ++c) fill[c] = static_cast<std::int32_t>(bits >> (17 * c) & 0x1FFFF) - 32768;
  return fill;
}

Filter filter_of(double resampling, std::uint32_t drawn) noexcept {
  const std::uint32_t filter = static_cast<std::uint32_t>(resampling) & kFilterBits;
  if (filter == kDrawnFilter) return unit(drawn) < 0.5 ? Filter::bilinear : Filter::bicubic;
  return static_cast<Filter>(filter);
}

bool has(double resampling, std::uint32_t flag) noexcept {
  return (static_cast<std::uint32_t>(resampling) & flag) != 0;
}

struct Affine {
  double degrees, x, y, scale, shear_x, shear_y;  // clockwise; pixels; degrees
};

// The inverse of: move the center to the origin, shear, rotate, scale, move back and on by the translation.
// torchvision's _get_inverse_affine_matrix, operation by operation.
Matrix inverse_affine(const Affine& a, double center_x, double center_y) noexcept {
  const Turned rotation = turned(a.degrees / 360), across = turned(a.shear_x / 360), down = turned(a.shear_y / 360);
  const Turned difference = turned((a.degrees - a.shear_y) / 360);
  const double tangent = across.sine / across.cosine;
  const double m0 = difference.cosine / down.cosine;
  const double m1 = -difference.cosine * tangent / down.cosine - rotation.sine;
  const double m3 = difference.sine / down.cosine;
  const double m4 = -difference.sine * tangent / down.cosine + rotation.cosine;
  Matrix m = {m4 / a.scale, -m1 / a.scale, 0, -m3 / a.scale, m0 / a.scale, 0, 0, 0, 1};
  m[2] = m[0] * (-center_x - a.x) + m[1] * (-center_y - a.y) + center_x;
  m[5] = m[3] * (-center_x - a.x) + m[4] * (-center_y - a.y) + center_y;
  return m;
}

// Truncated to 1e-4, so that a side of 5.0000000001 pixels is one of 5.
double truncated(double x) noexcept { return (x < 0 ? -std::floor(-x * 1e4) : std::floor(x * 1e4)) / 1e4; }

// Make the canvas as large as the picture that is turned about its middle, as Pillow does.
Status expand(WarpStep& step) noexcept {
  const Matrix& m = step.map;
  const double determinant = m[0] * m[4] - m[1] * m[3];
  const double w = step.width / 2.0, h = step.height / 2.0;
  // The extent of a rectangle that is mapped forwards is that of its corner with all signs made positive.
  const double across = (std::fabs(m[4]) * w + std::fabs(m[1]) * h) / std::fabs(determinant);
  const double down = (std::fabs(m[3]) * w + std::fabs(m[0]) * h) / std::fabs(determinant);
  double width = std::ceil(truncated(w + across)) - std::floor(truncated(w - across));
  double height = std::ceil(truncated(h + down)) - std::floor(truncated(h - down));
  if (m[0] == 0 && m[4] == 0) {  // a quarter turn, which Pillow does by exchanging rows and columns
    width = std::ceil(truncated(2 * across));
    height = std::ceil(truncated(2 * down));
  }
  if (!(width <= kMaxSide && height <= kMaxSide)) return bad("the expanded image is larger than 16777215 pixels");
  step.map = step.map * shift((step.width - width) / 2, (step.height - height) / 2);
  step.width = static_cast<std::uint32_t>(std::max(1.0, width));
  step.height = static_cast<std::uint32_t>(std::max(1.0, height));
  return {};
}

// From the unit square to the quadrilateral with these corners, clockwise from the top left (Heckbert, 1989).
bool square_to(const std::array<double, 4>& x, const std::array<double, 4>& y, Matrix& map) noexcept {
  const double dx1 = x[1] - x[2], dx2 = x[3] - x[2], dy1 = y[1] - y[2], dy2 = y[3] - y[2];
  const double sx = x[0] - x[1] + x[2] - x[3], sy = y[0] - y[1] + y[2] - y[3];
  const double determinant = dx1 * dy2 - dx2 * dy1;
  if (determinant == 0) return false;
  const double g = (sx * dy2 - dx2 * sy) / determinant, h = (dx1 * sy - sx * dy1) / determinant;
  map = {x[1] - x[0] + g * x[1],
         x[3] - x[0] + h * x[3],
         x[0],
         y[1] - y[0] + g * y[1],
         y[3] - y[0] + h * y[3],
         y[0],
         g,
         h,
         1};
  return true;
}

}  // namespace

Status check_warp(const Op& op) noexcept {
  const auto& p = op.parameters;
  switch (op.kind) {
    case OpKind::affine: {
      if (!range(p, 0, -36000, 36000)) return bad("affine: degrees must be a range within [-36000, 36000]");
      const double highest = p[12] >= 0 && p[12] <= 127 && has(p[12], kWarpPixels) ? kMaxPixels : 1;
      if (!range(p, 2, -highest, highest) || !range(p, 4, -highest, highest))
        return bad("affine: translations must be ranges within [-1, 1], or of at most 65535 pixels");
      if (!range(p, 6, kMinScale, kMaxScale)) return bad("affine: scale must be a range within [0.001, 1000]");
      if (!range(p, 8, -kMaxShear, kMaxShear) || !range(p, 10, -kMaxShear, kMaxShear))
        return bad("affine: shears must be ranges within [-89, 89] degrees");
      if (!(std::fabs(p[14]) <= kMaxPixels && std::fabs(p[15]) <= kMaxPixels))
        return bad("affine: the center must be within 65535 pixels");
      if (const Status s = check_resampling(p[12], kWarpPixels | kWarpExpand | kWarpCenter); !s) return s;
      return check_fill(p[13]);
    }
    case OpKind::affine_level:
      if (!whole(p[0], 0, static_cast<double>(Movement::translate_y_pixels)))
        return bad("affine_level: the movement is unknown");
      if (const char* const wrong = check_level(LevelParameters(p.data() + 1, kLevelParameters))) return bad(wrong);
      if (const Status s = check_resampling(p[9], kWarpCorner); !s) return s;
      return check_fill(p[10]);
    case OpKind::elastic:
      if (!(p[0] >= 0 && p[0] <= kMaxAlpha && p[1] >= 0 && p[1] <= kMaxAlpha))
        return bad("elastic: alpha must be in [0, 100000]");
      if (!(p[2] >= kMinSigma && p[2] <= kMaxSigma && p[3] >= kMinSigma && p[3] <= kMaxSigma))
        return bad("elastic: sigma must be in [1, 1000]");
      if (const Status s = check_resampling(p[4], 0); !s) return s;
      return check_fill(p[5]);
    default:
      if (!(p[0] >= 0 && p[0] <= 1)) return bad("perspective: the probability must be in [0, 1]");
      if (!(p[1] >= 0 && p[1] <= 1)) return bad("perspective: the distortion must be in [0, 1]");
      if (const Status s = check_resampling(p[2], 0); !s) return s;
      return check_fill(p[3]);
  }
}

Status affine_step(const Parameters& p, std::uint32_t height, std::uint32_t width, const Words& first,
                   const Words& second, WarpStep& step) noexcept {
  const bool pixels = has(p[12], kWarpPixels);
  const double unit_x = pixels ? 1 : width, unit_y = pixels ? 1 : height;
  const Affine affine = {uniform(first[0], p[0], p[1]),
                         round_half_even(uniform(first[1], p[2], p[3]) * unit_x),
                         round_half_even(uniform(first[2], p[4], p[5]) * unit_y),
                         uniform(first[3], p[6], p[7]),
                         uniform(second[0], p[8], p[9]),
                         uniform(second[1], p[10], p[11])};
  const bool given = has(p[12], kWarpCenter);
  step.map = inverse_affine(affine, given ? p[14] : width / 2.0, given ? p[15] : height / 2.0);
  step.height = height;
  step.width = width;
  step.filter = filter_of(p[12], 0);
  step.fill = unpack_fill(p[13]);
  return has(p[12], kWarpExpand) ? expand(step) : Status{};
}

Status affine_level_step(const Parameters& p, std::uint32_t height, std::uint32_t width, const Words& words,
                         WarpStep& step) noexcept {
  const double level = draw_level(LevelParameters(p.data() + 1, kLevelParameters), words);
  const bool corner = has(p[9], kWarpCorner);
  step.height = height;
  step.width = width;
  step.filter = filter_of(p[9], words[3]);
  step.fill = unpack_fill(p[10]);
  const double x = width / 2.0, y = height / 2.0;
  switch (static_cast<Movement>(p[0])) {
    case Movement::rotate:
      step.map = inverse_affine({-level, 0, 0, 1, 0, 0}, corner ? 0 : x, corner ? 0 : y);
      break;
    case Movement::shear_x:
      step.map = {1, level, corner ? -level * y : 0, 0, 1, 0, 0, 0, 1};
      break;
    case Movement::shear_y:
      step.map = {1, 0, 0, level, 1, corner ? -level * x : 0, 0, 0, 1};
      break;
    case Movement::translate_x:
      step.map = shift(-level * width, 0);
      break;
    case Movement::translate_y:
      step.map = shift(0, -level * height);
      break;
    case Movement::translate_x_pixels:
      step.map = shift(-std::trunc(level), 0);
      break;
    case Movement::translate_y_pixels:
      step.map = shift(0, -std::trunc(level));
      break;
  }
  return {};
}

Status perspective_step(const Parameters& p, std::uint32_t height, std::uint32_t width, const Words& first,
                        const Words& second, WarpStep& step) noexcept {
  step.height = height;
  step.width = width;
  step.filter = filter_of(p[2], 0);
  step.fill = unpack_fill(p[3]);
  const auto across = static_cast<std::uint32_t>(p[1] * (width / 2)) + 1;
  const auto down = static_cast<std::uint32_t>(p[1] * (height / 2)) + 1;
  const double right = width - 1.0, bottom = height - 1.0;
  const std::array<double, 4> x = {static_cast<double>(below(first[0], across)), right - below(first[2], across),
                                   right - below(second[0], across), static_cast<double>(below(second[2], across))};
  const std::array<double, 4> y = {static_cast<double>(below(first[1], down)),
                                   static_cast<double>(below(first[3], down)), bottom - below(second[1], down),
                                   bottom - below(second[3], down)};
  Matrix forward;
  if (right == 0 || bottom == 0 || !square_to(x, y, forward)) return {};
  Matrix map = scaling(right, bottom) * inverse(forward);
  if (map[8] == 0) return {};
  for (double& each : map) each /= map[8];
  map[8] = 1;
  step.map = map;
  return {};
}

Status elastic_step(const Parameters& p, std::uint32_t height, std::uint32_t width, const Words& words,
                    WarpStep& step) noexcept {
  step.height = height;
  step.width = width;
  step.filter = filter_of(p[4], 0);
  step.fill = unpack_fill(p[5]);
  Elastic& elastic = step.elastic;
  elastic.bends = true;
  elastic.height = height;
  elastic.width = width;
  elastic.alpha = {p[0], p[1]};
  elastic.sigma = {p[2], p[3]};
  elastic.key = {words[0], words[1]};
  return field_fits(elastic)
             ? Status{}
             : bad("elastic: the image is too large for this sigma; crop or resize it first, or raise sigma");
}

}  // namespace headrace
