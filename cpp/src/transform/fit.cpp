// SPDX-License-Identifier: Apache-2.0
#include "transform/fit.h"

#include <algorithm>

#include "transform/draws.h"

namespace headrace {
namespace {

constexpr double kTooLarge = kMaxSide + 1.0;  // the composer refuses it

// A side that is scaled, its fraction cut off; at least 1.
std::uint32_t scaled(std::uint32_t side, double scale) noexcept {
  return static_cast<std::uint32_t>(std::clamp(side * scale, 1.0, kTooLarge));
}

Filter filter_at(const Parameters& p, std::size_t k) noexcept { return static_cast<Filter>(p[k]); }

Status scale_jitter(Composer& composer, const Parameters& p, std::uint32_t drawn) noexcept {
  const std::uint32_t height = composer.height(), width = composer.width();
  const double scale = std::min(p[0] / height, p[1] / width) * uniform(drawn, p[2], p[3]);
  return composer.resize({scaled(height, scale), scaled(width, scale)}, filter_at(p, 4), p[5] == 1);
}

Status shortest_size(Composer& composer, const Parameters& p, std::uint32_t drawn) noexcept {
  const std::uint32_t height = composer.height(), width = composer.width();
  const double side = p[4 + below(drawn, static_cast<std::uint32_t>(p[3]))];
  double scale = side / std::min(height, width);
  if (p[0] > 0) scale = std::min(scale, p[0] / std::max(height, width));
  return composer.resize({scaled(height, scale), scaled(width, scale)}, filter_at(p, 1), p[2] == 1);
}

// The border before the picture and the one after it, of `missing` pixels in all.
std::array<std::uint32_t, 2> halves(std::uint32_t missing, bool middle) noexcept {
  const std::uint32_t before = middle ? missing / 2 : 0;
  return {before, missing - before};
}

Status letterbox(Composer& composer, const Parameters& p) noexcept {
  const auto height = static_cast<std::uint32_t>(p[0]), width = static_cast<std::uint32_t>(p[1]);
  double scale = std::min(p[0] / composer.height(), p[1] / composer.width());
  if (p[2] == 0) scale = std::min(scale, 1.0);
  const auto side = [scale](std::uint32_t side, std::uint32_t limit) {
    return static_cast<std::uint32_t>(std::clamp(round_half_even(side * scale), 1.0, static_cast<double>(limit)));
  };
  const Size size = {side(composer.height(), height), side(composer.width(), width)};
  if (const Status status = composer.resize(size, filter_at(p, 5), p[6] == 1); !status) return status;
  const auto [top, bottom] = halves(height - size.height, p[3] == 1);
  const auto [left, right] = halves(width - size.width, p[3] == 1);
  return composer.pad({left, top, right, bottom}, Border::constant, p[4]);
}

Status zoom_out(Composer& composer, const Parameters& p, const std::array<std::uint32_t, 4>& words) noexcept {
  if (!(unit(words[0]) < p[0])) return {};
  const double factor = uniform(words[1], p[1], p[2]);
  const std::uint32_t down = scaled(composer.height(), factor) - composer.height();
  const std::uint32_t across = scaled(composer.width(), factor) - composer.width();
  const auto left = static_cast<std::uint32_t>(across * unit(words[2]));
  const auto top = static_cast<std::uint32_t>(down * unit(words[3]));
  return composer.pad({left, top, across - left, down - top}, Border::constant, p[3]);
}

}  // namespace

Status fit(Composer& composer, const Op& op, const std::array<std::uint32_t, 4>& words) noexcept {
  switch (op.kind) {
    case OpKind::scale_jitter:
      return scale_jitter(composer, op.parameters, words[0]);
    case OpKind::shortest_size:
      return shortest_size(composer, op.parameters, words[0]);
    case OpKind::letterbox:
      return letterbox(composer, op.parameters);
    default:
      return zoom_out(composer, op.parameters, words);
  }
}

}  // namespace headrace
