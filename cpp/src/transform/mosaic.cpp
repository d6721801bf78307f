// SPDX-License-Identifier: Apache-2.0
#include "transform/mosaic.h"

#include <algorithm>
#include <cmath>

#include "transform/draws.h"

namespace headrace {
namespace {

constexpr std::uint32_t kPart = 2, kProbability = 3, kCenter = 4, kFill = 6, kFilter = 7, kAntialias = 8;

constexpr Status bad(const char* what) noexcept { return {Code::bad_argument, what}; }

// The size of an image that fits into a tile, as Ultralytics computes it.
Size fitted(const Op& op, double height, double width) noexcept {
  const auto& p = op.parameters;
  const double scale = std::min(p[0] / height, p[1] / width);
  const auto side = [](double x, double max) { return static_cast<std::uint32_t>(std::clamp(std::ceil(x), 1.0, max)); };
  return {side(height * scale, p[0]), side(width * scale, p[1])};
}

// One axis of a tile: what the canvas leaves of it. `before`: it ends at the point, else it begins there.
struct Seen {
  std::uint32_t start, size;
};

Seen seen(std::uint32_t size, std::uint32_t point, std::uint32_t canvas, bool before) noexcept {
  if (!before) return {0, std::min(size, canvas - point)};
  const std::uint32_t left = std::min(size, point);
  return {size - left, left};
}

}  // namespace

Status check_mosaic(const Parameters& p) noexcept {
  const auto whole = [](double x, double low, double high) { return x >= low && x <= high && std::floor(x) == x; };
  if (!whole(p[0], 1, 32767) || !whole(p[1], 1, 32767)) return bad("mosaic: every side must be in [1, 32767]");
  if (!whole(p[kPart], 0, static_cast<double>(MosaicPart::canvas))) return bad("mosaic: the part is unknown");
  if (!(p[kProbability] >= 0 && p[kProbability] <= 1)) return bad("mosaic: the probability must be in [0, 1]");
  if (!(p[kCenter] >= 0 && p[kCenter] <= p[kCenter + 1] && p[kCenter + 1] <= 1))
    return bad("mosaic: the center must be a range within [0, 1]");
  if (!(p[kFill] >= -32768 && p[kFill] <= 65535)) return bad("mosaic: fill must be in [-32768, 65535]");
  if (!whole(p[kFilter], 0, static_cast<double>(Filter::bicubic))) return bad("mosaic: the filter is unknown");
  if (p[kAntialias] != 0 && p[kAntialias] != 1) return bad("mosaic: antialias must be 0 or 1");
  return {};
}

bool is_mosaic_canvas(const Op& op) noexcept { return op.parameters[kPart] == static_cast<double>(MosaicPart::canvas); }

Size mosaic_canvas(const Op& op) noexcept {
  return {2 * static_cast<std::uint32_t>(op.parameters[0]), 2 * static_cast<std::uint32_t>(op.parameters[1])};
}

MosaicDraw draw_mosaic(const Op& op, const DrawKey& key, std::uint16_t number) noexcept {
  const auto& p = op.parameters;
  const auto words = draw(key, number, 0);
  const Size canvas = mosaic_canvas(op);
  const auto point = [&p](std::uint32_t word, std::uint32_t side) {
    const double at = uniform(word, p[kCenter], p[kCenter + 1]) * side;
    return std::clamp(static_cast<std::uint32_t>(at), 1U, side - 1);  // each tile shows at least one pixel
  };
  return {unit(words[0]) < p[kProbability], point(words[1], canvas.height), point(words[2], canvas.width)};
}

Window mosaic_place(const Op& op, const MosaicDraw& drawn, std::uint32_t tile, Size seen) noexcept {
  if (!drawn.happens) {
    const Size canvas = mosaic_canvas(op);
    return {(canvas.height - seen.height) / 2, (canvas.width - seen.width) / 2, seen.height, seen.width};
  }
  return {tile < 2 ? drawn.y - seen.height : drawn.y, tile % 2 == 0 ? drawn.x - seen.width : drawn.x, seen.height,
          seen.width};
}

Status mosaic(Composer& composer, const Op& op, const DrawKey& key, std::uint16_t number) noexcept {
  const auto& p = op.parameters;
  const auto part = static_cast<std::uint32_t>(p[kPart]);
  if (part == static_cast<std::uint32_t>(MosaicPart::canvas)) return {};
  const std::uint32_t tile = part % kMosaicTiles;
  const MosaicDraw drawn = draw_mosaic(op, key, number);
  const Size canvas = mosaic_canvas(op), size = fitted(op, composer.height(), composer.width());
  if (const Status status = composer.resize(size, static_cast<Filter>(p[kFilter]), p[kAntialias] == 1); !status)
    return status;
  Size left = size;
  if (drawn.happens) {
    const Seen rows = seen(size.height, drawn.y, canvas.height, tile < 2);
    const Seen columns = seen(size.width, drawn.x, canvas.width, tile % 2 == 0);
    left = {rows.size, columns.size};
    if (const Status status = composer.crop({rows.start, columns.start, rows.size, columns.size}); !status)
      return status;
  }
  if (part < static_cast<std::uint32_t>(MosaicPart::placed_tile)) return {};
  const Window place = mosaic_place(op, drawn, tile, left);
  return composer.pad(
      {place.left, place.top, canvas.width - place.left - place.width, canvas.height - place.top - place.height},
      Border::constant, p[kFill]);
}

std::array<std::uint32_t, kMosaicTiles - 1> draw_partners(const DrawKey& key, std::uint16_t number,
                                                          std::uint32_t n) noexcept {
  const auto words = draw(key, number, 1);
  return {below(words[0], n), below(words[1], n), below(words[2], n)};
}

}  // namespace headrace
