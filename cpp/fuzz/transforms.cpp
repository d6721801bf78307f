// SPDX-License-Identifier: Apache-2.0
// The fuzz target of transforms: lists of any operations on images of 1x1 to 400x400 pixels, 1 to 8 channels and all
// dtypes, and mixtures of what comes out. An input is a stream of choices (`Reader`); any bytes are a valid one, and
// what is missing follows from their checksum.
//
// Promises checked: no undefined behaviour, nothing read or written beyond an image, the shape that was announced is
// the one that comes out, every target gives the same bits, and floats are finite and within the range of levels.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "canvas.h"
#include "headrace/targets.h"
#include "loading/sample.h"
#include "operations.h"
#include "transform/mix.h"
#include "transform/workspace.h"

namespace headrace::fuzz {
namespace {

constexpr std::uint64_t kMaxPixels = 1 << 18;  // larger results take most of the time and little of the code

void require(bool kept, const char* promise) { fuzz::require(kept, promise, "transforms"); }

std::uint32_t any_side(Reader& reader) {
  const std::uint32_t kind = reader.byte() % 16;
  return 1 + (kind < 4 ? reader.byte() % 4 : kind < 15 ? reader.byte() % 64 : reader.pair() % 400);
}

PixelType any_type(Reader& reader) {
  const std::uint32_t choice = reader.byte();
  return {1 + choice % 8, choice % 3 == 0 ? 16U : 8U, choice % 3 == 0 && choice % 2 == 0};
}

// Noise, or few levels, or one.
Heap any_pixels(Reader& reader, std::size_t bytes) {
  Heap pixels(bytes);
  const auto mask = static_cast<std::uint8_t>(reader.byte());
  Reader noise({}, reader.byte() + 1);
  for (std::size_t i = 0; i < bytes; ++i) pixels.data()[i] = static_cast<std::uint8_t>(noise.byte() & mask);
  return pixels;
}

Transform any_transform(Reader& reader) {
  Transform transform;
  transform.max_pixels = kMaxPixels;
  add_operations(reader, 0, reader.byte() % 8, transform.ops);
  if (reader.byte() % 4 == 0) transform.ops.push_back(any_erasing(reader));
  if (!check_ops(transform.ops)) transform.ops.clear();
  const std::uint32_t options = reader.byte();
  transform.layout = options & 1 ? Layout::hwc : Layout::chw;
  transform.mask = (options & 14) == 14;
  transform.color = transform.mask || (options & 16) ? Color::keep : options & 32 ? Color::rgb : Color::automatic;
  if (options & 64) transform.dtype = static_cast<DType>(reader.byte() % 5);
  if (!transform.mask && reader.byte() % 8 == 0) {
    transform.dtype = DType::float32;
    transform.mean = {0.5};
    transform.std = {0.25};
  }
  return transform;
}

bool erases(const Transform& transform) {
  return std::any_of(transform.ops.begin(), transform.ops.end(),
                     [](const Op& op) { return op.kind == OpKind::random_erasing; });
}

// Of float32 on the scale of levels. Erasing writes any number.
void check_range(const Transform& transform, const OutputShape& shape, const Heap& out) {
  if (shape.dtype != DType::float32 || !transform.mean.empty() || erases(transform)) return;
  const auto* const numbers = reinterpret_cast<const float*>(out.data());
  for (std::size_t i = 0; i < out.size() / sizeof(float); ++i)
    require(numbers[i] >= -1 && numbers[i] <= 1.0001f, "floats are within the range of levels");
}

// Mix the image with an inverted one, as a batch of two.
void mix(Reader& reader, const OutputShape& shape, const DrawKey& key, const Heap& out, bool chw) {
  MixOptions options{reader.byte() / 64.0, reader.byte() / 64.0, reader.byte() / 255.0, reader.byte() / 255.0};
  const bool is_float = shape.dtype == DType::float32 || shape.dtype == DType::float16;
  if (!is_float) options.mixup_alpha = 0;
  if (!check_mix(options)) return;
  Heap batch(2 * out.size());
  std::memcpy(batch.data(), out.data(), out.size());
  std::memset(batch.data() + out.size(), 0, out.size());
  const Mixture mixture = draw_mixture(options, key, 32768, shape.height, shape.width);
  const std::size_t bytes = dtype_bytes(shape.dtype);
  if (mixture.kind == MixKind::mixup)
    mix_images(batch.data(), 2, out.size() / bytes, shape.dtype, mixture.share, 1 + reader.byte() % 2);
  if (mixture.kind == MixKind::cutmix)
    cut_images(batch.data(), 2, chw ? shape.channels : 1, shape.height, shape.width,
               chw ? bytes : bytes * shape.channels, mixture);
}

void run(Bytes input) {
  Reader reader(input, crc32c(input));
  const std::uint32_t height = any_side(reader), width = any_side(reader);
  const PixelType type = any_type(reader);
  const std::size_t row = std::size_t{width} * type.pixel_bytes();
  const Heap pixels = any_pixels(reader, row * height);
  const Transform transform = any_transform(reader);
  const ImageShape stored{height, width, type, reader.byte() % 2 == 0 && may_have_color(type.channels)};
  const DrawKey key{reader.pair(), reader.byte(), reader.pair(), static_cast<std::uint16_t>(reader.pair())};
  OutputShape shape;
  if (!output_shape(transform, stored, key, shape)) return;
  require(shape.bytes() <= kMaxPixels * 8 * sizeof(float), "an image is not larger than max_pixels");
  // Without the scalar target most runs take a tenth of the time.
  auto all = targets();
  if (reader.byte() % 8 != 0 && all.size() > 1) all = all.subspan(1);
  const headrace::Picture picture{pixels.data(), static_cast<std::ptrdiff_t>(row), height, width, type};
  Heap first(std::size_t{0});
  Status status;
  for (std::size_t k = 0; k < all.size(); ++k) {
    use_target(all[k]);
    PictureRows rows(picture);
    Workspace workspace;
    Heap out(static_cast<std::size_t>(shape.bytes()));
    std::memset(out.data(), 0, out.size());
    const Status made = transform_image(transform, stored, rows, key, shape, out.data(), workspace);
    if (k == 0) {
      status = made;
      first = Heap(out.bytes());
    }
    require(made.code == status.code, "every target gives the same status");
    require(same(out.bytes(), first.bytes()), "every target gives the same bits");
  }
  if (!status) return;
  check_range(transform, shape, first);
  mix(reader, shape, key, first, transform.layout == Layout::chw);
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  headrace::fuzz::run({data, size});
  return 0;
}
