// SPDX-License-Identifier: Apache-2.0
// Operations of every kind from a fuzzer's bytes, with parameters of their whole ranges, the limits more often than
// not.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include "headrace/transform.h"
#include "picture.h"

namespace headrace::fuzz {

// Parameters as an operation wants them, drawn one after the other.
class Chooser {
 public:
  explicit Chooser(Reader& reader) : reader_(reader) {}

  double whole(std::uint32_t n) { return reader_.byte() % n; }
  double share() { return reader_.byte() / 255.0; }
  double side() { return 1.0 + (reader_.byte() % 8 == 0 ? reader_.pair() % 400 : reader_.byte() % 80); }
  double odd(std::uint32_t highest) { return 1.0 + 2 * (reader_.byte() % ((highest + 1) / 2)); }
  // One end of the range, or anything in it.
  double between(double from, double to) {
    const std::uint32_t choice = reader_.byte() % 4;
    return choice == 0 ? from : choice == 1 ? to : from + (to - from) * (reader_.pair() / 65535.0);
  }
  double factor(double highest) { return std::exp(between(-std::log(highest), std::log(highest))); }
  void range(Op& op, std::size_t k, double a, double b) {
    op.parameters[k] = a < b ? a : b;
    op.parameters[k + 1] = a < b ? b : a;
  }
  void level(Op& op, std::size_t k, double from, double to) {
    op.parameters[k] = whole(2) * 2;  // 0 uniform, 2 whole
    range(op, k + 1, std::floor(between(from, to)), std::floor(between(from, to)));
    op.parameters[k + 3] = from;
    op.parameters[k + 4] = to;
    op.parameters[k + 5] = whole(2);
    op.parameters[k + 7] = 1;
  }
  double warp_filter() { return whole(3) == 0 ? 0 : 2 + whole(2); }
  double fill() {
    return pack_fill({static_cast<std::int32_t>(whole(256)), -32768, static_cast<std::int32_t>(between(0, 65535))});
  }

 private:
  Reader& reader_;
};

inline Op warp_operation(Chooser& c, OpKind kind) {
  Op op{kind};
  auto& p = op.parameters;
  switch (kind) {
    case OpKind::affine: {
      c.range(op, 0, c.between(-36000, 36000), c.between(-360, 360));
      const bool pixels = c.whole(2) == 0;
      const double highest = pixels ? 65535 : 1;
      for (const std::size_t k : {2, 4}) c.range(op, k, c.between(-highest, highest), c.between(-0.5, 0.5));
      c.range(op, 6, c.factor(c.whole(4) == 0 ? 1000 : 2), c.factor(2));
      for (const std::size_t k : {8, 10}) c.range(op, k, c.between(-89, 89), c.between(-20, 20));
      p[12] = c.warp_filter() + (pixels ? kWarpPixels : 0) + kWarpExpand * c.whole(2) + kWarpCenter * c.whole(2);
      p[13] = c.fill();
      p[14] = c.between(-65535, 65535);
      p[15] = c.between(-100, 100);
      return op;
    }
    case OpKind::affine_level:
      p[0] = c.whole(7);
      c.level(op, 1, -50, 50);
      p[9] = (c.whole(4) == 0 ? 4 : c.warp_filter()) + kWarpCorner * c.whole(2);
      p[10] = c.fill();
      return op;
    case OpKind::perspective:
      op.parameters = {c.share(), c.share(), c.warp_filter(), c.fill()};
      return op;
    default: {
      const double highest = c.whole(4) == 0 ? 1e5 : 100;
      op.parameters = {c.between(0, highest), c.between(0, highest), c.factor(1000),
                       c.factor(30),          c.warp_filter(),       c.fill()};
      p[2] = std::max(p[2], 1.0);
      p[3] = std::max(p[3], 1.0);
      return op;
    }
  }
}

inline Op pixel_operation(Chooser& c, OpKind kind) {
  Op op{kind};
  auto& p = op.parameters;
  p[0] = c.whole(4) == 0 ? c.share() : 1;
  switch (kind) {
    case OpKind::posterize:
      p[1] = c.whole(2);
      c.level(op, 2, 0, 16);
      return op;
    case OpKind::solarize:
      p[1] = c.whole(3);
      c.level(op, 2, -32768, 65536);
      return op;
    case OpKind::solarize_add:
      c.level(op, 1, 0, 255);
      return op;
    case OpKind::enhance:
      p[1] = c.whole(4);
      p[2] = c.share();
      c.level(op, 4, -3, 20);
      return op;
    case OpKind::gaussian_blur:
      p = {c.odd(255), c.odd(255)};
      c.range(op, 2, c.between(0.001, 1000), c.between(0.1, 5));
      return op;
    case OpKind::gaussian_noise:
      p = {c.between(-1, 1), c.between(0, 10)};
      return op;
    case OpKind::jpeg:
      c.range(op, 0, 1 + c.whole(100), 1 + c.whole(100));
      return op;
    case OpKind::color_jitter:
      for (const std::size_t k : {0, 2, 4}) c.range(op, k, c.between(0, 50), c.between(0, 2));
      c.range(op, 6, c.between(-0.5, 0.5), c.between(-0.5, 0.5));
      return op;
    case OpKind::grayscale:
      p = {c.whole(2) == 0 ? 1 : c.share(), 3};
      return op;
    default:
      return op;  // invert, autocontrast, equalize, permute_channels
  }
}

inline Op size_operation(Chooser& c, OpKind kind) {
  const double levels[] = {0, 7, 255, -32768, 65535};
  const double fill = levels[static_cast<std::size_t>(c.whole(5))];
  Op op{kind};
  auto& p = op.parameters;
  switch (kind) {
    case OpKind::resize:
      p = {c.whole(2), c.side(), c.side(), c.whole(4), c.whole(2)};
      return op;
    case OpKind::center_crop:
      p = {c.side(), c.side()};
      return op;
    case OpKind::random_crop:
      p = {c.side(), c.side(), c.whole(8) == 0 ? 0.0 : 1.0, fill, c.whole(3)};
      return op;
    case OpKind::random_resized_crop:
      p = {c.side(), c.side(), 0.05, 1, 0.75, 4.0 / 3, c.whole(4), c.whole(2)};
      return op;
    case OpKind::pad:
      p = {c.whole(60), c.whole(9), c.whole(9), c.whole(60), fill, c.whole(3)};
      return op;
    case OpKind::scale_jitter:
      p = {c.side(), c.side()};
      c.range(op, 2, c.factor(3), c.factor(3));
      p[4] = c.whole(4);
      p[5] = c.whole(2);
      return op;
    case OpKind::shortest_size:
      p = {c.whole(2) * c.side(), c.whole(4), c.whole(2), 2, c.side(), c.side()};
      return op;
    case OpKind::letterbox:
      p = {c.side(), c.side(), c.whole(2), c.whole(2), fill, c.whole(4), c.whole(2)};
      return op;
    case OpKind::zoom_out:
      p = {c.share(), 1, 1 + c.share() * 3, fill};
      return op;
    default:
      p[0] = c.share();  // flips
      return op;
  }
}

inline Op any_erasing(Reader& reader) {
  Chooser c(reader);
  Op op{OpKind::random_erasing};
  auto& p = op.parameters;
  p[0] = c.whole(4) == 0 ? c.share() : 1;
  c.range(op, 1, c.between(1e-9, 1), c.between(1e-9, 1));
  c.range(op, 3, c.factor(1000), c.factor(3));
  c.range(op, 5, 1 + c.whole(4), 1 + c.whole(c.whole(8) == 0 ? 100 : 4));
  p[7] = c.whole(3);
  p[8] = 1 + c.whole(7);
  for (std::size_t k = 9; k < p.size(); ++k) p[k] = c.between(-1e6, 1e6);
  return op;
}

inline Op any_operation(Reader& reader) {
  static constexpr OpKind kWarps[] = {OpKind::affine, OpKind::affine_level, OpKind::perspective, OpKind::elastic};
  static constexpr OpKind kPixels[] = {
      OpKind::invert,   OpKind::posterize,    OpKind::solarize,      OpKind::solarize_add,   OpKind::autocontrast,
      OpKind::equalize, OpKind::enhance,      OpKind::gaussian_blur, OpKind::gaussian_noise, OpKind::permute_channels,
      OpKind::jpeg,     OpKind::color_jitter, OpKind::grayscale};
  static constexpr OpKind kSizes[] = {
      OpKind::resize,   OpKind::center_crop,     OpKind::random_crop,   OpKind::random_resized_crop,
      OpKind::pad,      OpKind::scale_jitter,    OpKind::shortest_size, OpKind::letterbox,
      OpKind::zoom_out, OpKind::horizontal_flip, OpKind::vertical_flip};
  Chooser c(reader);
  const std::uint32_t room = reader.byte() % 3;
  const auto pick = [&](const auto& kinds) { return kinds[reader.byte() % std::size(kinds)]; };
  Op op = room == 0   ? warp_operation(c, pick(kWarps))
          : room == 1 ? pixel_operation(c, pick(kPixels))
                      : size_operation(c, pick(kSizes));
  // One in 64 has a parameter that it must not have, perhaps.
  if (reader.byte() % 64 == 0) {
    constexpr double kLimit = std::numeric_limits<double>::infinity();
    const double values[] = {-1, 0.5, 1e300, -kLimit, kLimit, std::numeric_limits<double>::quiet_NaN(), 65536, 1e-300};
    op.parameters[reader.byte() % 16] = values[reader.byte() % 8];
  }
  return op;
}

// `n` operations, some of them control, with bodies of their own. `check_ops` judges what came of it.
inline void add_operations(Reader& reader, unsigned depth, std::uint32_t n, std::vector<Op>& ops) {
  for (std::uint32_t i = 0; i < n && ops.size() < 64; ++i) {
    const std::uint32_t choice = reader.byte() % 16;
    if (choice > 3 || depth > 2) {
      ops.push_back(any_operation(reader));
      continue;
    }
    static constexpr OpKind kControl[] = {OpKind::apply, OpKind::choice, OpKind::order, OpKind::mix};
    const OpKind kind = kControl[choice];
    const std::size_t at = ops.size();
    const bool leads = kind == OpKind::apply || kind == OpKind::mix;
    ops.push_back({kind, {leads ? 0.5 : 0}});
    const std::uint32_t branches = kind == OpKind::apply ? 0 : 1 + reader.byte() % 3;
    if (branches == 0) add_operations(reader, depth + 1, 1 + reader.byte() % 2, ops);
    for (std::uint32_t k = 0; k < branches; ++k) {
      const std::size_t branch = ops.size();
      ops.push_back({OpKind::branch, {1}});
      add_operations(reader, depth + 1, reader.byte() % 3, ops);
      ops[branch].parameters[1] = static_cast<double>(ops.size() - branch - 1);
    }
    ops[at].parameters[leads ? 1 : 0] = static_cast<double>(ops.size() - at - 1);
  }
}

}  // namespace headrace::fuzz
