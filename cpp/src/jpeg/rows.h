// SPDX-License-Identifier: Apache-2.0
// JPEG through libjpeg-turbo: only the region that is needed, a few rows at a time, and bit for bit what a full decode
// has there. The pixels are those of headrace.formats: exact DCT, smooth upsampling, CMYK to RGB as Pillow does it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "headrace/codec.h"
#include "transform/rows.h"

namespace headrace {

// Which library decodes, as in "libjpeg-turbo 2.1.5".
const char* jpeg_library() noexcept;

struct JpegHeader {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t channels = 0;  // 1: gray, 3: color, 4: CMYK
  bool progressive = false;
  bool adobe = false;  // an Adobe segment is there; CMYK beside one is stored inverted
};

// Walk the segments up to the first scan and check their places and lengths. Needs no library, allocates nothing.
Status parse_jpeg(Bytes file, JpegHeader& header) noexcept;

enum class JpegColor : std::uint8_t {
  keep,  // the file's channels; CMYK with 255 for full ink
  rgb,   // three channels, whatever the file has
};

struct JpegRequest {
  Region region;  // of the image after scaling, which has ceil(width / scale_denominator) columns
  JpegColor color = JpegColor::keep;
  unsigned scale_denominator = 1;  // 1, 2, 4 or 8; more than 1 leaves out high frequencies and is approximate
  std::uint64_t max_pixels = std::uint64_t{1} << 30;
};

// One of these serves a thread for all its images: it is opened again and keeps its row buffer. Whatever libjpeg warns
// of is an error, but what lies below the region is never read, so damage there is not seen.
class JpegRows final : public RowSource {
 public:
  JpegRows() noexcept;
  ~JpegRows() override;
  JpegRows(const JpegRows&) = delete;
  JpegRows& operator=(const JpegRows&) = delete;

  // `file` stays the caller's and must live until the last row was read. The header is that of the same bytes. All
  // scans of a file that has several are read here.
  Status open(Bytes file, const JpegHeader& header, const JpegRequest& request) noexcept;

  PixelType pixel_type() const noexcept { return {channels_, 8, false}; }

  Status next(std::uint32_t max_rows, Rows& rows) noexcept override;

  // Give back the library's memory before all rows were read. `open` does so too.
  void close() noexcept;

  struct State;

 private:
  std::unique_ptr<State> state_;
  std::uint32_t channels_ = 0;
};

}  // namespace headrace
