// SPDX-License-Identifier: Apache-2.0
// Which samples of an axis make up a sample of the resized one, and with what weights: Pillow's rules.
#pragma once

#include <cstdint>

#include "headrace/transform.h"
#include "transform/pixel_kernels.h"

namespace headrace {

// One axis of a resize: `size` samples become `resized`, of which [begin, begin + count) are wanted.
struct ResizedAxis {
  std::uint32_t size = 0;
  std::uint32_t resized = 0;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  Filter filter = Filter::bilinear;
  bool antialias = true;

  bool is_identity() const noexcept { return size == resized; }
};

struct Range {
  std::uint32_t begin, end;
};

// The samples that the wanted part depends on.
Range needed_range(const ResizedAxis& axis) noexcept;

// No sample of the result has more taps than this.
std::uint32_t max_taps(const ResizedAxis& axis) noexcept;

// Weights to leave room for at each sample: taps may be padded to even numbers with weights of 0.
inline std::uint32_t weight_stride(const ResizedAxis& axis) noexcept { return (max_taps(axis) + 3) / 2 * 2; }

// Taps and weights of each wanted sample, counted from needed_range().begin. As integers, counts are even; so are the
// first samples if `even_first`. Padding may lie beyond the needed range. Not for nearest.
void make_taps(const ResizedAxis& axis, bool even_first, Taps* taps, std::int16_t* weights) noexcept;
void make_taps(const ResizedAxis& axis, bool even_first, Taps* taps, float* weights) noexcept;

// The taps of each wanted sample for those who work the weights out themselves, as a device does: that of tap k is
// unit * max(0, 1 - |position + k * step|). Bilinear with antialias, also where the axis keeps its size. Samples are
// counted from `origin`.
struct TriangleTaps {
  std::int32_t* first;
  std::int32_t* count;
  float* position;
  float* step;
  float* unit;
};
void make_triangle_taps(const ResizedAxis& axis, std::int32_t origin, const TriangleTaps& taps) noexcept;

// The samples that these taps look at; no fewer than needed_range().
Range triangle_range(const ResizedAxis& axis) noexcept;

// The one sample that each wanted sample is a copy of, counted from needed_range().begin.
void make_nearest(const ResizedAxis& axis, std::uint32_t* sources) noexcept;

}  // namespace headrace
