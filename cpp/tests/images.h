// SPDX-License-Identifier: Apache-2.0
// Seeded images for the core's tests: of any shape and kind of sample, with contents that reach every kind of tile and
// class of block.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "headrace/codec.h"

namespace headrace::tests {

// The same numbers on every machine: splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((next() >> 32) * n >> 32); }

 private:
  std::uint64_t state_;
};

enum class Content { noise, smooth, textures, outliers, colors, levels, constant };
inline constexpr std::array kContents = {Content::noise,  Content::smooth, Content::textures, Content::outliers,
                                         Content::colors, Content::levels, Content::constant};

inline const char* name_of(Content content) {
  constexpr std::array names = {"noise", "smooth", "textures", "outliers", "colors", "levels", "constant"};
  return names[static_cast<std::size_t>(content)];
}

struct Kind {
  std::uint32_t channels;
  std::uint32_t depth;
  bool is_signed;
};

// An interleaved image that owns its samples.
struct Image {
  std::uint32_t height, width;
  Kind kind;
  std::vector<std::uint8_t> bytes;

  std::size_t pixel_bytes() const { return kind.channels * kind.depth / 8; }
  std::size_t row_bytes() const { return width * pixel_bytes(); }
  const std::uint8_t* at(std::uint32_t y, std::uint32_t x) const {
    return bytes.data() + y * row_bytes() + x * pixel_bytes();
  }
  Pixels pixels() const {
    return {bytes.data(),
            static_cast<std::ptrdiff_t>(row_bytes()),
            static_cast<std::ptrdiff_t>(pixel_bytes()),
            static_cast<std::ptrdiff_t>(kind.depth / 8),
            height,
            width,
            kind.channels,
            kind.depth,
            kind.is_signed};
  }
};

// The sample of one channel; what the contents share is that a sample depends little on those far from it.
class Painter {
 public:
  Painter(Content content, Kind kind, Random& random) : content_(content), kind_(kind), random_(random) {
    for (auto& v : values_) v = static_cast<std::uint32_t>(random.next());
  }

  std::uint32_t operator()(std::uint32_t y, std::uint32_t x, std::uint32_t c) {
    const std::uint32_t slope = kind_.depth == 8 ? 1 : 37,
                        surface = values_[c] + slope * (2 * x + 3 * y + (x * y >> 6));
    switch (content_) {
      case Content::noise:
        return static_cast<std::uint32_t>(random_.next());
      case Content::smooth:
        return surface + random_.below(4);
      case Content::textures: {  // from still to wild, a step every 24 columns and 8 rows
        const std::uint32_t bits = (x / 24 + y / 8) % (kind_.depth + 1);
        return surface + (bits == 0 ? 0 : random_.below(1U << bits));
      }
      case Content::outliers:
        return random_.below(50) == 0 ? static_cast<std::uint32_t>(random_.next()) : surface + random_.below(3);
      case Content::colors:
        if (c == 0 && random_.below(9) == 0) color_ = random_.below(x < 300 ? 5 : 200);
        return values_[(color_ + 3 * c) % values_.size()] + color_;
      case Content::levels:  // far fewer values than the depth has room for
        return values_[0] % 97 + (slope * 29) * ((x + y) / 16 % 5 + random_.below(3));
      default:
        return values_[c];
    }
  }

 private:
  Content content_;
  Kind kind_;
  Random& random_;
  std::array<std::uint32_t, 64> values_;
  std::uint32_t color_ = 0;
};

inline Image make_image(Content content, std::uint32_t height, std::uint32_t width, Kind kind, Random& random) {
  Image image{height, width, kind, {}};
  image.bytes.resize(height * image.row_bytes());
  Painter paint(content, kind, random);
  std::uint8_t* to = image.bytes.data();
  for (std::uint32_t y = 0; y < height; ++y)
    for (std::uint32_t x = 0; x < width; ++x)
      for (std::uint32_t c = 0; c < kind.channels; ++c, to += kind.depth / 8) {
        const auto sample = static_cast<std::uint16_t>(paint(y, x, c));
        if (kind.depth == 8)
          *to = static_cast<std::uint8_t>(sample);
        else
          std::memcpy(to, &sample, 2);
      }
  return image;
}

}  // namespace headrace::tests
