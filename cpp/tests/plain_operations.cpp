// SPDX-License-Identifier: Apache-2.0
// See the header.
#include "plain_operations.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace headrace::tests {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = (a ^ std::rotl(b, 32)) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 29)) * 0xBF58476D1CE4E5B9U;
  return z ^ (z >> 32);
}

// A picture from a rule that gives its pixel at a row and a column.
template <class F>
Plain paint(std::uint32_t height, std::uint32_t width, const F& rule) {
  Plain out{height, width, {}};
  for (std::uint32_t y = 0; y < height; ++y)
    for (std::uint32_t x = 0; x < width; ++x) out.pixels.push_back(rule(y, x));
  return out;
}

Plain crop(const Plain& in, std::uint32_t top, std::uint32_t left, std::uint32_t height, std::uint32_t width) {
  return paint(height, width, [&](auto y, auto x) { return in.at(top + y, left + x); });
}

Plain flip(const Plain& in, bool rows, bool columns) {
  return paint(in.height, in.width,
               [&](auto y, auto x) { return in.at(rows ? in.height - 1 - y : y, columns ? in.width - 1 - x : x); });
}

Plain resize(const Plain& in, std::uint32_t height, std::uint32_t width) {
  const auto nearest = [](std::uint64_t i, std::uint64_t from, std::uint64_t to) {
    return static_cast<std::uint32_t>((2 * i + 1) * from / (2 * to));
  };
  return paint(height, width,
               [&](auto y, auto x) { return in.at(nearest(y, in.height, height), nearest(x, in.width, width)); });
}

// Which pixel of n shows at place i, which may lie outside; -1 for the fill.
std::int64_t source_of(std::int64_t i, std::int64_t n, Border border) {
  if (i >= 0 && i < n) return i;
  if (border == Border::constant) return -1;
  if (border == Border::edge || n == 1) return std::clamp<std::int64_t>(i, 0, n - 1);
  const std::int64_t period = 2 * (n - 1), folded = ((i % period) + period) % period;
  return std::min(folded, period - folded);
}

// A canvas whose place (y, x) shows pixel (y - down, x - across) of the picture.
Plain place(const Plain& in, std::int64_t down, std::int64_t across, std::uint32_t height, std::uint32_t width,
            Border border, double fill) {
  return paint(height, width, [&](auto y, auto x) {
    const std::int64_t from_y = source_of(y - down, in.height, border),
                       from_x = source_of(x - across, in.width, border);
    if (from_y < 0 || from_x < 0) return mix(std::bit_cast<std::uint64_t>(fill), 1);
    return in.at(static_cast<std::uint32_t>(from_y), static_cast<std::uint32_t>(from_x));
  });
}

// As contrast does, each pixel changes with all others; their places do not matter.
Plain color(const Plain& in, ColorStep step) {
  std::uint64_t sum = 0;
  for (const std::uint64_t pixel : in.pixels) sum += mix(pixel, 2);
  const std::uint64_t how = mix(std::bit_cast<std::uint64_t>(step.value), static_cast<std::uint64_t>(step.kind) + sum);
  return paint(in.height, in.width, [&](auto y, auto x) { return mix(in.at(y, x), how); });
}

std::uint32_t position(std::uint32_t drawn, std::uint32_t places) {
  return static_cast<std::uint32_t>(std::uint64_t{drawn} * places >> 32);
}

std::uint32_t missing(std::uint32_t wanted, std::uint32_t present) { return std::max(wanted, present) - present; }

Plain center_crop(const Plain& in, std::uint32_t height, std::uint32_t width) {
  const std::uint32_t down = missing(height, in.height), across = missing(width, in.width);
  const Plain padded =
      place(in, down / 2, across / 2, in.height + down, in.width + across, Border::constant, 0);  // the odd one after
  return crop(padded, static_cast<std::uint32_t>(std::nearbyint((padded.height - height) / 2.0)),
              static_cast<std::uint32_t>(std::nearbyint((padded.width - width) / 2.0)), height, width);
}

Plain random_resized_crop(const Plain& in, const Parameters& p, const DrawKey& key, std::uint16_t number) {
  std::uint32_t top = 0, left = 0, height = in.height, width = in.width;
  bool found = false;
  for (std::uint16_t attempt = 0; attempt < 10 && !found; ++attempt) {
    const auto words = draw(key, number, attempt);
    const double area = double(in.height) * in.width * (p[2] + (p[3] - p[2]) * (words[0] * 0x1p-32));
    const double ratio = std::exp(std::log(p[4]) + (std::log(p[5]) - std::log(p[4])) * (words[1] * 0x1p-32));
    const double w = std::nearbyint(std::sqrt(area * ratio)), h = std::nearbyint(std::sqrt(area / ratio));
    if (w < 1 || h < 1 || w > in.width || h > in.height) continue;
    found = true;
    height = static_cast<std::uint32_t>(h);
    width = static_cast<std::uint32_t>(w);
    top = position(words[2], in.height - height + 1);
    left = position(words[3], in.width - width + 1);
  }
  if (!found) {
    const double ratio = static_cast<double>(in.width) / in.height;
    if (ratio < p[4]) height = static_cast<std::uint32_t>(std::max(1.0, std::nearbyint(in.width / p[4])));
    if (ratio > p[5]) width = static_cast<std::uint32_t>(std::max(1.0, std::nearbyint(in.height * p[5])));
    top = (in.height - height) / 2;
    left = (in.width - width) / 2;
  }
  return resize(crop(in, top, left, height, width), static_cast<std::uint32_t>(p[0]), static_cast<std::uint32_t>(p[1]));
}

Plain color_jitter(Plain picture, const Parameters& p, const DrawKey& key, std::uint16_t number) {
  std::vector<std::uint32_t> left = {0, 1, 2, 3};
  const auto factors = draw(key, number, 0), order = draw(key, number, 1);
  for (std::uint32_t k = 0; k < 4; ++k) {
    const std::uint32_t at = k < 3 ? position(order[k], 4 - k) : 0, kind = left[at];
    left[at] = left[0];
    left.erase(left.begin());
    const double from = p[2 * kind], to = p[2 * kind + 1], neutral = kind == 3 ? 0 : 1;
    if (from == neutral && to == neutral) continue;
    picture = color(picture, {static_cast<ColorKind>(kind), from + (to - from) * (factors[kind] * 0x1p-32)});
  }
  return picture;
}

bool apply(const Op& op, const DrawKey& key, std::uint16_t number, Plain& picture) {
  const auto& p = op.parameters;
  const auto whole = [&p](std::size_t k) { return static_cast<std::uint32_t>(p[k]); };
  const auto words = draw(key, number, 0);
  const bool happens = words[0] * 0x1p-32 < p[0];
  switch (op.kind) {
    case OpKind::resize: {
      const std::uint32_t shorter = std::min(picture.height, picture.width);
      const auto scaled = [&](std::uint32_t side) { return std::uint32_t(double(p[1]) * side / shorter); };
      picture = p[0] == 1 ? resize(picture, whole(1), whole(2))
                          : resize(picture, scaled(picture.height), scaled(picture.width));
      return true;
    }
    case OpKind::center_crop:
      picture = center_crop(picture, whole(0), whole(1));
      return true;
    case OpKind::random_crop: {
      const std::uint32_t down = missing(whole(0), picture.height), across = missing(whole(1), picture.width);
      if (down + across > 0 && p[2] == 0) return false;
      picture = place(picture, down, across, picture.height + 2 * down, picture.width + 2 * across,
                      static_cast<Border>(p[4]), p[3]);
      picture = crop(picture, position(words[0], picture.height - whole(0) + 1),
                     position(words[1], picture.width - whole(1) + 1), whole(0), whole(1));
      return true;
    }
    case OpKind::random_resized_crop:
      picture = random_resized_crop(picture, p, key, number);
      return true;
    case OpKind::horizontal_flip:
      picture = flip(picture, false, happens);
      return true;
    case OpKind::vertical_flip:
      picture = flip(picture, happens, false);
      return true;
    case OpKind::pad:
      picture = place(picture, whole(1), whole(0), picture.height + whole(1) + whole(3),
                      picture.width + whole(0) + whole(2), static_cast<Border>(p[5]), p[4]);
      return true;
    case OpKind::color_jitter:
      picture = color_jitter(picture, p, key, number);
      return true;
    case OpKind::grayscale:
      if (happens) picture = color(picture, {ColorKind::grayscale, p[1]});
      return true;
    case OpKind::random_erasing:
      return true;  // of the finished image
    default:
      return false;
  }
}

bool apply_all(std::span<const Op> ops, std::size_t first, const DrawKey& key, Plain& picture);

// The branches of a body: where each begins in it, its weight and its operations.
struct Branch {
  std::size_t at;
  double weight;
  std::span<const Op> ops;
};

std::vector<Branch> branches(std::span<const Op> body) {
  std::vector<Branch> all;
  for (std::size_t at = 0; at < body.size(); at += 1 + all.back().ops.size())
    all.push_back({at, body[at].parameters[0], body.subspan(at + 1, static_cast<std::size_t>(body[at].parameters[1]))});
  return all;
}

bool apply_branch(const Branch& branch, std::size_t body, const DrawKey& key, Plain& picture) {
  return apply_all(branch.ops, body + branch.at + 1, key, picture);
}

bool apply_choice(std::span<const Op> ops, std::size_t body, const DrawKey& key, Plain& picture) {
  const std::vector<Branch> all = branches(ops);
  double total = 0;
  for (const Branch& branch : all) total += branch.weight;
  double left = draw(key, static_cast<std::uint16_t>(body - 1), 0)[0] * 0x1p-32 * total;
  for (const Branch& branch : all) {
    if (left < branch.weight) return apply_branch(branch, body, key, picture);
    left -= branch.weight;
  }
  return false;
}

bool apply_order(std::span<const Op> ops, std::size_t body, const DrawKey& key, Plain& picture) {
  std::vector<Branch> left = branches(ops);
  const auto n = static_cast<std::uint32_t>(left.size());
  for (std::uint32_t j = 0; j < n; ++j) {
    const auto words = draw(key, static_cast<std::uint16_t>(body - 1), static_cast<std::uint16_t>(j / 4));
    const std::uint32_t at = j + (j + 1 < n ? position(words[j % 4], n - j) : 0);
    std::swap(left[j], left[at]);
    if (!apply_branch(left[j], body, key, picture)) return false;
  }
  return true;
}

bool apply_all(std::span<const Op> ops, std::size_t first, const DrawKey& key, Plain& picture) {
  for (std::size_t k = 0; k < ops.size(); ++k) {
    const Op& op = ops[k];
    const auto number = static_cast<std::uint16_t>(first + k);
    const bool control = op.kind == OpKind::apply || op.kind == OpKind::choice || op.kind == OpKind::order;
    if (!control) {
      if (!apply(op, key, number, picture)) return false;
      continue;
    }
    const auto body = ops.subspan(k + 1, static_cast<std::size_t>(op.parameters[op.kind == OpKind::apply ? 1 : 0]));
    const std::size_t at = first + k + 1;
    const bool skipped = op.kind == OpKind::apply && draw(key, number, 0)[0] * 0x1p-32 >= op.parameters[0];
    if (!skipped && !(op.kind == OpKind::apply    ? apply_all(body, at, key, picture)
                      : op.kind == OpKind::choice ? apply_choice(body, at, key, picture)
                                                  : apply_order(body, at, key, picture)))
      return false;
    k += body.size();
  }
  return true;
}

}  // namespace

Plain make_plain(std::uint32_t height, std::uint32_t width) {
  return paint(height, width, [](auto y, auto x) { return mix(std::uint64_t{y} << 32 | x, 3); });
}

bool apply_operations(std::span<const Op> ops, const DrawKey& key, Plain& picture) {
  return apply_all(ops, 0, key, picture);
}

Plain apply_program(const Program& program, Plain picture) {
  for (std::uint32_t k = 0; k < program.pass_count; ++k) {
    const Pass& pass = program.passes[k];
    const Axis &rows = pass.rows, &columns = pass.columns;
    picture = crop(picture, rows.start, columns.start, rows.size, columns.size);
    picture = resize(picture, rows.resized, columns.resized);
    picture = place(picture, rows.offset, columns.offset, rows.canvas, columns.canvas, pass.border, pass.fill);
    for (std::uint32_t c = 0; c < pass.color_count; ++c) picture = color(picture, pass.colors[c]);
    picture = flip(picture, rows.flipped, columns.flipped);
  }
  return picture;
}

}  // namespace headrace::tests
