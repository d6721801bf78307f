// SPDX-License-Identifier: Apache-2.0
// Steps on pixel values: all targets make the same pixels, within their rows. What the pixels are is compared with
// Pillow in tests/transforms/test_photometric.py.
#include "transform/photometric/steps.h"

#include "pixels.h"

namespace headrace::tests {
namespace {

ColorStep random_step(Random& random, const Kind& kind) {
  const bool color = kind.channels == 1 || kind.channels == 3 || kind.channels == 4;
  const auto share = [&] { return random.below(1001) / 1000.0; };
  const auto odd = [&] { return 1.0 + 2 * random.below(random.below(2) == 0 ? 3 : 20); };
  ColorStep step{static_cast<ColorKind>(random.below(static_cast<std::uint32_t>(ColorKind::permute_channels) + 1))};
  step.operation = static_cast<std::uint16_t>(random.below(512));
  switch (step.kind) {
    case ColorKind::saturation:
    case ColorKind::hue:
    case ColorKind::enhance_saturation:
      if (!color) step.kind = ColorKind::enhance_sharpness;
      step.value = share() - 0.5 * (step.kind == ColorKind::hue);
      return step;
    case ColorKind::grayscale:
      step.kind = color ? ColorKind::grayscale : ColorKind::invert;
      step.value = 3;
      return step;
    case ColorKind::posterize:
      step.value = random.below(17);
      return step;
    case ColorKind::solarize:
      step.value = static_cast<double>(random.below(70000)) - 2000;
      step.second = random.below(2);
      return step;
    case ColorKind::solarize_add:
      step.value = static_cast<double>(random.below(300)) - 100;
      return step;
    case ColorKind::gaussian_blur:
      step.value = 0.01 + 5 * share();
      step.second = odd();
      step.third = odd();
      return step;
    case ColorKind::gaussian_noise:
      step.value = share() - 0.5;
      step.second = share();
      return step;
    default:
      step.value = 3 * share();
      return step;
  }
}

// The picture's rows, one after the other.
std::vector<std::uint8_t> stepped_on(const char* target, const Image& image, std::span<const ColorStep> steps,
                                     bool& ok) {
  use_target(target);
  Guarded memory(image.bytes.size());
  std::memcpy(memory.first(), image.bytes.data(), image.bytes.size());
  Picture picture{memory.first(), static_cast<std::ptrdiff_t>(image.row_bytes()), image.height, image.width,
                  type_of(image.kind)};
  Workspace workspace;
  ok = static_cast<bool>(apply_steps(steps, {7, 1, 3, 0}, picture, workspace)) && memory.intact() &&
       picture.type == type_of(image.kind);
  std::vector<std::uint8_t> rows;
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    const std::uint8_t* const row = picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride;
    rows.insert(rows.end(), row, row + image.row_bytes());
  }
  return rows;
}

}  // namespace

void check_steps(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest) {
  Random random(seed + 5);
  for (unsigned i = 0; i < cases; ++i) {
    const Kind kind = random_kind(random);
    const std::uint32_t height = 1 + random.below(9), width = 1 + random.below(i % 8 == 0 ? 600 : 50);
    const Image image = random_image(height, width, kind, random);
    std::vector<ColorStep> steps(1 + random.below(3));
    std::string what = "steps on " + name_of(kind) + ", " + size_of(height, width) + ":";
    for (ColorStep& step : steps) {
      step = random_step(random, kind);
      what.append(" ").append(std::to_string(static_cast<int>(step.kind)));
    }
    bool ok = false;
    const std::vector<std::uint8_t> expected = stepped_on(targets()[0], image, steps, ok);
    if (!checks.expect(ok, what + " fail")) continue;
    for (const std::uint8_t byte : expected) digest.add(byte);
    for (const char* const target : targets())
      checks.expect(stepped_on(target, image, steps, ok) == expected && ok, what + " on " + target + " differ");
  }
}

}  // namespace headrace::tests
