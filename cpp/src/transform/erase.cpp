// SPDX-License-Identifier: Apache-2.0
// The rectangles are drawn as torchvision and timm draw them. What fills them at random comes from a stream of its own
// (noise-inl.h), whose key is drawn: number i of the stream belongs to place i of the rectangle, channel by channel and
// row by row, whatever the layout is.
#include "transform/erase.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels.h"
#include "transform/draws.h"

namespace headrace {
namespace {

constexpr int kAttempts = 10;
constexpr std::uint16_t kFirstFill = 1024;  // block of the first rectangle's key; attempts end at 1 + 10 * 100
constexpr std::size_t kPiece = 512;         // numbers of the stream at a time; a multiple of 4

enum class Fill { constant, color, pixels };

struct Rectangle {
  std::uint32_t top, left, height, width;
};

bool is_float(DType dtype) noexcept { return dtype == DType::float16 || dtype == DType::float32; }

// A level of an integer dtype, the nearest one to the value.
std::uint16_t level(DType dtype, double value) noexcept {
  const double lowest = dtype == DType::int16 ? -32768 : 0;
  const double highest = dtype == DType::uint8 ? 255 : dtype == DType::int16 ? 32767 : 65535;
  return static_cast<std::uint16_t>(static_cast<std::int32_t>(round_half_even(std::clamp(value, lowest, highest))));
}

class Eraser {
 public:
  Eraser(const Op& op, std::uint16_t number, const DrawKey& key, const Finish& finish, std::uint32_t height,
         std::uint32_t width, std::uint8_t* out) noexcept
      : op_(op), number_(number), key_(key), finish_(finish), height_(height), width_(width), out_(out) {}

  void run() const noexcept {
    const auto& p = op_.parameters;
    const auto words = draw(key_, number_, 0);
    if (unit(words[0]) >= p[0]) return;
    const auto lowest = static_cast<std::uint32_t>(p[5]), highest = static_cast<std::uint32_t>(p[6]);
    const std::uint32_t count = lowest + below(words[1], highest - lowest + 1);
    for (std::uint32_t k = 0; k < count; ++k)
      if (Rectangle r; find(k, count, r)) fill(r, k);
  }

 private:
  bool find(std::uint32_t k, std::uint32_t count, Rectangle& r) const noexcept {
    const auto& p = op_.parameters;
    const double area = static_cast<double>(height_) * width_, from = logarithm(p[3]), to = logarithm(p[4]);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const auto words = draw(key_, number_, static_cast<std::uint16_t>(1 + kAttempts * k + attempt));
      const double target = area * uniform(words[0], p[1], p[2]) / count;
      const double ratio = exponential(uniform(words[1], from, to));
      const double h = round_half_even(std::sqrt(target * ratio)), w = round_half_even(std::sqrt(target / ratio));
      if (h >= height_ || w >= width_) continue;
      r.height = static_cast<std::uint32_t>(h);
      r.width = static_cast<std::uint32_t>(w);
      r.top = below(words[2], height_ - r.height + 1);
      r.left = below(words[3], width_ - r.width + 1);
      return true;
    }
    return false;
  }

  void fill(const Rectangle& r, std::uint32_t k) const noexcept {
    const auto kind = static_cast<Fill>(op_.parameters[7]);
    const auto words = draw(key_, number_, static_cast<std::uint16_t>(kFirstFill + k));
    std::uint8_t sample[4];
    for (std::uint32_t c = 0; c < finish_.channels; ++c) {
      if (kind == Fill::constant)
        constant(c, sample);
      else if (kind == Fill::color)
        random(words[0], words[1], c, 1, 1, sample);
      for (std::uint32_t y = 0; y < r.height; ++y) {
        const std::uint64_t first = (std::uint64_t{c} * r.height + y) * r.width;
        if (kind == Fill::pixels)
          random(words[0], words[1], first, r.width, step(), place(r.top + y, r.left, c));
        else
          repeat(sample, r.width, place(r.top + y, r.left, c));
      }
    }
  }

  std::uint32_t bytes() const noexcept { return dtype_bytes(finish_.dtype); }
  // Samples from one pixel of a row to the next.
  std::size_t step() const noexcept { return finish_.layout == Layout::chw ? 1 : finish_.channels; }
  std::uint8_t* place(std::uint32_t y, std::uint32_t x, std::uint32_t c) const noexcept {
    const std::size_t pixel = finish_.layout == Layout::chw ? std::size_t{c} * height_ + y : y;
    const std::size_t at = (pixel * width_ + x) * step() + (finish_.layout == Layout::chw ? 0 : c);
    return out_ + at * bytes();
  }

  // The constant of a channel; one value serves all, and the last one further channels.
  void constant(std::uint32_t c, std::uint8_t* sample) const noexcept {
    const auto n = static_cast<std::uint32_t>(op_.parameters[8]);
    const double value = op_.parameters[9 + std::min(c, n - 1)];
    if (is_float(finish_.dtype)) {
      const auto number = static_cast<float>(value);
      write(&number, nullptr, 1, 1, sample);
    } else {
      const std::uint16_t integer = level(finish_.dtype, value);
      std::memcpy(sample, &integer, bytes());
    }
  }

  void repeat(const std::uint8_t* sample, std::uint32_t n, std::uint8_t* out) const noexcept {
    const std::size_t stride = step() * bytes();
    const auto copy = [&](auto size) {
      for (std::uint32_t i = 0; i < n; ++i) std::memcpy(out + i * stride, sample, size);
    };
    if (bytes() == 1)
      copy(std::integral_constant<std::size_t, 1>());
    else if (bytes() == 2)
      copy(std::integral_constant<std::size_t, 2>());
    else
      copy(std::integral_constant<std::size_t, 4>());
  }

  // Numbers [first, first + n) of the stream.
  void random(std::uint32_t key0, std::uint32_t key1, std::uint64_t first, std::size_t n, std::size_t stride,
              std::uint8_t* out) const noexcept {
    std::uint32_t words[kPiece];
    float numbers[kPiece];
    for (std::size_t done = 0; done < n;) {
      const std::uint64_t at = first + done;
      const auto skipped = static_cast<std::size_t>(at % 4);
      const std::size_t few = std::min(n - done, kPiece - skipped);
      kernels().pixels.random_words(key0, key1, at / 4, (skipped + few + 3) / 4, words);
      if (is_float(finish_.dtype)) kernels().pixels.normal_numbers(words + skipped, few, numbers);
      write(numbers, words + skipped, few, stride, out + done * stride * bytes());
      done += few;
    }
  }

  // Floats as they are, or as halves; an integer is the first bits of its word.
  void write(const float* numbers, const std::uint32_t* words, std::size_t n, std::size_t stride,
             std::uint8_t* out) const noexcept {
    std::uint16_t halves[kPiece];
    if (finish_.dtype == DType::float16) kernels().pixels.write_halves(numbers, n, halves);
    for (std::size_t i = 0; i < n; ++i, out += stride * bytes()) {
      if (finish_.dtype == DType::float32) {
        std::memcpy(out, numbers + i, 4);
      } else if (finish_.dtype == DType::float16) {
        std::memcpy(out, halves + i, 2);
      } else if (finish_.dtype == DType::uint8) {
        *out = static_cast<std::uint8_t>(words[i] >> 24);
      } else {
        const auto integer = static_cast<std::uint16_t>(words[i] >> 16);
        std::memcpy(out, &integer, 2);
      }
    }
  }

  const Op& op_;
  const std::uint16_t number_;
  const DrawKey& key_;
  const Finish& finish_;
  const std::uint32_t height_, width_;
  std::uint8_t* const out_;
};

}  // namespace

void erase(std::span<const Op> ops, const DrawKey& key, const Finish& finish, std::uint32_t height, std::uint32_t width,
           std::uint8_t* out) noexcept {
  // They are last (check_ops).
  std::size_t first = ops.size();
  while (first > 0 && ops[first - 1].kind == OpKind::random_erasing) --first;
  for (std::size_t k = first; k < ops.size(); ++k)
    Eraser(ops[k], static_cast<std::uint16_t>(k), key, finish, height, width, out).run();
}

}  // namespace headrace
