// SPDX-License-Identifier: Apache-2.0
// PNG files for tests: written without compression, with any filter in each row.
#pragma once

#include <cstdint>
#include <vector>

#include "images.h"

namespace headrace::tests {

// An empty file if PNG cannot hold the image. Rows have random filters; the data has several IDAT chunks.
std::vector<std::uint8_t> make_png(const Image& image, Random& random);

// A PNG file around filtered rows, which are stored as they are.
std::vector<std::uint8_t> wrap_png(Bytes ihdr, Bytes other_chunks, Bytes filtered_rows);

// Set the checksums of all chunks right, as far as the lengths of the chunks are within the file.
void seal_png(std::vector<std::uint8_t>& file);

// Undo the filter of one row as the specification says it. `above` is the row above, or zeros.
void unfilter_row(unsigned filter, std::size_t pixel_bytes, const std::vector<std::uint8_t>& above,
                  std::vector<std::uint8_t>& row);

}  // namespace headrace::tests
