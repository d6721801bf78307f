// SPDX-License-Identifier: Apache-2.0
// One image through its transform into the place where it belongs in the batch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headrace/transform.h"
#include "loading/image_rows.h"
#include "transform/finish.h"

namespace headrace {

// What the codec allows by default, too.
inline constexpr std::uint64_t kMaxPixels = std::uint64_t{1} << 30;

// What is done to the images, or to the masks, of a dataset. Immutable once made.
struct Transform {
  std::vector<Op> ops;
  std::optional<DType> dtype;  // none: the image's own, or float32 with a mean
  Layout layout = Layout::chw;
  std::vector<double> mean, std;   // none, one, or one a channel; on the scale of 0 to 1
  Color color = Color::automatic;  // of a mask always `keep`
  std::uint64_t max_pixels = kMaxPixels;
  bool mask = false;  // nearest, colors untouched, as stored
  bool approximate_jpeg = false;
};

struct OutputShape {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;
  DType dtype = DType::uint8;

  std::uint64_t bytes() const noexcept { return std::uint64_t{height} * width * channels * dtype_bytes(dtype); }
  bool operator==(const OutputShape&) const = default;
};

// What comes out for an image as it is stored; Code::too_large if that, or what leads to it, is over max_pixels. Its
// bytes do not wrap: channels are at most kMaxChannels, sides below 2^24.
Status output_shape(const Transform& transform, const ImageShape& stored, const DrawKey& key,
                    OutputShape& shape) noexcept;

// Run the transform on an image whose working shape (after Decoder::open) is `shape`; write expected.bytes() to `out`.
Status transform_image(const Transform& transform, const ImageShape& shape, ImageRows& image, const DrawKey& key,
                       const OutputShape& expected, std::uint8_t* out, Workspace& workspace) noexcept;

}  // namespace headrace
