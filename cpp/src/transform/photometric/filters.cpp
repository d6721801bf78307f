// SPDX-License-Identifier: Apache-2.0
// Steps that mix a pixel with its neighbours. Both write into a buffer of their own, row by row.
//
// A blur is a weighted sum of rows, then a weighted sum of what is left of the row and itself shifted by one pixel,
// two pixels, …: with that, both parts are sums of rows as resizing has them, which every target does with SIMD.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels.h"
#include "transform/draws.h"
#include "transform/photometric/steps.h"

namespace headrace {
namespace {

constexpr std::uint32_t kMaxTaps = 256;  // with one of weight 0, where kernels want an even number

constexpr Status no_memory() noexcept { return {Code::no_memory, "no memory to transform an image"}; }

// A picture of the same shape in a buffer that does not hold `picture`.
Status make_other(const Picture& picture, Workspace& workspace, Picture& other) noexcept {
  const bool in_first = picture.first == workspace.filtered[0].data();
  Buffer& buffer = workspace.filtered[in_first ? 1 : 0];
  other = picture;
  other.stride = static_cast<std::ptrdiff_t>(std::size_t{picture.width} * picture.type.pixel_bytes());
  other.first = buffer.reserve(std::max<std::size_t>(1, static_cast<std::size_t>(other.stride) * picture.height));
  return other.first ? Status{} : no_memory();
}

std::uint8_t* row_of(const Picture& picture, std::uint32_t y) noexcept {
  return picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride;
}

// The place in [0, size) of one that may lie outside: mirrored at the outermost pixels, again and again.
std::uint32_t reflected(std::int64_t at, std::uint32_t size) noexcept {
  if (size == 1) return 0;
  const std::int64_t period = 2 * (std::int64_t{size} - 1), phase = ((at % period) + period) % period;
  return static_cast<std::uint32_t>(std::min(phase, period - phase));
}

// exp(-x² / 2 sigma²) at whole numbers around 0, adding up to 1.
struct Gauss {
  double weights[kMaxTaps];
  std::uint32_t taps;

  Gauss(double sigma, std::uint32_t side) noexcept : taps(side) {
    const double middle = (side - 1) / 2;
    double sum = 0;
    for (std::uint32_t k = 0; k < side; ++k) {
      const double x = (k - middle) / sigma;
      weights[k] = exponential(std::max(-700.0, -0.5 * x * x));
      sum += weights[k];
    }
    for (std::uint32_t k = 0; k < side; ++k) weights[k] /= sum;
  }
};

// The weights as the kernels of a depth take them: whole numbers that add up to exactly one, or floats.
template <class Weight>
struct Taps1d {
  Weight weights[kMaxTaps] = {};
  std::uint32_t side;  // taps of the kernel
  std::uint32_t taps;  // with the one that makes them even

  explicit Taps1d(const Gauss& gauss) noexcept : side(gauss.taps), taps(gauss.taps + gauss.taps % 2) {
    std::int32_t left = 1 << kWeightBits;
    for (std::uint32_t k = 0; k < side; ++k) {
      if constexpr (std::is_same_v<Weight, float>) {
        weights[k] = static_cast<float>(gauss.weights[k]);
      } else {
        weights[k] = static_cast<std::int16_t>(std::floor(gauss.weights[k] * (1 << kWeightBits) + 0.5));
        left -= weights[k];
      }
    }
    if constexpr (!std::is_same_v<Weight, float>)
      weights[side / 2] = static_cast<std::int16_t>(weights[side / 2] + left);
  }
  std::uint32_t radius() const noexcept { return side / 2; }
};

// `Number` lies between the two sums: int16_t for 8 bits and float for 16.
template <class Number>
struct Blur {
  const Picture& from;
  const Picture& to;
  Taps1d<Number> down, across;
  std::uint8_t* memory;  // of bytes()

  static std::size_t bytes(const Picture& picture, std::uint32_t side) noexcept {
    const std::size_t row = std::size_t{picture.width} * picture.type.channels;
    return (2 * row + std::size_t{side + 1} * picture.type.channels + 64) * sizeof(Number);
  }

  void run() const noexcept {
    const std::size_t channels = from.type.channels, samples = from.width * channels;
    const std::size_t before = across.radius() * channels;
    auto* const padded = reinterpret_cast<Number*>(memory);  // the row with its reflections
    auto* const summed = padded + samples + std::size_t{across.taps} * channels + 32;
    // What the tap of weight 0 reads must be a number.
    std::fill(padded, summed, Number{});
    const std::uint8_t* rows[kMaxTaps];
    const std::uint8_t* shifted[kMaxTaps];
    for (std::uint32_t k = 0; k < across.taps; ++k)
      shifted[k] = reinterpret_cast<const std::uint8_t*>(padded + k * channels);
    for (std::uint32_t y = 0; y < from.height; ++y) {
      for (std::uint32_t k = 0; k < down.side; ++k)
        rows[k] = row_of(from, reflected(std::int64_t{y} + k - down.radius(), from.height));
      rows[down.side] = rows[0];
      sum_rows(rows, samples, padded + before);
      for (std::uint32_t x = 1; x <= across.radius(); ++x) {
        const std::uint32_t left = reflected(-std::int64_t{x}, from.width);
        const std::uint32_t right = reflected(std::int64_t{from.width} - 1 + x, from.width);
        Number* const content = padded + before;
        std::memcpy(content - x * channels, content + left * channels, channels * sizeof(Number));
        std::memcpy(content + samples + (x - 1) * channels, content + right * channels, channels * sizeof(Number));
      }
      sum_shifted(shifted, samples, summed);
      round(summed, samples, row_of(to, y));
    }
  }

 private:
  void sum_rows(const std::uint8_t* const* rows, std::size_t samples, Number* out) const noexcept {
    if constexpr (std::is_same_v<Number, float>)
      kernels().pixels.sum_rows_float(rows, from.type, down.weights, down.side, samples, out);
    else
      kernels().pixels.sum_rows_8(rows, down.weights, down.taps, samples, out);
  }
  void sum_shifted(const std::uint8_t* const* rows, std::size_t samples, Number* out) const noexcept {
    if constexpr (std::is_same_v<Number, float>)
      kernels().pixels.sum_numbers_float(rows, across.weights, across.side, samples, out);
    else
      kernels().pixels.sum_numbers_8(rows, across.weights, across.taps, samples, out);
  }
  void round(const Number* in, std::size_t samples, std::uint8_t* out) const noexcept {
    if constexpr (std::is_same_v<Number, float>)
      kernels().pixels.round_float(in, from.type, samples, out);
    else
      kernels().pixels.round_8(in, samples, out);
  }
};

template <class Number>
Status blur_as(const Gauss& down, const Gauss& across, const Picture& from, const Picture& to,
               Workspace& workspace) noexcept {
  std::uint8_t* const memory = workspace.filter_rows.reserve(Blur<Number>::bytes(from, across.taps));
  if (!memory) return no_memory();
  Blur<Number>{from, to, Taps1d<Number>(down), Taps1d<Number>(across), memory}.run();
  return {};
}

// The outermost pixels stay as they are.
void sharpen(const Picture& from, double factor, const Picture& to) noexcept {
  const PixelType& type = from.type;
  const std::size_t pixel = type.pixel_bytes(), row_bytes = from.width * pixel;
  for (std::uint32_t y = 0; y < from.height; ++y) {
    std::uint8_t* const out = row_of(to, y);
    const std::uint8_t* const row = row_of(from, y);
    std::memcpy(out, row, row_bytes);
    if (y == 0 || y + 1 == from.height || from.width < 3) continue;
    const std::uint8_t* const rows[3] = {row_of(from, y - 1) + pixel, row + pixel, row_of(from, y + 1) + pixel};
    kernels().pixels.sharpen(rows, type, std::size_t{from.width - 2} * type.channels, static_cast<float>(factor),
                             out + pixel);
    if (type.channels != 4) continue;
    const std::size_t sample = type.sample_bytes();
    for (std::size_t i = pixel - sample; i < row_bytes; i += pixel) std::memcpy(out + i, row + i, sample);
  }
}

}  // namespace

Status blur(const ColorStep& step, Picture& picture, Workspace& workspace) noexcept {
  Picture other;
  if (Status s = make_other(picture, workspace, other); !s) return s;
  const Gauss down(step.value, static_cast<std::uint32_t>(step.second)),
      across(step.value, static_cast<std::uint32_t>(step.third));
  const Status status = picture.type.depth == 8 ? blur_as<std::int16_t>(down, across, picture, other, workspace)
                                                : blur_as<float>(down, across, picture, other, workspace);
  if (status) picture = other;
  return status;
}

Status enhance_sharpness(double factor, Picture& picture, Workspace& workspace) noexcept {
  Picture other;
  if (Status s = make_other(picture, workspace, other); !s) return s;
  sharpen(picture, factor, other);
  picture = other;
  return {};
}

}  // namespace headrace
