// SPDX-License-Identifier: Apache-2.0
// The second half of a mosaic: its tiles, which were decoded one by one, are put together and transformed as one image.
#pragma once

#include <cstdint>
#include <span>

#include "loading/sample.h"

namespace headrace {

// Run the transform, whose first operation is a mosaic, on the canvas that the tiles make: four of them, or one if the
// draws of the sample say so. Write expected.bytes() to `out`. Fails with bad_argument if tiles differ in channels or
// dtype, or if their sizes are not those that are seen.
Status transform_canvas(const Transform& transform, std::span<const Picture> tiles, const DrawKey& key,
                        const OutputShape& expected, std::uint8_t* out, Workspace& workspace) noexcept;

}  // namespace headrace
