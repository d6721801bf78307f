// SPDX-License-Identifier: Apache-2.0
// Gaussian noise: the numbers come from a Philox stream of the operation's own, so that a sample's noise depends on
// where it stands, not on how the picture is worked through.
#include <algorithm>

#include "kernels.h"
#include "transform/photometric/steps.h"

namespace headrace {
namespace {

constexpr std::size_t kPiece = 1024;  // samples at a time

struct NoiseRange {
  float least, most;
  float scale, shift;  // of a normal number, to levels
};

// Neither fused nor reordered: the product and the sums are rounded apart, as everywhere.
template <class Sample>
void add_numbers(const float* numbers, std::size_t n, const NoiseRange& range, std::uint32_t acting,
                 std::uint32_t channels, Sample* pixels) noexcept {
  const auto add = [&range](Sample sample, float number) {
    float x = static_cast<float>(sample) + (number * range.scale + range.shift);
    x = x > range.least ? x : range.least;
    x = x < range.most ? x : range.most;
    return static_cast<Sample>(floor_of(x + 0.5f));
  };
  if (acting == channels) {
    for (std::size_t i = 0; i < n; ++i) pixels[i] = add(pixels[i], numbers[i]);
    return;
  }
  for (std::size_t i = 0; i < n; i += acting, pixels += channels)
    for (std::uint32_t c = 0; c < acting; ++c) pixels[c] = add(pixels[c], numbers[i + c]);
}

template <class Sample>
void add_to(const NoiseRange& range, std::uint32_t key0, std::uint32_t key1, const Picture& picture) noexcept {
  const std::uint32_t channels = picture.type.channels, acting = acting_channels(picture.type);
  const std::size_t samples = std::size_t{picture.width} * acting;
  const std::uint64_t row_blocks = (samples + 3) / 4;
  // A piece is whole pixels, and begins with a block.
  const std::size_t piece = acting == channels ? kPiece : kPiece / (4 * acting) * (4 * acting);
  std::uint32_t words[kPiece];
  float numbers[kPiece];
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    auto* const row = reinterpret_cast<Sample*>(picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride);
    for (std::size_t at = 0; at < samples; at += piece) {
      const std::size_t n = std::min(piece, samples - at), blocks = (n + 3) / 4;
      kernels().pixels.random_words(key0, key1, y * row_blocks + at / 4, blocks, words);
      kernels().pixels.normal_numbers(words, n, numbers);
      add_numbers(numbers, n, range, acting, channels, row + at / acting * channels + at % acting);
    }
  }
}

}  // namespace

Status add_noise(const ColorStep& step, const DrawKey& key, Picture& picture) noexcept {
  const auto stream = draw(key, step.operation, 1);
  const bool is_signed = picture.type.is_signed;
  const double range = picture.type.depth == 8 ? 255 : is_signed ? 32768 : 65535;
  const auto least = static_cast<float>(least_level(picture.type));
  const NoiseRange noise{least, least + static_cast<float>(level_count(picture.type) - 1),
                         static_cast<float>(step.second * range), static_cast<float>(step.value * range)};
  if (picture.type.depth == 8)
    add_to<std::uint8_t>(noise, stream[0], stream[1], picture);
  else if (is_signed)
    add_to<std::int16_t>(noise, stream[0], stream[1], picture);
  else
    add_to<std::uint16_t>(noise, stream[0], stream[1], picture);
  return {};
}

}  // namespace headrace
