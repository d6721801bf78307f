// SPDX-License-Identifier: Apache-2.0
#include "transform/warp/field.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels.h"
#include "transform/draws.h"
#include "transform/workspace.h"

namespace headrace {
namespace {

constexpr double kSpacing = 0.8;  // of sigma, at most
constexpr double kReach = 4;      // deviations of the Gaussian that are summed
constexpr std::uint32_t kMaxRadius = 11;
constexpr std::uint32_t kBeside =
    4;  // nodes of an axis beyond those whose cells begin within it: one before, three after

// Nodes along one axis, and the Gaussian that smooths their noise.
struct FieldAxis {
  std::uint32_t spacing, nodes, radius;
  double deviation;  // of the Gaussian, in nodes

  FieldAxis(std::uint32_t size, double sigma) noexcept
      : spacing(field_spacing(sigma)),
        nodes(size / spacing + kBeside),
        deviation(std::sqrt(sigma * sigma / (static_cast<double>(spacing) * spacing) - 1.0 / 3)) {
    radius = std::min(kMaxRadius, static_cast<std::uint32_t>(std::ceil(kReach * deviation)));
  }
  std::uint32_t padded() const noexcept { return nodes + 2 * radius; }
  std::uint32_t taps() const noexcept { return 2 * radius + 1; }

  void weigh(std::array<float, 2 * kMaxRadius + 1>& weights) const noexcept {
    std::array<double, 2 * kMaxRadius + 1> exact{};
    double sum = 0;
    for (std::uint32_t k = 0; k < taps(); ++k) {
      const double x = (static_cast<double>(k) - radius) / deviation;
      exact[k] = exponential(-0.5 * x * x);
      sum += exact[k];
    }
    for (std::uint32_t k = 0; k < taps(); ++k) weights[k] = static_cast<float>(exact[k] / sum);
  }
};

struct FieldAxes {
  FieldAxis down, across;

  explicit FieldAxes(const Elastic& elastic) noexcept
      : down(elastic.height, elastic.sigma[1]), across(elastic.width, elastic.sigma[0]) {}
  std::uint64_t nodes() const noexcept { return std::uint64_t{down.padded()} * across.padded(); }
  // The samples of a row of noise begin with a block.
  std::size_t noise_row() const noexcept { return (std::size_t{across.padded()} + 3) / 4 * 4; }
};

using Rows = std::array<const std::uint8_t*, 2 * kMaxRadius + 1>;

// Noise, smoothed across: `rows` of `down.padded()` rows, one after the other. `row` has room for noise_row() numbers.
void draw_rows(const FieldAxes& axes, const Elastic& elastic, std::uint64_t first_row, float* row,
               float* rows) noexcept {
  std::array<float, 2 * kMaxRadius + 1> weights;
  axes.across.weigh(weights);
  Rows shifted{};
  for (std::uint32_t k = 0; k < axes.across.taps(); ++k) shifted[k] = reinterpret_cast<const std::uint8_t*>(row + k);
  const std::size_t length = axes.noise_row();
  constexpr std::size_t kPiece = 1024;
  std::uint32_t words[kPiece];
  for (std::uint32_t y = 0; y < axes.down.padded(); ++y, rows += axes.across.nodes) {
    for (std::size_t at = 0; at < length; at += kPiece) {
      const std::size_t n = std::min(kPiece, length - at);
      kernels().pixels.random_words(elastic.key[0], elastic.key[1], (first_row + y) * (length / 4) + at / 4, n / 4,
                                    words);
      kernels().pixels.normal_numbers(words, n, row + at);
    }
    kernels().pixels.sum_numbers_float(shifted.data(), weights.data(), axes.across.taps(), axes.across.nodes, rows);
  }
}

// Smooth down, in place: what row y becomes needs that row and those after it. `row` has room for a row.
void smooth_down(const FieldAxes& axes, float scale, float* row, float* rows, float& lowest, float& highest) noexcept {
  std::array<float, 2 * kMaxRadius + 1> weights;
  axes.down.weigh(weights);
  const std::size_t columns = axes.across.nodes;
  Rows following{};
  lowest = highest = 0;
  for (std::uint32_t y = 0; y < axes.down.nodes; ++y) {
    float* const to = rows + y * columns;
    for (std::uint32_t k = 0; k < axes.down.taps(); ++k)
      following[k] = reinterpret_cast<const std::uint8_t*>(to + k * columns);
    kernels().pixels.sum_numbers_float(following.data(), weights.data(), axes.down.taps(), columns, row);
    for (std::size_t x = 0; x < columns; ++x) {
      to[x] = row[x] * scale;
      lowest = std::min(lowest, to[x]);
      highest = std::max(highest, to[x]);
    }
  }
}

}  // namespace

std::uint32_t field_spacing(double sigma) noexcept {
  return std::max(1U, static_cast<std::uint32_t>(std::floor(kSpacing * sigma)));
}

bool field_fits(const Elastic& elastic) noexcept { return FieldAxes(elastic).nodes() <= kMaxFieldNodes; }

Status make_field(const Elastic& elastic, Buffer& buffer, Field& field) noexcept {
  const FieldAxes axes(elastic);
  const std::size_t plane = std::size_t{axes.down.padded()} * axes.across.nodes, row = axes.noise_row();
  auto* const memory = reinterpret_cast<float*>(buffer.reserve((2 * plane + row) * sizeof(float)));
  if (!memory) return {Code::no_memory, "no memory to transform an image"};
  field.rows = axes.down.nodes;
  field.columns = axes.across.nodes;
  const double size[2] = {static_cast<double>(elastic.width), static_cast<double>(elastic.height)};
  const double spacing[2] = {static_cast<double>(axes.across.spacing), static_cast<double>(axes.down.spacing)};
  const double deviation = std::sqrt(1 / (3 * spacing[0] * spacing[1]));
  for (std::size_t k = 0; k < 2; ++k) {
    float* const nodes = memory + k * plane;
    draw_rows(axes, elastic, k * axes.down.padded(), memory + 2 * plane, nodes);
    // torchvision divides by the height across and by the width down, and counts in halves of the side.
    const double pixels = elastic.alpha[k] * size[k] / (2 * size[1 - k]);
    smooth_down(axes, static_cast<float>(pixels * deviation), memory + 2 * plane, nodes, field.lowest[k],
                field.highest[k]);
    field.nodes[k] = nodes;
    field.size[k] = size[k];
    field.per_pixel[k] = 1 / spacing[k];
  }
  return {};
}

}  // namespace headrace
