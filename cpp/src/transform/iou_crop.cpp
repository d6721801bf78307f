// SPDX-License-Identifier: Apache-2.0
// RandomIoUCrop as torchvision does it: windows are drawn until one overlaps a box as much as was drawn. Boxes are
// moved to the picture that the operations so far have made, one at a time, so that no memory is needed for them.
#include <algorithm>
#include <cmath>
#include <memory>
#include <new>

#include "transform/boxes.h"
#include "transform/draws.h"

namespace headrace {
namespace {

// torchvision draws options without end. With its own ones, 50 rounds without "leave the image as it is" happen once in
// 2200 times.
constexpr std::uint32_t kRounds = 50;
// More are not considered, so that a forged dataset cannot make a sample take minutes.
constexpr std::size_t kMaxBoxes = 4096;

constexpr Status bad(const char* what) noexcept { return {Code::bad_argument, what}; }

struct Span {
  double from, to;
};

struct Box {
  Span x, y;
};

// As `_along` of headrace/transforms/boxes.py: moved, cut to what is shown, flipped.
Span moved(Span span, const Axis& axis) noexcept {
  const double scale = static_cast<double>(axis.resized) / axis.size;
  const double low = std::max(0, axis.offset);
  const double high = std::max<double>(
      low, static_cast<double>(std::min<std::int64_t>(axis.canvas, std::int64_t{axis.offset} + axis.resized)));
  const auto place = [&](double at) {
    const double there = (at - axis.start) * scale + axis.offset;
    return there < low ? low : there > high ? high : there;  // what is not a number stays it
  };
  const Span there{place(span.from), place(span.to)};
  if (!axis.flipped) return there;
  return {axis.canvas - there.to, axis.canvas - there.from};
}

Box moved(const BoxCorners& corners, const Program& program) noexcept {
  Box box{{corners[0], corners[2]}, {corners[1], corners[3]}};
  bool in_branch = false;
  for (std::uint32_t i = 0; i < program.pass_count; ++i) {
    const Pass& pass = program.passes[i];
    in_branch = pass.input == PassInput::kept || (in_branch && pass.input == PassInput::previous);
    if (in_branch) continue;  // the branches of a mix do not move the picture as a whole
    box = {moved(box.x, pass.columns), moved(box.y, pass.rows)};
  }
  return box;
}

bool has_center(const Window& w, const Box& box) noexcept {
  const double x = 0.5 * (box.x.from + box.x.to), y = 0.5 * (box.y.from + box.y.to);
  return w.left < x && x < w.left + w.width && w.top < y && y < w.top + w.height;
}

double overlap(const Window& w, const Box& box) noexcept {
  const double right = w.left + w.width, bottom = w.top + w.height;
  const double across = std::max(0.0, std::min(right, box.x.to) - std::max<double>(w.left, box.x.from));
  const double down = std::max(0.0, std::min(bottom, box.y.to) - std::max<double>(w.top, box.y.from));
  const double both = across * down;
  const double all = (box.x.to - box.x.from) * (box.y.to - box.y.from) + static_cast<double>(w.width) * w.height - both;
  return both / all;
}

// Whether at least one box has its center in the window, and one of these overlaps it enough.
bool suits(const Window& window, double min_overlap, std::span<const Box> boxes) noexcept {
  return std::any_of(boxes.begin(), boxes.end(),
                     [&](const Box& box) { return has_center(window, box) && overlap(window, box) >= min_overlap; });
}

}  // namespace

Status check_iou_crop(const Parameters& p) noexcept {
  // Each comparison is false for what is not a number.
  const auto whole = [](double x, double low, double high) { return x >= low && x <= high && std::floor(x) == x; };
  if (!(p[0] > 0 && p[0] <= p[1] && p[1] <= 1)) return bad("iou_crop: scales must be a range within (0, 1]");
  if (!(p[2] >= 1e-3 && p[2] <= p[3] && p[3] <= 1e3))
    return bad("iou_crop: aspect ratios must be a range within [0.001, 1000]");
  if (!whole(p[4], 1, kMaxIouTrials)) return bad("iou_crop: trials must be in [1, 1000]");
  if (!whole(p[5], 1, kMaxIouOptions)) return bad("iou_crop: there must be 1 to 10 overlaps to choose from");
  for (std::size_t k = 0; k < static_cast<std::size_t>(p[5]); ++k)
    if (!(p[6 + k] >= 0 && p[6 + k] <= 1e6)) return bad("iou_crop: every overlap must be at least 0");
  return {};
}

Status iou_crop(Composer& composer, const Op& op, const DrawKey& key, std::uint16_t number,
                std::uint8_t* inside) noexcept {
  const auto& p = op.parameters;
  const Program& program = composer.program();
  for (std::uint32_t i = 0; i < program.pass_count; ++i)
    if (program.passes[i].warps) return bad("RandomIoUCrop must come before rotations and other warps");
  if (key.boxes.empty()) return {};
  const std::size_t considered = std::min(key.boxes.size(), kMaxBoxes);
  const std::unique_ptr<Box[]> memory(new (std::nothrow) Box[considered]);
  if (!memory) return {Code::no_memory, "no memory for the boxes of a sample", 0, -1};
  std::transform(key.boxes.begin(), key.boxes.begin() + static_cast<std::ptrdiff_t>(considered), memory.get(),
                 [&](const BoxCorners& corners) { return moved(corners, program); });
  const std::span<const Box> boxes(memory.get(), considered);
  const auto trials = static_cast<std::uint32_t>(p[4]);
  const double height = composer.height(), width = composer.width();
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint32_t block = round * (trials + 1);
    const auto words = [&](std::uint32_t k) { return draw(key, number, static_cast<std::uint16_t>(block + k)); };
    const double min_overlap = p[6 + below(words(0)[0], static_cast<std::uint32_t>(p[5]))];
    if (min_overlap >= 1) return {};
    for (std::uint32_t trial = 1; trial <= trials; ++trial) {
      const auto drawn = words(trial);
      const auto w = static_cast<std::uint32_t>(width * uniform(drawn[0], p[0], p[1]));
      const auto h = static_cast<std::uint32_t>(height * uniform(drawn[1], p[0], p[1]));
      if (w == 0 || h == 0) continue;
      const double ratio = static_cast<double>(w) / h;
      if (!(ratio >= p[2] && ratio <= p[3])) continue;
      const Window window{static_cast<std::uint32_t>((height - h) * unit(drawn[3])),
                          static_cast<std::uint32_t>((width - w) * unit(drawn[2])), h, w};
      if (!suits(window, min_overlap, boxes)) continue;
      for (std::size_t k = 0; inside && k < key.boxes.size(); ++k)
        inside[k] = has_center(window, moved(key.boxes[k], program));
      return composer.crop(window);
    }
  }
  return {};
}

}  // namespace headrace
