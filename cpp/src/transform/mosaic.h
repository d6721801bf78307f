// SPDX-License-Identifier: Apache-2.0
// Mosaic: four images around a random point of a canvas (spec/recipe.md §3.5).
#pragma once

#include <array>
#include <cstdint>

#include "headrace/transform.h"
#include "transform/program.h"

namespace headrace {

constexpr std::uint32_t kMosaicTiles = 4;

Status check_mosaic(const Parameters& p) noexcept;

// What is drawn for one sample: whether there are four tiles, else one, and the point at which they meet.
struct MosaicDraw {
  bool happens;
  std::uint32_t y, x;
};

MosaicDraw draw_mosaic(const Op& op, const DrawKey& key, std::uint16_t number) noexcept;

bool is_mosaic_canvas(const Op& op) noexcept;

// Both sides of the canvas are twice those of a tile.
Size mosaic_canvas(const Op& op) noexcept;

// Where tile number `tile` lies on the canvas if this size of it is seen.
Window mosaic_place(const Op& op, const MosaicDraw& drawn, std::uint32_t tile, Size seen) noexcept;

Status mosaic(Composer& composer, const Op& op, const DrawKey& key, std::uint16_t number) noexcept;

// Draw the positions in [0, n) of the tiles 1 to 3. The first tile is the sample itself.
std::array<std::uint32_t, kMosaicTiles - 1> draw_partners(const DrawKey& key, std::uint16_t number,
                                                          std::uint32_t n) noexcept;

}  // namespace headrace
