// SPDX-License-Identifier: Apache-2.0
#include "picture.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace headrace::fuzz {
namespace {

constexpr std::uint32_t kMaxSamples = 1u << 12;
constexpr std::array<std::uint32_t, 12> kChannels{1, 1, 1, 2, 3, 3, 3, 4, 4, 5, 7, 64};

enum class Content { noise, levels, smooth, rectangles, outliers, sparse, count };

struct Shape {
  std::uint32_t height, width, channels, mask;

  std::size_t samples() const { return std::size_t{height} * width * channels; }
};

// Few distinct values: label maps, palettes, ranks.
void fill_levels(Reader& reader, const Shape& shape, std::vector<std::uint32_t>& samples) {
  const std::uint32_t levels = 1 + reader.byte(), step = 1 + reader.pair(), base = reader.pair();
  for (auto& sample : samples) sample = (base + reader.byte() % levels * step) & shape.mask;
}

// Small steps from the left: what prediction and entropy coding are for.
void fill_smooth(Reader& reader, const Shape& shape, std::vector<std::uint32_t>& samples) {
  const std::uint32_t reach = reader.byte() & 7;
  std::array<std::uint32_t, 64> last{};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::uint32_t& value = last[i % shape.channels];
    value += (reader.byte() >> reach) - (128u >> reach);
    samples[i] = value & shape.mask;
  }
}

void fill_rectangles(Reader& reader, const Shape& shape, std::vector<std::uint32_t>& samples) {
  while (!reader.empty()) {
    const std::uint32_t top = reader.byte() % shape.height, left = reader.pair() % shape.width;
    const std::uint32_t bottom = std::min(shape.height, top + 1 + reader.byte());
    const std::uint32_t right = std::min(shape.width, left + 1 + reader.byte());
    const std::uint32_t value = reader.pair();
    for (std::uint32_t y = top; y < bottom; ++y)
      for (std::uint32_t x = left; x < right; ++x)
        for (std::uint32_t c = 0; c < shape.channels; ++c)
          samples[(std::size_t{y} * shape.width + x) * shape.channels + c] = (value * (c + 1)) & shape.mask;
  }
}

// One value nearly everywhere: zero blocks, and widths that jump.
void fill_outliers(Reader& reader, const Shape& shape, std::vector<std::uint32_t>& samples) {
  std::fill(samples.begin(), samples.end(), reader.pair() & shape.mask);
  while (!reader.empty()) {
    const std::size_t at = (reader.byte() << 16 | reader.pair()) % samples.size();
    samples[at] = reader.pair() & shape.mask;
  }
}

}  // namespace

Picture::Picture(Bytes recipe) {
  Reader reader(recipe);
  read_shape(reader);
  read_metadata(reader);
  const unsigned layout = reader.byte();
  lay_out(read_samples(reader), layout);
}

void Picture::read_shape(Reader& reader) {
  const std::uint32_t flags = reader.byte();
  mode_ = flags & 1 ? Mode::dense : Mode::fast;
  pixels_.depth = flags & 2 ? 16 : 8;
  pixels_.is_signed = (flags & 6) == 6;
  pixels_.channels = kChannels[reader.byte() % kChannels.size()];
  pixels_.width = std::min(1 + reader.pair() % 600, kMaxSamples / pixels_.channels);
  pixels_.height = std::min(1 + reader.byte() % 100, std::max(1u, kMaxSamples / pixels_.channels / pixels_.width));
}

void Picture::read_metadata(Reader& reader) {
  const std::uint32_t entries = reader.byte() % 4;
  for (std::uint32_t entry = 0; entry < entries; ++entry) {
    const std::uint32_t value_bytes = reader.byte() % 32;
    metadata_.insert(metadata_.end(), {1, static_cast<std::uint8_t>('a' + entry)});
    metadata_.insert(metadata_.end(), {static_cast<std::uint8_t>(value_bytes), 0, 0, 0});
    for (std::uint32_t i = 0; i < value_bytes; ++i) metadata_.push_back(static_cast<std::uint8_t>(reader.byte()));
  }
}

std::vector<std::uint32_t> Picture::read_samples(Reader& reader) const {
  const Shape shape{pixels_.height, pixels_.width, pixels_.channels, pixels_.depth == 16 ? 0xFFFFu : 0xFFu};
  std::vector<std::uint32_t> samples(shape.samples());
  switch (static_cast<Content>(reader.byte() % static_cast<unsigned>(Content::count))) {
    case Content::noise:
      for (auto& sample : samples) sample = reader.pair() & shape.mask;
      break;
    case Content::levels:
      fill_levels(reader, shape, samples);
      break;
    case Content::smooth:
      fill_smooth(reader, shape, samples);
      break;
    case Content::rectangles:
      fill_rectangles(reader, shape, samples);
      break;
    case Content::outliers:
      fill_outliers(reader, shape, samples);
      break;
    default:
      for (auto& sample : samples) sample = (reader.byte() << 8) & shape.mask;
  }
  return samples;
}

// Bits of `layout`: 0 planar, 1 rows upside down, 2 columns mirrored, 3 channels reversed, 4 and 5 a gap after each
// row.
void Picture::lay_out(const std::vector<std::uint32_t>& samples, unsigned layout) {
  const std::ptrdiff_t height = pixels_.height, width = pixels_.width, channels = pixels_.channels;
  const std::ptrdiff_t sample_bytes = pixels_.depth / 8;
  const bool planar = layout & 1;
  const std::ptrdiff_t gap = static_cast<std::ptrdiff_t>(layout >> 4 & 3) * sample_bytes;
  pixels_.column_stride = planar ? sample_bytes : channels * sample_bytes;
  pixels_.row_stride = width * pixels_.column_stride + gap;
  pixels_.channel_stride = planar ? height * pixels_.row_stride : sample_bytes;

  memory_ = Heap(static_cast<std::size_t>((height - 1) * pixels_.row_stride + (width - 1) * pixels_.column_stride +
                                          (channels - 1) * pixels_.channel_stride + sample_bytes));
  std::memset(memory_.data(), 0xCD, memory_.size());
  std::uint8_t* origin = memory_.data();
  const auto mirror = [&origin](std::ptrdiff_t& stride, std::ptrdiff_t steps) {
    origin += stride * (steps - 1);
    stride = -stride;
  };
  if (layout & 2) mirror(pixels_.row_stride, height);
  if (layout & 4) mirror(pixels_.column_stride, width);
  if (layout & 8) mirror(pixels_.channel_stride, channels);
  pixels_.origin = origin;

  std::size_t next = 0;
  for (std::ptrdiff_t y = 0; y < height; ++y)
    for (std::ptrdiff_t x = 0; x < width; ++x)
      for (std::ptrdiff_t c = 0; c < channels; ++c) {
        const auto sample = static_cast<std::uint16_t>(samples[next++]);
        std::uint8_t* at = origin + y * pixels_.row_stride + x * pixels_.column_stride + c * pixels_.channel_stride;
        if (sample_bytes == 2)
          std::memcpy(at, &sample, 2);
        else
          *at = static_cast<std::uint8_t>(sample);
      }
}

Heap Picture::row(std::size_t y) const {
  const std::size_t sample_bytes = pixels_.depth / 8;
  Heap row(std::size_t{pixels_.width} * pixels_.channels * sample_bytes);
  std::uint8_t* to = row.data();
  for (std::uint32_t x = 0; x < pixels_.width; ++x)
    for (std::uint32_t c = 0; c < pixels_.channels; ++c, to += sample_bytes)
      std::memcpy(to,
                  pixels_.origin + static_cast<std::ptrdiff_t>(y) * pixels_.row_stride +
                      static_cast<std::ptrdiff_t>(x) * pixels_.column_stride +
                      static_cast<std::ptrdiff_t>(c) * pixels_.channel_stride,
                  sample_bytes);
  return row;
}

}  // namespace headrace::fuzz
