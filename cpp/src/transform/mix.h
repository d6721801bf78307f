// SPDX-License-Identifier: Apache-2.0
// MixUp and CutMix: each image of a batch is mixed with the one before it, and the first with the last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/transform.h"
#include "transform/finish.h"

namespace headrace {

// How to draw for a batch. An alpha of 0 leaves its kind out; one of them is above 0.
struct MixOptions {
  double mixup_alpha = 0;
  double cutmix_alpha = 0;
  double probability = 1;
  double switch_probability = 0.5;  // of CutMix, if both are possible
};

enum class MixKind : std::uint8_t { none, mixup, cutmix };

// `share` is the part of an image that stays its own: for CutMix what the box leaves, exactly.
struct Mixture {
  MixKind kind = MixKind::none;
  double share = 1;
  std::uint32_t top = 0, left = 0, height = 0, width = 0;
};

Status check_mix(const MixOptions& options) noexcept;

// `key.sample` is the first sample of the batch, whose images have height x width pixels.
Mixture draw_mixture(const MixOptions& options, const DrawKey& key, std::uint16_t operation, std::uint32_t height,
                     std::uint32_t width) noexcept;

// Images of a float dtype, one after the other, each of `samples` numbers: x = x share + x' (1 - share) in float32, x'
// of the image before. `threads` share the work.
void mix_images(std::uint8_t* first, std::size_t images, std::size_t samples, DType dtype, double share,
                unsigned threads) noexcept;

// Copy the box of each image from the image before. An image is `planes` pictures of height x width, of `pixel` bytes a
// pixel.
void cut_images(std::uint8_t* first, std::size_t images, std::size_t planes, std::size_t height, std::size_t width,
                std::size_t pixel, const Mixture& box) noexcept;

}  // namespace headrace
