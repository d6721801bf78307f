// SPDX-License-Identifier: Apache-2.0
#include "transform/warp/warp.h"

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "transform/warp/matrix.h"

namespace headrace {
namespace {

constexpr std::uint32_t kMaxSamples = 8;
constexpr double kFixedLimit = 32768;
// Beyond the corners of the canvas: two for bicubic, and one for what positions in whole numbers are off.
constexpr double kReach = 3;

// Samples of each pixel along an axis: as many as input pixels, by their areas in the middle of the canvas.
std::uint32_t samples_of(const Pass& pass) noexcept {
  const Matrix m = undeformed_map(pass.warp);
  const double x = pass.columns.canvas / 2.0, y = pass.rows.canvas / 2.0;
  const double w = m[6] * x + m[7] * y + m[8];
  if (!(w > 0)) return 1;
  const double determinant =
      m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) + m[2] * (m[3] * m[7] - m[4] * m[6]);
  const double scale = std::sqrt(std::fabs(determinant) / (w * w * w));
  if (!(scale > 1)) return 1;
  return static_cast<std::uint32_t>(std::min(std::ceil(scale - 0x1p-10), double{kMaxSamples}));
}

struct Extent {
  double lowest, highest;

  void add(double x) noexcept {
    lowest = std::min(lowest, x);
    highest = std::max(highest, x);
  }
};

// Where positions of these extents lie after an elastic deformation and its map.
void displace(const Matrix& map, const Field& field, Extent& across, Extent& down) noexcept {
  const std::array<double, 2> xs = {across.lowest + field.lowest[0], across.highest + field.highest[0]};
  const std::array<double, 2> ys = {down.lowest + field.lowest[1], down.highest + field.highest[1]};
  across = down = {1e30, -1e30};
  for (const double x : xs)
    for (const double y : ys) {
      across.add(map[0] * x + map[1] * y + map[2]);
      down.add(map[3] * x + map[4] * y + map[5]);
    }
}

WarpPositions positions_of(const Pass& pass) noexcept {
  const auto& m = pass.warp.map;
  if (!is_affine(m) || pass.warp.elastic.bends) return WarpPositions::real;
  if (m[1] == 0 && m[3] == 0) return WarpPositions::steps;
  for (const double x : {0.0, static_cast<double>(pass.columns.canvas)})
    for (const double y : {0.0, static_cast<double>(pass.rows.canvas)})
      if (!(std::fabs(m[0] * x + m[1] * y + m[2]) < kFixedLimit) ||
          !(std::fabs(m[3] * x + m[4] * y + m[5]) < kFixedLimit))
        return WarpPositions::real;
  return WarpPositions::fixed;
}

}  // namespace

Region warped_region(const Pass& pass, const Field& field) noexcept {
  const auto& m = pass.warp.map;
  const Region all{0, 0, pass.rows.size, pass.columns.size};
  Extent down{1e30, -1e30}, across{1e30, -1e30};
  for (const double x : {0.0, static_cast<double>(pass.columns.canvas)})
    for (const double y : {0.0, static_cast<double>(pass.rows.canvas)}) {
      const double w = m[6] * x + m[7] * y + m[8];
      if (!(w > 1e-6)) return all;  // the horizon crosses the canvas
      across.add((m[0] * x + m[1] * y + m[2]) / w);
      down.add((m[3] * x + m[4] * y + m[5]) / w);
    }
  if (pass.warp.elastic.bends) displace(pass.warp.elastic.map, field, across, down);
  const auto range = [](const Extent& extent, std::uint32_t size) {
    const double begin = std::clamp(std::floor(extent.lowest - kReach), 0.0, static_cast<double>(size));
    const double end = std::clamp(std::ceil(extent.highest + kReach), begin, static_cast<double>(size));
    return std::array{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin)};
  };
  const auto [top, height] = range(down, all.height);
  const auto [left, width] = range(across, all.width);
  if (height == 0 || width == 0) return {0, 0, 0, 0};
  return {top, left, height, width};
}

void warp_picture(const Pass& pass, const Field& field, Filter filter, const Region& region, const Picture& source,
                  const Picture& canvas) noexcept {
  // Where nothing is shown, a pixel that nobody looks at stands for the input.
  const std::uint8_t nothing[2 * kMaxChannels + kWarpOverread] = {};
  const bool empty = region.height == 0;
  WarpRun run;
  run.warp = &pass.warp;
  run.field = pass.warp.elastic.bends ? &field : nullptr;
  run.type = canvas.type;
  run.filter = filter == Filter::area ? Filter::bilinear : filter;
  run.positions = positions_of(pass);
  run.samples = filter == Filter::nearest ? 1 : samples_of(pass);
  run.height = empty ? 0 : static_cast<std::int32_t>(pass.rows.size);
  run.width = empty ? 0 : static_cast<std::int32_t>(pass.columns.size);
  run.top = static_cast<std::int32_t>(region.top);
  run.left = static_cast<std::int32_t>(region.left);
  run.rows = empty ? 1 : static_cast<std::int32_t>(region.height);
  run.columns = empty ? 1 : static_cast<std::int32_t>(region.width);
  run.source = empty ? nothing : source.first;
  run.source_stride = empty ? 0 : source.stride;
  run.canvas_height = canvas.height;
  run.canvas_width = canvas.width;
  run.out = canvas.first;
  run.out_stride = canvas.stride;
  kernels().pixels.warp_rows(run);
}

}  // namespace headrace
