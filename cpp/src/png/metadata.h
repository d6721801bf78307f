// SPDX-License-Identifier: Apache-2.0
// The metadata of a PNG file: an ICC profile, EXIF and XMP.
#pragma once

#include <cstdint>

#include "png/header.h"
#include "transform/workspace.h"

namespace headrace {

// Empty blocks are not there.
struct PngMetadata {
  Bytes icc;
  Bytes exif;
  Bytes xmp;
};

// The blocks of a file whose chunks parse_png found to be valid, the first of each kind. Damaged ones are omitted, and
// ones of more than 64 MiB. Blocks that are compressed in the file lie in the buffers.
struct PngMetadataBuffers {
  Buffer icc;
  Buffer xmp;
};
Status read_png_metadata(Bytes file, PngMetadataBuffers& buffers, PngMetadata& metadata) noexcept;

// Is there an acTL chunk with more than one frame before the image data? False for a damaged file.
bool is_animated_png(Bytes file) noexcept;

}  // namespace headrace
