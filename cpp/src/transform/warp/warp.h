// SPDX-License-Identifier: Apache-2.0
// Runs a pass that warps. Nearest gives the pixels of Pillow's Image.transform; bilinear and bicubic are within one
// level of it, edges included: the pixels around the border repeat outwards, and what lies outside is fill.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/codec.h"
#include "headrace/transform.h"
#include "transform/color.h"
#include "transform/warp/field.h"
#include "transform/warp/matrix.h"
#include "transform/warp/warp_run.h"

namespace headrace {

// From the canvas to the pass's cut input, without the displacements of an elastic deformation.
constexpr Matrix undeformed_map(const Warp& warp) noexcept {
  return warp.elastic.bends ? warp.elastic.map * warp.map : warp.map;
}

// The part of the pass's cut input that its canvas needs; empty if it shows nothing but fill. `field` is that of the
// pass's elastic deformation; it is not read if there is none.
Region warped_region(const Pass& pass, const Field& field) noexcept;

// Write the canvas, of pass.rows.canvas x pass.columns.canvas pixels and not flipped. `source` is warped_region(), and
// is not read if that is empty; kWarpOverread bytes after it are readable.
void warp_picture(const Pass& pass, const Field& field, Filter filter, const Region& region, const Picture& source,
                  const Picture& canvas) noexcept;

}  // namespace headrace
