// SPDX-License-Identifier: Apache-2.0
// Gaussian noise: the numbers come from a Philox stream of the operation's own, so that a sample's noise depends on
// where it stands, not on how the picture is worked through.
#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "transform/photometric/steps.h"

namespace headrace {
namespace {

constexpr std::size_t kPiece = 1024;  // samples at a time

struct NoiseScale {
  float scale, shift;  // of a normal number, to levels
};

// Three of four channels: pixels are taken apart and put together again.
void add_to_three(const float* numbers, std::size_t n, const NoiseScale& noise, const PixelType& type,
                  std::uint8_t* pixels) noexcept {
  const std::size_t pixel = type.pixel_bytes(), three = 3 * std::size_t{type.sample_bytes()};
  alignas(8) std::uint8_t piece[2 * kPiece];
  for (std::size_t i = 0; i < n / 3; ++i) std::memcpy(piece + i * three, pixels + i * pixel, three);
  kernels().pixels.add_numbers(piece, type, numbers, n, noise.scale, noise.shift);
  for (std::size_t i = 0; i < n / 3; ++i) std::memcpy(pixels + i * pixel, piece + i * three, three);
}

void add_to(const NoiseScale& noise, std::uint32_t key0, std::uint32_t key1, const Picture& picture) noexcept {
  const PixelType& type = picture.type;
  const std::uint32_t channels = type.channels, acting = acting_channels(type);
  const std::size_t samples = std::size_t{picture.width} * acting;
  const std::uint64_t row_blocks = (samples + 3) / 4;
  // A piece begins with a block, and with four channels it is whole pixels.
  const std::size_t piece = acting == channels ? kPiece : kPiece / 12 * 12;
  std::uint32_t words[kPiece];
  float numbers[kPiece];
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    std::uint8_t* const row = picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride;
    for (std::size_t at = 0; at < samples; at += piece) {
      const std::size_t n = std::min(piece, samples - at);
      kernels().pixels.random_words(key0, key1, y * row_blocks + at / 4, (n + 3) / 4, words);
      kernels().pixels.normal_numbers(words, n, numbers);
      if (acting == channels)
        kernels().pixels.add_numbers(row + at * type.sample_bytes(), type, numbers, n, noise.scale, noise.shift);
      else
        add_to_three(numbers, n, noise, type, row + at / 3 * type.pixel_bytes());
    }
  }
}

}  // namespace

Status add_noise(const ColorStep& step, const DrawKey& key, Picture& picture) noexcept {
  const auto stream = draw(key, step.operation, 1);
  const double range = picture.type.depth == 8 ? 255 : picture.type.is_signed ? 32768 : 65535;
  add_to({static_cast<float>(step.second * range), static_cast<float>(step.value * range)}, stream[0], stream[1],
         picture);
  return {};
}

}  // namespace headrace
