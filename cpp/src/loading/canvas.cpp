// SPDX-License-Identifier: Apache-2.0
#include "loading/canvas.h"

#include <cstring>

#include "transform/color.h"
#include "transform/mosaic.h"

namespace headrace {
namespace {

constexpr std::uint32_t kFill = 6;  // of the parameters of OpKind::mosaic

Status bad(const char* what) noexcept { return {Code::bad_argument, what, 0, -1}; }

bool same_type(const PixelType& a, const PixelType& b) noexcept {
  return a.channels == b.channels && a.depth == b.depth && a.is_signed == b.is_signed;
}

// One row is filled by the code for borders, and copied to the others.
void fill(const Picture& canvas, double level) noexcept {
  Axis rows, columns;
  rows.canvas = 1;
  columns.canvas = canvas.width;
  const Picture nothing{canvas.first, 0, 0, 0, canvas.type};
  place(nothing, 0, 0, rows, columns, Border::constant, level, canvas);
  const std::size_t bytes = std::size_t{canvas.width} * canvas.type.pixel_bytes();
  for (std::uint32_t y = 1; y < canvas.height; ++y)
    std::memcpy(canvas.first + static_cast<std::ptrdiff_t>(y) * canvas.stride, canvas.first, bytes);
}

// False if the tile does not fit into its quarter of the canvas.
bool put(const Picture& tile, const Op& op, const MosaicDraw& drawn, std::uint32_t number,
         const Picture& canvas) noexcept {
  const std::uint32_t rows = !drawn.happens ? canvas.height : number < 2 ? drawn.y : canvas.height - drawn.y;
  const std::uint32_t columns = !drawn.happens ? canvas.width : number % 2 == 0 ? drawn.x : canvas.width - drawn.x;
  if (tile.height > rows || tile.width > columns) return false;
  const Window window = mosaic_place(op, drawn, number, {tile.height, tile.width});
  const std::size_t pixel = tile.type.pixel_bytes();
  for (std::uint32_t y = 0; y < tile.height; ++y)
    std::memcpy(canvas.first + static_cast<std::ptrdiff_t>(window.top + y) * canvas.stride + window.left * pixel,
                tile.first + static_cast<std::ptrdiff_t>(y) * tile.stride, tile.width * pixel);
  return true;
}

}  // namespace

Status transform_canvas(const Transform& transform, std::span<const Picture> tiles, const DrawKey& key,
                        const OutputShape& expected, std::uint8_t* out, Workspace& workspace) noexcept {
  if (transform.ops.empty() || !is_mosaic_canvas(transform.ops[0])) return bad("the transform has no mosaic");
  const Op& op = transform.ops[0];
  const MosaicDraw drawn = draw_mosaic(op, key, 0);
  if (tiles.size() != (drawn.happens ? kMosaicTiles : 1)) return bad("a mosaic must have one tile or four, as drawn");
  const PixelType& type = tiles[0].type;
  for (const Picture& tile : tiles)
    if (!same_type(tile.type, type))
      return bad("Mosaic needs images of one dtype and the same number of channels: load them with color='RGB'");
  const Size size = mosaic_canvas(op);
  const std::size_t stride = std::size_t{size.width} * type.pixel_bytes();
  std::uint8_t* const memory = workspace.shared.reserve(stride * size.height);
  if (!memory) return {Code::no_memory, "no memory for the canvas of a mosaic", 0, -1};
  const Picture canvas{memory, static_cast<std::ptrdiff_t>(stride), size.height, size.width, type};
  fill(canvas, op.parameters[kFill]);
  for (std::uint32_t k = 0; k < tiles.size(); ++k)
    if (!put(tiles[k], op, drawn, k, canvas)) return bad("a tile of a mosaic is larger than its place");
  PictureRows rows(canvas);
  return transform_image(transform, {size.height, size.width, type}, rows, key, expected, out, workspace);
}

}  // namespace headrace
