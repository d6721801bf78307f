// SPDX-License-Identifier: Apache-2.0
// Steps that take a pixel's channels apart: another order of them, and a JPEG file in between.
#include <array>
#include <cstring>
#include <utility>

#include "headrace/image.h"
#include "jpeg/encode.h"
#include "jpeg/rows.h"
#include "transform/draws.h"
#include "transform/photometric/steps.h"

namespace headrace {
namespace {

constexpr Status no_memory() noexcept { return {Code::no_memory, "no memory to transform an image"}; }

template <class Sample>
void permute(const Picture& picture, const std::uint32_t* from, std::uint32_t acting) noexcept {
  Sample pixel[kMaxChannels];
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    auto* at = reinterpret_cast<Sample*>(picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride);
    for (std::uint32_t x = 0; x < picture.width; ++x, at += picture.type.channels) {
      std::memcpy(pixel, at, acting * sizeof(Sample));
      for (std::uint32_t c = 0; c < acting; ++c) at[c] = pixel[from[c]];
    }
  }
}

// The first channels of each pixel, 8 bits each.
void copy_channels(const Picture& from, const Picture& to, std::uint32_t channels) noexcept {
  for (std::uint32_t y = 0; y < from.height; ++y) {
    const std::uint8_t* in = from.first + static_cast<std::ptrdiff_t>(y) * from.stride;
    std::uint8_t* out = to.first + static_cast<std::ptrdiff_t>(y) * to.stride;
    for (std::uint32_t x = 0; x < from.width; ++x, in += from.type.channels, out += to.type.channels)
      std::memcpy(out, in, channels);
  }
}

Status through_file(int quality, const Picture& picture) noexcept {
  JpegFile file;
  if (Status s = encode_jpeg(picture, quality, file); !s) return s;
  JpegHeader header;
  if (Status s = parse_jpeg(file.bytes(), header); !s) return s;
  JpegRows decoder;
  if (Status s = decoder.open(file.bytes(), header, {{0, 0, picture.height, picture.width}}); !s) return s;
  Rows rows;
  for (std::uint32_t y = 0; y < picture.height; y += rows.count) {
    if (Status s = decoder.next(picture.height - y, rows); !s) return s;
    for (std::uint32_t i = 0; i < rows.count; ++i)
      std::memcpy(picture.first + static_cast<std::ptrdiff_t>(y + i) * picture.stride, rows.row(i),
                  std::size_t{picture.width} * picture.type.channels);
  }
  return {};
}

}  // namespace

void permute_channels(const ColorStep& step, const DrawKey& key, Picture& picture) noexcept {
  const std::uint32_t acting = acting_channels(picture.type);
  std::array<std::uint32_t, kMaxChannels> from{};
  for (std::uint32_t c = 0; c < acting; ++c) from[c] = c;
  std::array<std::uint32_t, 4> words{};
  for (std::uint32_t c = 0; c + 1 < acting; ++c) {
    if (c % 4 == 0) words = draw(key, step.operation, static_cast<std::uint16_t>(c / 4));
    std::swap(from[c], from[c + below(words[c % 4], acting - c)]);
  }
  if (picture.type.depth == 8)
    permute<std::uint8_t>(picture, from.data(), acting);
  else
    permute<std::uint16_t>(picture, from.data(), acting);
}

Status compress_as_jpeg(int quality, Picture& picture, Workspace& workspace) noexcept {
  const PixelType& type = picture.type;
  if (type.depth != 8 || (type.channels != 1 && type.channels != 3 && type.channels != 4))
    return {Code::bad_argument, "JPEG needs a uint8 image of 1, 3 or 4 channels; omit it for this image"};
  if (type.channels != 4) return through_file(quality, picture);
  Picture rgb = picture;
  rgb.type.channels = 3;
  rgb.stride = static_cast<std::ptrdiff_t>(std::size_t{picture.width} * 3);
  rgb.first = workspace.filter_rows.reserve(static_cast<std::size_t>(rgb.stride) * picture.height);
  if (!rgb.first) return no_memory();
  copy_channels(picture, rgb, 3);
  if (Status s = through_file(quality, rgb); !s) return s;
  copy_channels(rgb, picture, 3);
  return {};
}

}  // namespace headrace
