// SPDX-License-Identifier: Apache-2.0
// Color steps against the textbook's formulas in doubles, and borders against a walk along the edge.
#include "transform/color.h"

#include <cmath>

#include "pixels.h"

namespace headrace::tests {
namespace {

using Pixel = std::array<double, 64>;

double gray_of(const Pixel& p) { return (19595 * p[0] + 38470 * p[1] + 7471 * p[2]) / 65536; }

// By way of hue, saturation and value.
void shift_hue(Pixel& p, double turns) {
  const double high = std::max({p[0], p[1], p[2]}), low = std::min({p[0], p[1], p[2]}), chroma = high - low;
  if (chroma == 0) return;
  double hue = high == p[0]   ? (p[1] - p[2]) / chroma
               : high == p[1] ? 2 + (p[2] - p[0]) / chroma
                              : 4 + (p[0] - p[1]) / chroma;
  hue = hue / 6 + turns;
  hue = 6 * (hue - std::floor(hue));
  const int sector = static_cast<int>(hue) % 6;
  const double part = hue - std::floor(hue), falling = high - chroma * part, rising = low + chroma * part;
  const std::array<std::array<double, 3>, 6> colors = {{{high, rising, low},
                                                        {falling, high, low},
                                                        {low, high, rising},
                                                        {low, falling, high},
                                                        {rising, low, high},
                                                        {high, low, falling}}};
  std::copy_n(colors[sector].begin(), 3, p.begin());
}

class Reference {
 public:
  explicit Reference(const Image& image) : kind_(image.kind), channels_(kind_.channels) {
    for (std::uint32_t y = 0; y < image.height; ++y)
      for (std::uint32_t x = 0; x < image.width; ++x) {
        Pixel& p = pixels_.emplace_back();
        for (std::uint32_t c = 0; c < channels_; ++c) p[c] = sample_of(image, y, x, c);
      }
  }
  void apply(const ColorStep& step) {
    const std::uint32_t acting = channels_ == 4 ? 3 : channels_;
    const double mean = step.kind == ColorKind::contrast ? mean_gray() : 0;
    for (Pixel& p : pixels_) {
      const double gray = gray_of(p);
      if (step.kind == ColorKind::hue && acting == 3) shift_hue(p, step.value);
      for (std::uint32_t c = 0; c < acting; ++c) {
        if (step.kind == ColorKind::brightness) p[c] *= step.value;
        if (step.kind == ColorKind::contrast) p[c] = p[c] * step.value + mean * (1 - step.value);
        if (step.kind == ColorKind::saturation && acting == 3) p[c] = p[c] * step.value + gray * (1 - step.value);
        if (step.kind == ColorKind::grayscale && acting == 3) p[c] = gray;
        p[c] = std::clamp(p[c], least_of(kind_), most_of(kind_));
      }
    }
  }
  double at(std::size_t pixel, std::uint32_t c) const { return pixels_[pixel][c]; }

 private:
  double mean_gray() const {
    double sum = 0;
    const bool color = channels_ == 3 || channels_ == 4;
    for (const Pixel& p : pixels_)
      for (std::uint32_t c = 0; c < (color ? 1 : channels_); ++c) sum += std::floor((color ? gray_of(p) : p[c]) + 0.5);
    return sum / static_cast<double>(pixels_.size() * (color ? 1 : channels_));
  }

  Kind kind_;
  std::uint32_t channels_;
  std::vector<Pixel> pixels_;
};

Picture picture_of(std::uint8_t* first, const Image& image) {
  return {first, static_cast<std::ptrdiff_t>(image.row_bytes()), image.height, image.width, type_of(image.kind)};
}

Guarded colored_on(const char* target, const Image& image, std::span<const ColorStep> steps, PixelType& type,
                   bool& ok) {
  use_target(target);
  Guarded out(image.bytes.size());
  std::memcpy(out.first(), image.bytes.data(), image.bytes.size());
  Picture picture = picture_of(out.first(), image);
  ok = static_cast<bool>(apply_colors(steps, picture));
  type = picture.type;
  return out;
}

double farthest(const Image& image, const Reference& reference, const Guarded& out, PixelType type) {
  double highest = 0;
  for (std::uint32_t y = 0; y < image.height; ++y)
    for (std::uint32_t x = 0; x < image.width; ++x)
      for (std::uint32_t c = 0; c < type.channels; ++c) {
        const std::size_t at = y * image.row_bytes() + x * type.pixel_bytes() + c * type.sample_bytes();
        highest =
            std::max(highest, std::abs(sample_at(out.first() + at, image.kind) - reference.at(y * image.width + x, c)));
      }
  return highest;
}

void check_refusals(Checks& checks) {
  for (const ColorKind kind : {ColorKind::saturation, ColorKind::hue, ColorKind::grayscale}) {
    std::array<std::uint8_t, 5> pixel = {1, 2, 3, 4, 5};
    Picture picture{pixel.data(), 5, 1, 1, {5, 8, false}};
    const ColorStep step{kind, 1};
    checks.expect(apply_colors({&step, 1}, picture).code == Code::bad_argument, "a color step on 5 channels");
  }
}

// The content's index for position `at` on the canvas: walked, a sample at a time, turning at the ends.
std::uint32_t walked(std::int64_t at, std::uint32_t size, Border border) {
  if (border == Border::edge) return static_cast<std::uint32_t>(std::clamp<std::int64_t>(at, 0, size - 1));
  std::uint32_t position = 0;
  bool forwards = true;
  for (std::int64_t steps = std::abs(at); steps > 0 && size > 1; --steps) {
    if (forwards && position == size - 1) forwards = false;
    if (!forwards && position == 0) forwards = true;
    position += forwards ? 1U : -1U;
  }
  return position;
}

Axis random_axis(Random& random, bool bordered) {
  Axis axis;
  axis.resized = axis.input = axis.size = 1 + random.below(random.below(2) == 0 ? 4 : 40);
  if (bordered) {
    axis.offset = static_cast<std::int32_t>(random.below(60)) - 20;
    axis.canvas = 1 + random.below(80);
  } else {
    const std::uint32_t begin = random.below(axis.resized);
    axis.offset = -static_cast<std::int32_t>(begin);
    axis.canvas = 1 + random.below(axis.resized - begin);
  }
  return axis;
}

}  // namespace

void check_colors(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest) {
  Random random(seed + 2);
  for (unsigned i = 0; i < cases; ++i) {
    const Kind kind = random_kind(random);
    const bool color = kind.channels == 1 || kind.channels == 3 || kind.channels == 4;
    const std::uint32_t height = 1 + random.below(9), width = 1 + random.below(i % 8 == 0 ? 600 : 50);
    const Image image = random_image(height, width, kind, random);
    std::vector<ColorStep> steps(1 + random.below(4));
    Reference reference(image);
    std::uint32_t channels = kind.channels;
    for (ColorStep& step : steps) {
      step.kind = static_cast<ColorKind>(random.below(color ? 5 : 2));
      step.value = step.kind == ColorKind::hue ? random.below(1001) / 1000.0 - 0.5 : random.below(2001) / 1000.0;
      if (step.kind == ColorKind::grayscale) step.value = random.below(2) == 0 ? 1 : 3;
      if (step.kind == ColorKind::grayscale && step.value == 1) channels = 1;
      reference.apply(step);
    }
    std::string what = "colors " + name_of(kind) + ", " + size_of(image.height, image.width) + ", steps";
    for (const ColorStep& step : steps)
      what.append(" ")
          .append(std::to_string(static_cast<int>(step.kind)))
          .append(": ")
          .append(std::to_string(step.value));
    PixelType type;
    bool ok = false;
    const Guarded expected = colored_on(targets()[0], image, steps, type, ok);
    if (!checks.expect(ok && expected.intact() && type.channels == channels, what + " fail")) continue;
    expected.add_to(digest);
    // The final rounding and the errors of float32, which hue and a mean close to a half may enlarge.
    const double distance = farthest(image, reference, expected, type);
    checks.expect(distance <= (kind.depth == 8 ? 0.51 : 0.8),
                  what + " are " + std::to_string(distance) + " levels off");
    for (const char* const target : targets())
      checks.expect(colored_on(target, image, steps, type, ok) == expected, what + " on " + target + " differ");
  }
  check_refusals(checks);
}

void check_place(std::uint64_t seed, unsigned cases, Checks& checks) {
  Random random(seed + 3);
  for (unsigned i = 0; i < cases; ++i) {
    const Kind kind = random_kind(random);
    const bool bordered = i % 4 != 0;
    const Axis rows = random_axis(random, bordered), columns = random_axis(random, bordered);
    const auto border = static_cast<Border>(random.below(3));
    const Image whole = random_image(rows.resized, columns.resized, kind, random);
    const std::uint32_t top = bordered ? 0 : random.below(static_cast<std::uint32_t>(-rows.offset) + 1);
    const std::uint32_t left = bordered ? 0 : random.below(static_cast<std::uint32_t>(-columns.offset) + 1);
    Picture content = picture_of(const_cast<std::uint8_t*>(whole.at(top, left)), whole);
    content.height -= top;
    content.width -= left;
    const double fill = random.below(300);
    const double filled = std::min(fill, most_of(kind));
    Image canvas{rows.canvas, columns.canvas, kind, {}};
    Guarded out(rows.canvas * canvas.row_bytes());
    place(content, top, left, rows, columns, border, fill, picture_of(out.first(), canvas));
    bool same = out.intact();
    for (std::uint32_t y = 0; y < rows.canvas; ++y)
      for (std::uint32_t x = 0; x < columns.canvas; ++x) {
        const std::int64_t from_y = std::int64_t{y} - rows.offset, from_x = std::int64_t{x} - columns.offset;
        const bool inside = from_y >= 0 && from_y < rows.resized && from_x >= 0 && from_x < columns.resized;
        for (std::uint32_t c = 0; c < kind.channels; ++c) {
          const double found =
              sample_at(out.first() + y * canvas.row_bytes() + x * canvas.pixel_bytes() + c * kind.depth / 8, kind);
          same &=
              found == (border == Border::constant && !inside ? filled
                                                              : sample_of(whole, walked(from_y, rows.resized, border),
                                                                          walked(from_x, columns.resized, border), c));
        }
      }
    checks.expect(same, "border " + std::to_string(static_cast<int>(border)) + " around " + name_of(kind) + ", " +
                            size_of(rows.resized, columns.resized) + " on " + size_of(rows.canvas, columns.canvas));
  }
}

}  // namespace headrace::tests
