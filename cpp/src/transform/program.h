// SPDX-License-Identifier: Apache-2.0
// Folds operations with nothing random left in them into passes; program.cpp has the rules.
#pragma once

#include <cstdint>

#include "headrace/transform.h"
#include "transform/warp/operations.h"

namespace headrace {

inline constexpr std::uint32_t kMaxSide = (1U << 24) - 1;  // sums stay far from overflow, areas are exact doubles

struct Size {
  std::uint32_t height, width;
};

struct Window {
  std::uint32_t top, left, height, width;
};

struct Edges {
  std::uint32_t left, top, right, bottom;
};

class Composer {
 public:
  Composer(Program& program, Size size) noexcept;

  // Of the picture as the operations so far have made it. What follows speaks of that picture.
  std::uint32_t height() const noexcept { return program_.height(); }
  std::uint32_t width() const noexcept { return program_.width(); }

  Status crop(Window window) noexcept;
  Status resize(Size size, Filter filter, bool antialias) noexcept;
  Status pad(Edges edges, Border border, double fill) noexcept;
  Status color(ColorStep step) noexcept;
  // A mix: the picture so far is kept. Each branch begins with it, in a pass of its own, and must keep its size. What
  // follows the mix begins another pass.
  void begin_mix(double weight) noexcept;
  Status begin_branch() noexcept;
  Status end_branch(double weight) noexcept;
  Status end_mix() noexcept;

  Status warp(const WarpStep& step) noexcept;
  void flip_rows() noexcept { pass().rows.flipped = !pass().rows.flipped; }
  void flip_columns() noexcept { pass().columns.flipped = !pass().columns.flipped; }

 private:
  Pass& pass() noexcept { return program_.passes[program_.pass_count - 1]; }
  void append(Size size) noexcept;
  Status begin_pass() noexcept;
  bool can_resize(Size size, Filter filter) noexcept;
  bool can_pad(Edges edges, Border border, double fill) noexcept;
  // Of a pass that warps, in warp/compose.cpp.
  bool can_resize_warp(Size size) noexcept;
  bool can_pad_warp(Border border, double fill) noexcept;
  void resize_warp(Size size, Filter filter) noexcept;
  void move_canvas(const Matrix& map, Size size) noexcept;
  void add_gates() noexcept;
  void fold_flips() noexcept;
  bool can_follow(const WarpStep& step) noexcept;
  bool can_absorb(const WarpFill& fill) noexcept;
  void absorb() noexcept;
  void bend(const Elastic& elastic) noexcept;

  Program& program_;
  Size kept_{};  // size of the picture that a mix has kept
};

}  // namespace headrace
