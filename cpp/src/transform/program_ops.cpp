// SPDX-License-Identifier: Apache-2.0
// What each operation does, as torchvision does it: the draws that it makes, and the crops, resizes, pads, flips and
// colors that come of them. spec/recipe.md says which number of which block decides what.
#include <algorithm>
#include <cmath>

#include "transform/control.h"
#include "transform/draws.h"
#include "transform/augmix.h"
#include "transform/photometric/operations.h"
#include "transform/fit.h"
#include "transform/program.h"

namespace headrace {
namespace {

constexpr int kAttempts = 10;

constexpr Status bad(const char* what) noexcept { return {Code::bad_argument, what}; }

// Half the difference of two sides, rounded as torchvision does: halves to the even number.
std::uint32_t half(std::uint32_t difference) noexcept {
  const std::uint32_t down = difference / 2;
  return difference % 2 == 1 && down % 2 == 1 ? down + 1 : down;
}

std::uint32_t missing(std::uint32_t wanted, std::uint32_t present) noexcept {
  return wanted > present ? wanted - present : 0;
}

// Applies one operation after another: reads its parameters, draws what is random.
class Interpreter {
 public:
  Interpreter(Composer& composer, const DrawKey& key) noexcept : composer_(composer), key_(key) {}

  // Operations [begin, end) of the list. The recursion ends: check_ops limits the depth.
  Status run(std::span<const Op> ops, std::size_t begin, std::size_t end) noexcept {
    for (std::size_t k = begin; k < end; k += 1 + body_length(ops[k]))
      if (const Status status = run_op(ops, k); !status) return status;
    return {};
  }

 private:
  Status run_op(std::span<const Op> ops, std::size_t k) noexcept {
    const Op& op = ops[k];
    number_ = static_cast<std::uint16_t>(k);
    const std::size_t body = k + 1, length = body_length(op);
    const auto& p = op.parameters;
    switch (op.kind) {
      case OpKind::resize:
        return composer_.resize(p[0] == 1 ? size_at(op, 1) : by_shorter_side(integer(p[1])), filter_at(op, 3),
                                p[4] == 1);
      case OpKind::center_crop:
        return center_crop(size_at(op, 0));
      case OpKind::random_crop:
        return random_crop(op);
      case OpKind::random_resized_crop:
        return random_resized_crop(op);
      case OpKind::horizontal_flip:
        if (happens(p[0])) composer_.flip_columns();
        return {};
      case OpKind::vertical_flip:
        if (happens(p[0])) composer_.flip_rows();
        return {};
      case OpKind::pad:
        return composer_.pad({integer(p[0]), integer(p[1]), integer(p[2]), integer(p[3])}, border_at(op, 5), p[4]);
      case OpKind::color_jitter:
        return color_jitter(op);
      case OpKind::grayscale:
        return happens(p[0]) ? composer_.color({ColorKind::grayscale, p[1]}) : Status{};
      case OpKind::random_erasing:
        return {};  // works on the finished image (erase.cpp)
      case OpKind::apply:
        return happens(p[0]) ? run(ops, body, body + length) : Status{};
      case OpKind::choice:
        return run_op(ops, body + picked_branch(ops.subspan(body, length), drawn(0)[0]));
      case OpKind::order:
        return run_in_order(ops, body, length);
      case OpKind::branch:
        return run(ops, body, body + length);
      case OpKind::affine:
      case OpKind::affine_level:
      case OpKind::elastic:
        return warp(op);
      case OpKind::perspective:
        return happens(p[0]) ? warp(op) : Status{};
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
      case OpKind::jpeg: {
        ColorStep step{};
        return photometric_step(op, key_, number_, step) ? composer_.color(step) : Status{};
      }
      case OpKind::mix:
        return run_mix(ops, body, length);
      case OpKind::scale_jitter:
      case OpKind::shortest_size:
      case OpKind::letterbox:
      case OpKind::zoom_out:
        return fit(composer_, op, drawn(0));
    }
    return bad("there is no such operation");
  }

  Status run_in_order(std::span<const Op> ops, std::size_t body, std::size_t length) noexcept {
    Branches branches = branches_of(ops.subspan(body, length));
    std::array<std::uint32_t, 4> words{};
    for (std::uint32_t j = 0; j + 1 < branches.count; ++j) {
      if (j % 4 == 0) words = drawn(static_cast<int>(j / 4));
      std::swap(branches.at[j], branches.at[j + below(words[j % 4], branches.count - j)]);
    }
    for (std::uint32_t j = 0; j < branches.count; ++j)
      if (const Status status = run_op(ops, body + branches.at[j]); !status) return status;
    return {};
  }

  Status run_mix(std::span<const Op> ops, std::size_t body, std::size_t length) noexcept {
    const Branches branches = branches_of(ops.subspan(body, length));
    const MixWeights weights = draw_mix_weights(key_, number_, ops[body - 1].parameters[0], branches.count);
    composer_.begin_mix(weights.kept);
    for (std::uint32_t j = 0; j < branches.count; ++j) {
      if (const Status status = composer_.begin_branch(); !status) return status;
      if (const Status status = run_op(ops, body + branches.at[j]); !status) return status;
      if (const Status status = composer_.end_branch(weights.branches[j]); !status) return status;
    }
    return composer_.end_mix();
  }

  static std::uint32_t integer(double x) noexcept { return static_cast<std::uint32_t>(x); }
  static Size size_at(const Op& op, std::size_t k) noexcept {
    return {integer(op.parameters[k]), integer(op.parameters[k + 1])};
  }
  static Filter filter_at(const Op& op, std::size_t k) noexcept { return static_cast<Filter>(op.parameters[k]); }
  static Border border_at(const Op& op, std::size_t k) noexcept { return static_cast<Border>(op.parameters[k]); }

  std::array<std::uint32_t, 4> drawn(int block) const noexcept {
    return draw(key_, number_, static_cast<std::uint16_t>(block));
  }
  bool happens(double probability) const noexcept { return unit(drawn(0)[0]) < probability; }

  Size by_shorter_side(std::uint32_t side) const noexcept {
    const std::uint64_t height = composer_.height(), width = composer_.width();
    const auto scaled = [side](std::uint64_t longer, std::uint64_t shorter) {
      return static_cast<std::uint32_t>(std::min<std::uint64_t>(side * longer / shorter, kMaxSide + 1));
    };
    return height <= width ? Size{side, scaled(width, height)} : Size{scaled(height, width), side};
  }

  Status center_crop(Size size) noexcept {
    const std::uint32_t down = missing(size.height, composer_.height()),
                        across = missing(size.width, composer_.width());
    if (const Status status =
            composer_.pad({across / 2, down / 2, (across + 1) / 2, (down + 1) / 2}, Border::constant, 0);
        !status)
      return status;
    return composer_.crop(
        {half(composer_.height() - size.height), half(composer_.width() - size.width), size.height, size.width});
  }

  Status random_crop(const Op& op) noexcept {
    const Size size = size_at(op, 0);
    const std::uint32_t down = missing(size.height, composer_.height()),
                        across = missing(size.width, composer_.width());
    if (down + across > 0) {
      if (op.parameters[2] == 0) return bad("the crop is larger than the image; resize it first, or set pad_if_needed");
      if (const Status status = composer_.pad({across, down, across, down}, border_at(op, 4), op.parameters[3]);
          !status)
        return status;
    }
    const auto words = drawn(0);
    return composer_.crop({below(words[0], composer_.height() - size.height + 1),
                           below(words[1], composer_.width() - size.width + 1), size.height, size.width});
  }

  Status random_resized_crop(const Op& op) noexcept {
    const auto& p = op.parameters;
    if (const Status status = composer_.crop(random_window(p[2], p[3], p[4], p[5])); !status) return status;
    return composer_.resize(size_at(op, 0), filter_at(op, 6), p[7] == 1);
  }

  Window random_window(double min_scale, double max_scale, double min_ratio, double max_ratio) const noexcept {
    const double height = composer_.height(), width = composer_.width();
    const double from = logarithm(min_ratio), to = logarithm(max_ratio);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const auto words = drawn(attempt);
      const double area = height * width * uniform(words[0], min_scale, max_scale);
      const double ratio = exponential(uniform(words[1], from, to));
      const double w = round_half_even(std::sqrt(area * ratio)), h = round_half_even(std::sqrt(area / ratio));
      if (w >= 1 && w <= width && h >= 1 && h <= height)
        return {below(words[2], integer(height - h) + 1), below(words[3], integer(width - w) + 1), integer(h),
                integer(w)};
    }
    return central_window(min_ratio, max_ratio);
  }

  // The largest one in the middle of the image whose ratio is allowed.
  Window central_window(double min_ratio, double max_ratio) const noexcept {
    std::uint32_t height = composer_.height(), width = composer_.width();
    const double ratio = static_cast<double>(width) / height;
    if (ratio < min_ratio) height = integer(std::max(1.0, round_half_even(width / min_ratio)));
    if (ratio > max_ratio) width = integer(std::max(1.0, round_half_even(height * max_ratio)));
    return {(composer_.height() - height) / 2, (composer_.width() - width) / 2, height, width};
  }

  Status warp(const Op& op) noexcept {
    const auto& p = op.parameters;
    const std::uint32_t height = composer_.height(), width = composer_.width();
    WarpStep step;
    Status status;
    if (op.kind == OpKind::affine)
      status = affine_step(p, height, width, drawn(0), drawn(1), step);
    else if (op.kind == OpKind::affine_level)
      status = affine_level_step(p, height, width, drawn(0), step);
    else if (op.kind == OpKind::elastic)
      status = elastic_step(p, height, width, drawn(1), step);
    else
      status = perspective_step(p, height, width, drawn(1), drawn(2), step);
    return status ? composer_.warp(step) : status;
  }

  Status color_jitter(const Op& op) noexcept {
    constexpr std::array kKinds = {ColorKind::brightness, ColorKind::contrast, ColorKind::saturation, ColorKind::hue};
    std::array<std::size_t, 4> order = {0, 1, 2, 3};
    const auto factors = drawn(0), shuffle = drawn(1);
    for (std::uint32_t k = 0; k < 3; ++k) std::swap(order[k], order[k + below(shuffle[k], 4 - k)]);
    for (const std::size_t k : order) {
      const double from = op.parameters[2 * k], to = op.parameters[2 * k + 1];
      const double neutral = kKinds[k] == ColorKind::hue ? 0 : 1;
      if (from == neutral && to == neutral) continue;
      if (const Status status = composer_.color({kKinds[k], uniform(factors[k], from, to)}); !status) return status;
    }
    return {};
  }

  Composer& composer_;
  const DrawKey& key_;
  std::uint16_t number_ = 0;
};

}  // namespace

Status make_program(std::span<const Op> ops, std::uint32_t height, std::uint32_t width, const DrawKey& key,
                    Program& program) noexcept {
  if (height < 1 || width < 1 || height > kMaxSide || width > kMaxSide)
    return bad("the image is empty, or larger than 16777215 pixels on a side");
  Composer composer(program, {height, width});
  Interpreter interpreter(composer, key);
  return interpreter.run(ops, 0, ops.size());
}

}  // namespace headrace
