// SPDX-License-Identifier: Apache-2.0
// All views of one image, from as little decoding as possible.
#pragma once

#include <cstdint>
#include <span>

#include "loading/sample.h"

namespace headrace {

// Views of a sample that are made alike, up to their draws.
struct ViewGroup {
  Transform transform;  // a copy: releasing one that Python owns needs the GIL, which worker threads do not hold
  std::uint16_t views = 1;
};

// One view of an image: its transform, its draws, and its place in the batch.
struct View {
  const Transform* transform = nullptr;
  DrawKey key;
  OutputShape expected;
  std::uint8_t* out = nullptr;
};

// Make every view of an image, as transform_image makes one: with the same pixels. `entire` says that decoding a part
// of the image costs about as much as decoding all of it. Several views are made from one picture in the workspace, the
// smallest that holds what they need, if decoding that costs less than decoding what each of them needs.
Status transform_views(std::span<const View> views, const ImageShape& shape, bool entire, ImageRows& image,
                       Workspace& workspace) noexcept;

}  // namespace headrace
