// SPDX-License-Identifier: Apache-2.0
// Steps on the pixel values of a picture, one after another.
#pragma once

#include <span>

#include "headrace/transform.h"
#include "transform/color.h"
#include "transform/workspace.h"

namespace headrace {

// Apply the steps in order. Steps of ColorJitter and Grayscale that stand side by side go through apply_colors together
// and are rounded once; every other step rounds. Of four channels the last one, alpha, keeps its values, except that a
// blur blurs it. A step may leave picture.first in a buffer of the workspace's, and may change picture.type as
// apply_colors does.
Status apply_steps(std::span<const ColorStep> steps, const DrawKey& key, Picture& picture,
                   Workspace& workspace) noexcept;

// One of each kind, as apply_steps calls them.
Status map_levels(const ColorStep& step, Picture& picture, Workspace& workspace) noexcept;
Status enhance_saturation(double factor, Picture& picture) noexcept;
Status enhance_sharpness(double factor, Picture& picture, Workspace& workspace) noexcept;
Status blur(const ColorStep& step, Picture& picture, Workspace& workspace) noexcept;
Status add_noise(const ColorStep& step, const DrawKey& key, Picture& picture) noexcept;
void permute_channels(const ColorStep& step, const DrawKey& key, Picture& picture) noexcept;
Status compress_as_jpeg(int quality, Picture& picture, Workspace& workspace) noexcept;

// How many channels a step changes: all, but only three of four.
constexpr std::uint32_t acting_channels(const PixelType& type) noexcept {
  return type.channels == 4 ? 3 : type.channels;
}

// Of samples of a depth, as numbers from 0 up: an int16 is its level + 32768.
constexpr std::uint32_t level_count(const PixelType& type) noexcept { return type.depth == 8 ? 256 : 65536; }
// Pillow's gray: with weights of 16 bits, rounded.
constexpr std::int32_t gray_level(std::int64_t r, std::int64_t g, std::int64_t b) noexcept {
  return static_cast<std::int32_t>((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
}

constexpr std::int32_t min_level(const PixelType& type) noexcept { return type.is_signed ? -32768 : 0; }

// The greatest whole number that is not above x. The standard's function is a call on machines before SSE4.1.
inline std::int32_t floor_of(float x) noexcept {
  const auto whole = static_cast<std::int32_t>(x);
  return whole - (static_cast<float>(whole) > x);
}

}  // namespace headrace
