// SPDX-License-Identifier: Apache-2.0
// The displacements of an elastic deformation: white noise that a Gaussian of deviation sigma smooths, as torchvision's
// ElasticTransform has it for each pixel. Here it is a cubic B-spline over nodes that are up to 0.8 sigma apart.
//
// READ ME FIRST. A B-spline of spacing g smooths like a Gaussian of variance g²/3. So nodes that a Gaussian of variance
// sigma² - g²/3 has smoothed give a curve that a Gaussian of sigma has smoothed, but cost 1/g² of the memory and of the
// time. The noise of a node stands for the mean of the g² uniform numbers of its pixels: a normal number of the same
// variance. A spline never leaves the range of its nodes, so that the region that a warp reads is known beforehand.
#pragma once

#include <cstdint>

#include "headrace/transform.h"

namespace headrace {

class Buffer;

// Nodes, with those that the smoothing needs beyond the edges: a field has at most 32 MiB.
inline constexpr std::uint64_t kMaxFieldNodes = std::uint64_t{1} << 22;

// Node (r, c) lies at row (r - 1) * spacing and column (c - 1) * spacing of the picture. Arrays: across, down.
struct Field {
  const float* nodes[2] = {};  // displacements in pixels, [rows, columns]
  std::uint32_t rows = 0, columns = 0;
  double size[2] = {};                    // of the picture
  double per_pixel[2] = {};               // nodes, 1 / spacing
  float lowest[2] = {}, highest[2] = {};  // of all nodes
};

// Pixels between two nodes.
std::uint32_t field_spacing(double sigma) noexcept;

// Whether the field of a picture of this size has at most kMaxFieldNodes.
bool field_fits(const Elastic& elastic) noexcept;

// Draw the nodes. The field stays valid until the buffer is used again. `elastic` fits.
Status make_field(const Elastic& elastic, Buffer& buffer, Field& field) noexcept;

}  // namespace headrace
