// SPDX-License-Identifier: Apache-2.0
// Contrast needs the mean of the whole picture as the steps before it leave it. Rather than keep a picture of floats,
// the steps are run again from the levels: once to measure for each contrast, once to write.
#include "transform/color.h"

#include <array>
#include <cmath>

#include "kernels.h"
#include "transform/color_run.h"

namespace headrace {
namespace {

// Null, or why the step cannot be done on so many channels.
const char* refusal(ColorKind kind, std::uint32_t channels) noexcept {
  if (channels == 1 || channels == 3 || channels == 4) return nullptr;
  switch (kind) {
    case ColorKind::saturation:
      return "saturation needs an image of 1, 3 or 4 channels; leave it out of ColorJitter for this image";
    case ColorKind::hue:
      return "hue needs an image of 1, 3 or 4 channels; leave it out of ColorJitter for this image";
    case ColorKind::grayscale:
      return "Grayscale needs an image of 1, 3 or 4 channels";
    default:
      return nullptr;
  }
}

float mean_of(const ColorFactor* steps, std::uint32_t count, const Picture& picture) noexcept {
  ColorRun run{picture, steps, count, picture.type.channels, true, 0};
  kernels().pixels.color_rows(run);
  const std::uint32_t channels = picture.type.channels;
  const std::uint64_t grays = std::uint64_t{picture.height} * picture.width;
  return static_cast<float>(static_cast<double>(run.sum) /
                            static_cast<double>(channels == 3 || channels == 4 ? grays : grays * channels));
}

}  // namespace

Status apply_colors(std::span<const ColorStep> steps, Picture& picture) noexcept {
  if (steps.empty()) return {};
  if (steps.size() > kMaxColorSteps) return {Code::bad_argument, "a pass must have at most 8 color steps"};
  const std::uint32_t channels = picture.type.channels;
  std::array<ColorFactor, kMaxColorSteps> factors{};
  std::uint32_t count = 0, out_channels = channels;
  for (const ColorStep& step : steps) {
    if (const char* const why = refusal(step.kind, channels)) return {Code::bad_argument, why};
    ColorFactor& factor = factors[count];
    factor.kind = step.kind;
    factor.factor = static_cast<float>(step.value);
    if (step.kind == ColorKind::contrast) {
      factor.added = (1 - factor.factor) * mean_of(factors.data(), count, picture);
    } else if (step.kind == ColorKind::saturation) {
      factor.added = 1 - factor.factor;
    } else if (step.kind == ColorKind::hue) {
      const auto sixths = static_cast<float>((step.value - std::floor(step.value)) * 6);
      factor.factor = sixths < 6 ? sixths : 0;
    } else if (step.kind == ColorKind::grayscale && step.value == 1) {
      out_channels = 1;
    }
    ++count;
  }
  ColorRun run{picture, factors.data(), count, out_channels, false, 0};
  kernels().pixels.color_rows(run);
  picture.type.channels = out_channels;
  return {};
}

}  // namespace headrace
