// SPDX-License-Identifier: Apache-2.0
// Warps of random operations: every target against the scalar one, and that against single pixels in doubles. The
// source is a copy of exactly the region that a warp asks for, so that a sanitizer sees any look beyond it.
#include "transform/warp/warp.h"

#include <cmath>

#include "pixels.h"
#include "transform/workspace.h"

namespace headrace::tests {
namespace {

Op random_warp(Random& random) {
  constexpr std::array<double, 3> filters = {0, 2, 3};
  const auto between = [&](double from, double to) { return from + (to - from) * (random.below(1U << 30) * 0x1p-30); };
  const double filter = filters[random.below(3)], fill = pack_fill({7, -3, 300});
  const double angle = random.below(3) == 0 ? 0 : between(-180, 180), x = between(-0.6, 0.6), y = between(-0.6, 0.6),
               scale = std::exp(between(-1.5, 1.5)), shear = random.below(2) == 0 ? 0 : between(-40, 40);
  if (random.below(4) == 0)
    return {OpKind::elastic,
            {between(0, 90), between(0, 90), std::exp(between(0, 2.5)), std::exp(between(0, 2.5)), filter, fill}};
  if (random.below(3) == 0) return {OpKind::perspective, {1, between(0, 1), filter, fill}};
  return {OpKind::affine, {angle, angle, x, x, y, y, scale, scale, shear, shear, 0, 0, filter, fill, 0, 0}};
}

double cubic(double t) {
  t = std::fabs(t);
  return t < 1 ? (t - 2) * t * t + 1 : t < 2 ? ((5 - t) * t - 8) * t + 4 : 0;
}

double basis(double t) {
  t = std::fabs(t);
  return t < 1 ? 2.0 / 3 - t * t + t * t * t / 2 : t < 2 ? (2 - t) * (2 - t) * (2 - t) / 6 : 0;
}

// The displacement at (x, y), as a sum over the nodes around it.
double displacement(const Field& field, std::size_t direction, double x, double y) {
  const double column = std::clamp(x, 0.0, field.size[0]) * field.per_pixel[0] + 1,
               row = std::clamp(y, 0.0, field.size[1]) * field.per_pixel[1] + 1;
  double sum = 0;
  const auto top = static_cast<std::uint32_t>(row - 1), left = static_cast<std::uint32_t>(column - 1);
  for (std::uint32_t r = top; r < std::min(top + 5, field.rows); ++r)
    for (std::uint32_t k = left; k < std::min(left + 5, field.columns); ++k)
      sum += field.nodes[direction][std::size_t{r} * field.columns + k] * basis(row - r) * basis(column - k);
  return sum;
}

// One channel of the canvas pixel whose center is (x, y); NaN where its place is too close to an edge to be sure.
double plain_pixel(const Image& image, const Pass& pass, const Field& field, double x, double y, std::uint32_t c) {
  const Warp& warp = pass.warp;
  const auto& m = warp.map;
  const double w = m[6] * x + m[7] * y + m[8];
  double u = (m[0] * x + m[1] * y + m[2]) / w, v = (m[3] * x + m[4] * y + m[5]) / w;
  const double width = pass.columns.size, height = pass.rows.size;
  double at_x = u, at_y = v;
  if (warp.elastic.bends) {
    at_x = u + displacement(field, 0, u, v);
    at_y = v + displacement(field, 1, u, v);
    const auto& inner = warp.elastic.map;
    u = inner[0] * at_x + inner[1] * at_y + inner[2];
    v = inner[3] * at_x + inner[4] * at_y + inner[5];
  }
  double margin = std::min({u, width - u, v, height - v});
  bool shown = w > 0 && margin >= 0;
  margin = std::fabs(margin);
  for (std::uint32_t k = 0; k < warp.gate_count; ++k) {
    const bool moved = k < warp.elastic.gate_count;
    const double side =
        warp.gates[k][0] * (moved ? at_x : x) + warp.gates[k][1] * (moved ? at_y : y) + warp.gates[k][2];
    shown = shown && side >= 0;
    margin = std::min(margin, std::fabs(side));
  }
  if (margin < 1e-3 || std::fabs(w) < 1e-3) return std::nan("");
  if (!shown) return std::clamp<double>(warp.fill[std::min(c, 2U)], least_of(image.kind), most_of(image.kind));
  const auto level = [&](double column, double row) {
    return sample_of(image, pass.rows.start + static_cast<std::uint32_t>(std::clamp(row, 0.0, height - 1)),
                     pass.columns.start + static_cast<std::uint32_t>(std::clamp(column, 0.0, width - 1)), c);
  };
  if (pass.filter == Filter::nearest) {
    const bool sure = std::fabs(u - std::round(u)) > 0.01 && std::fabs(v - std::round(v)) > 0.01;
    return sure ? level(std::floor(u), std::floor(v)) : std::nan("");
  }
  const double left = std::floor(u - 0.5), top = std::floor(v - 0.5);
  double sum = 0;
  for (int j = -1; j <= 2; ++j)
    for (int i = -1; i <= 2; ++i) {
      const double dx = u - 0.5 - left - i, dy = v - 0.5 - top - j;
      const double weight = pass.filter == Filter::bicubic
                                ? cubic(dx) * cubic(dy)
                                : std::max(0.0, 1 - std::fabs(dx)) * std::max(0.0, 1 - std::fabs(dy));
      sum += weight * level(left + i, top + j);
    }
  return std::clamp(sum, least_of(image.kind), most_of(image.kind));
}

bool shrinks(const Pass& pass) {
  const Matrix m = undeformed_map(pass.warp);
  return m[6] != 0 || m[7] != 0 || std::fabs(m[0] * m[4] - m[1] * m[3]) > 1;
}

Guarded warped(const Image& image, const Pass& pass, Workspace& workspace, Field& field) {
  if (pass.warp.elastic.bends && !make_field(pass.warp.elastic, workspace.field, field)) std::abort();
  const Region region = warped_region(pass, field);
  const std::size_t row = region.width * image.pixel_bytes();
  std::vector<std::uint8_t> part(row * region.height + kWarpOverread);
  for (std::uint32_t y = 0; y < region.height; ++y)
    std::memcpy(part.data() + y * row, image.at(pass.rows.start + region.top + y, pass.columns.start + region.left),
                row);
  const std::uint32_t height = pass.rows.canvas, width = pass.columns.canvas;
  Guarded out(std::size_t{height} * width * image.pixel_bytes());
  const auto stride = static_cast<std::ptrdiff_t>(width * image.pixel_bytes());
  warp_picture(pass, field, pass.filter, region,
               {part.data(), static_cast<std::ptrdiff_t>(row), region.height, region.width, type_of(image.kind)},
               {out.first(), stride, height, width, type_of(image.kind)});
  return out;
}

void check_pixels_of(const Image& image, const Pass& pass, const Field& field, const Guarded& out,
                     const std::string& what, Checks& checks) {
  if (shrinks(pass) && pass.filter != Filter::nearest) return;
  double worst = 0;
  for (std::uint32_t y = 0; y < pass.rows.canvas; ++y)
    for (std::uint32_t x = 0; x < pass.columns.canvas; ++x)
      for (std::uint32_t c = 0; c < image.kind.channels; ++c) {
        const double expected = plain_pixel(image, pass, field, x + 0.5, y + 0.5, c);
        const std::uint8_t* const at =
            out.first() + (std::size_t{y} * pass.columns.canvas + x) * image.pixel_bytes() + c * image.kind.depth / 8;
        if (!std::isnan(expected)) worst = std::max(worst, std::fabs(sample_at(at, image.kind) - expected));
      }
  const double allowed = pass.filter == Filter::nearest ? 0 : image.kind.depth == 8 ? 0.51 : 1;
  checks.expect(worst <= allowed, what + ": off by " + std::to_string(worst));
}

}  // namespace

void check_warps(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest) {
  Random random(seed);
  Workspace workspace;
  Field field;
  for (unsigned k = 0; k < cases; ++k) {
    const std::uint32_t height = 1 + random.below(60), width = 1 + random.below(60);
    const Image image = random_image(height, width, random_kind(random), random);
    std::vector<Op> ops;
    if (random.below(3) == 0) ops.push_back({OpKind::random_crop, {9, 11, 1, 0, 0}});
    ops.push_back(random_warp(random));
    if (random.below(2) == 0) ops.push_back({OpKind::random_crop, {7, 30, 1, 0, 0}});
    if (random.below(3) == 0) ops.push_back(random_warp(random));
    Program program;
    const std::string what =
        "warp " + std::to_string(k) + " of " + size_of(height, width) + " x " + name_of(image.kind);
    if (!checks.expect(check_ops(ops) && make_program(ops, height, width, {seed, 0, k, 0}, program), what)) continue;
    if (!program.passes[0].warps) continue;
    use_target("scalar");
    const Guarded expected = warped(image, program.passes[0], workspace, field);
    expected.add_to(digest);
    checks.expect(expected.intact(), what + " writes beside its canvas");
    check_pixels_of(image, program.passes[0], field, expected, what, checks);
    for (const char* const target : targets()) {
      use_target(target);
      checks.expect(warped(image, program.passes[0], workspace, field) == expected, what + ": " + target + " differs");
    }
  }
}

}  // namespace headrace::tests
