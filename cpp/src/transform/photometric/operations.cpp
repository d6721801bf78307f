// SPDX-License-Identifier: Apache-2.0
#include "transform/photometric/operations.h"

#include <algorithm>
#include <cmath>

#include "transform/draws.h"
#include "transform/level.h"

namespace headrace {
namespace {

constexpr double kMaxKernel = 255;

constexpr Status bad(const char* what) noexcept { return {Code::bad_argument, what}; }

bool within(double x, double lowest, double highest) noexcept { return x >= lowest && x <= highest; }
bool whole(double x, double lowest, double highest) noexcept {
  return within(x, lowest, highest) && std::floor(x) == x;
}
bool odd(double x) noexcept { return whole(x, 1, kMaxKernel) && static_cast<std::uint32_t>(x) % 2 == 1; }

LevelParameters level_at(const Parameters& p, std::size_t k) noexcept {
  return LevelParameters(p.data() + k, kLevelParameters);
}

Status checked_level(const Parameters& p, std::size_t k) noexcept {
  const char* const wrong = check_level(level_at(p, k));
  return wrong ? bad(wrong) : Status{};
}

constexpr std::array kEnhancements = {ColorKind::enhance_brightness, ColorKind::enhance_contrast,
                                      ColorKind::enhance_saturation, ColorKind::enhance_sharpness};

}  // namespace

Status check_photometric(const Op& op) noexcept {
  const auto& p = op.parameters;
  switch (op.kind) {
    case OpKind::gaussian_blur:
      if (!odd(p[0]) || !odd(p[1])) return bad("gaussian_blur: both sides of the kernel must be odd and in [1, 255]");
      if (!within(p[2], 1e-3, p[3]) || !within(p[3], p[2], 1e3))
        return bad("gaussian_blur: sigma must be a range within [0.001, 1000]");
      return {};
    case OpKind::gaussian_noise:
      if (!within(p[0], -1, 1)) return bad("gaussian_noise: the mean must be in [-1, 1]");
      if (!within(p[1], 0, 10)) return bad("gaussian_noise: sigma must be in [0, 10]");
      return {};
    case OpKind::permute_channels:
      return {};
    case OpKind::jpeg:
      if (!whole(p[0], 1, p[1]) || !whole(p[1], p[0], 100))
        return bad("jpeg: quality must be a range of whole numbers within [1, 100]");
      return {};
    default:
      break;
  }
  if (!within(p[0], 0, 1)) return bad("the probability of an operation on pixel values must be in [0, 1]");
  switch (op.kind) {
    case OpKind::posterize:
      if (!whole(p[1], 0, 1)) return bad("posterize: rounding must be 0 or 1");
      return checked_level(p, 2);
    case OpKind::solarize:
      if (!whole(p[1], 0, 2)) return bad("solarize: the scale of the threshold must be 0, 1 or 2");
      return checked_level(p, 2);
    case OpKind::solarize_add:
      return checked_level(p, 1);
    case OpKind::enhance:
      if (!whole(p[1], 0, 3)) return bad("enhance: what it changes must be 0, 1, 2 or 3");
      if (!within(p[2], -1e6, 1e6) || !within(p[3], -1e6, 1e6)) return bad("enhance: base and least are out of range");
      return checked_level(p, 4);
    default:
      return {};
  }
}

bool photometric_step(const Op& op, const DrawKey& key, std::uint16_t number, ColorStep& step) noexcept {
  const auto& p = op.parameters;
  const auto level = [&](std::size_t k) { return draw_level(level_at(p, k), draw(key, number, 1)); };
  step = {};
  step.operation = number;
  switch (op.kind) {
    case OpKind::gaussian_blur:
      step.kind = ColorKind::gaussian_blur;
      step.value = uniform(draw(key, number, 1)[0], p[2], p[3]);
      step.second = p[0];
      step.third = p[1];
      return true;
    case OpKind::gaussian_noise:
      step.kind = ColorKind::gaussian_noise;
      step.value = p[0];
      step.second = p[1];
      return true;
    case OpKind::permute_channels:
      step.kind = ColorKind::permute_channels;
      return true;
    case OpKind::jpeg:
      step.kind = ColorKind::jpeg;
      step.value = p[0] + below(draw(key, number, 1)[0], static_cast<std::uint32_t>(p[1] - p[0]) + 1);
      return true;
    default:
      break;
  }
  if (unit(draw(key, number, 0)[0]) >= p[0]) return false;
  switch (op.kind) {
    case OpKind::posterize: {
      const double bits = level(2);
      step.kind = ColorKind::posterize;
      step.value = p[1] == 1 ? std::ceil(bits) : std::floor(bits);
      return true;
    }
    case OpKind::solarize: {
      const auto scale = static_cast<ThresholdScale>(p[1]);
      const double threshold = level(2);
      step.kind = ColorKind::solarize;
      step.value = scale == ThresholdScale::whole_eight_bits ? std::floor(threshold) : threshold;
      step.second = scale != ThresholdScale::own;
      return true;
    }
    case OpKind::solarize_add:
      step.kind = ColorKind::solarize_add;
      step.value = std::floor(level(1));
      return true;
    case OpKind::enhance:
      step.kind = kEnhancements[static_cast<std::size_t>(p[1])];
      step.value = std::max(p[3], p[2] + level(4));
      return true;
    case OpKind::autocontrast:
      step.kind = ColorKind::autocontrast;
      return true;
    case OpKind::equalize:
      step.kind = ColorKind::equalize;
      return true;
    default:
      step.kind = ColorKind::invert;
      return true;
  }
}

}  // namespace headrace
