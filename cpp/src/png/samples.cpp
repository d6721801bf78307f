// SPDX-License-Identifier: Apache-2.0
#include "png/samples.h"

#include <algorithm>
#include <cstring>

namespace headrace {
namespace {

// Samples of a row, each in a byte.
struct Octets {
  const std::uint8_t* row;
  std::uint32_t operator()(std::uint32_t i) const noexcept { return row[i]; }
};

// Samples of less than 8 bits, the first one in the high bits of a byte.
struct Bits {
  const std::uint8_t* row;
  std::uint32_t depth;
  std::uint64_t first;
  std::uint32_t operator()(std::uint32_t i) const noexcept {
    const std::uint64_t bit = (first + i) * depth;
    return row[bit / 8] >> (8 - depth - bit % 8) & ((1U << depth) - 1);
  }
};

void swap_bytes(const std::uint8_t* in, std::size_t samples, std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < samples; ++i) {
    out[2 * i] = in[2 * i + 1];
    out[2 * i + 1] = in[2 * i];
  }
}

template <class Samples>
void scale(const Samples& sample, std::uint32_t width, std::uint32_t factor, std::uint8_t* out) noexcept {
  for (std::uint32_t i = 0; i < width; ++i) out[i] = static_cast<std::uint8_t>(sample(i) * factor);
}

}  // namespace

void PngSamples::open(const PngHeader& header, PngColors colors, std::uint32_t width) noexcept {
  depth_ = header.depth;
  width_ = width;
  step_ = depth_ == 16 ? Step::swap : depth_ < 8 ? Step::scale : Step::none;
  if (header.kind != PngKind::palette) {
    channels_ = header.stored_channels();
    return;
  }
  entries_ = static_cast<std::uint32_t>(header.palette.size() / 3);
  step_ = colors == PngColors::indices ? Step::check : Step::look_up;
  channels_ = colors == PngColors::opaque ? 3 : header.channels(colors == PngColors::indices);
  palette_ = {};
  for (std::uint32_t i = 0; i < entries_; ++i) {
    std::memcpy(palette_[i].data(), header.palette.data() + 3 * i, 3);
    palette_[i][3] = i < header.alphas.size() ? header.alphas[i] : 255;
  }
}

bool PngSamples::convert(const std::uint8_t* row, bool packed, std::uint32_t first, std::uint8_t* out) noexcept {
  if (step_ == Step::swap) {
    swap_bytes(row, std::size_t{width_} * channels_, out);
    return true;
  }
  const auto finish = [&](const auto& sample) {
    if (step_ == Step::look_up) return look_up(sample, out);
    scale(sample, width_, step_ == Step::scale ? 255 / ((1U << depth_) - 1) : 1, out);
    return step_ != Step::check || *std::max_element(out, out + width_) < entries_;
  };
  return packed ? finish(Bits{row, depth_, first}) : finish(Octets{row});
}

template <class Samples>
bool PngSamples::look_up(const Samples& index_of, std::uint8_t* out) const noexcept {
  std::uint32_t largest = 0;
  for (std::uint32_t i = 0; i < width_; ++i, out += channels_) {
    const std::uint32_t index = index_of(i);
    largest = std::max(largest, index);
    std::memcpy(out, palette_[index].data(), 4);  // of three channels, the next pixel overwrites the fourth byte
  }
  return largest < entries_;
}

}  // namespace headrace
