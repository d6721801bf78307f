// SPDX-License-Identifier: Apache-2.0
// Regions of one image, row by row: encoded in a format that the core decodes, or already in memory.
#pragma once

#include <cstdint>

#include "headrace/codec.h"
#include "loading/byte_source.h"
#include "loading/hri_rows.h"
#include "jpeg/rows.h"
#include "loading/raw_rows.h"
#include "png/rows.h"
#include "transform/color.h"
#include "transform/rows.h"

namespace headrace {

// As in the index of a dataset.
enum class Format : std::uint8_t { hri_fast = 1, hri_dense = 2, png = 3, jpeg = 4, webp = 5, raw = 6 };

// Does the core decode it, or must someone else?
bool core_decodes(Format format) noexcept;

// Is all of a file read before any of it is decoded?
bool reads_entire_file(Format format) noexcept;

// Can so many channels be colors with alpha, or CMYK?
constexpr bool may_have_color(std::uint32_t channels) noexcept { return channels == 2 || channels == 4; }

// Does every file of the format define what its channels are (gray, RGB, alpha, CMYK)? `.hri` and raw hold any bands.
bool defines_color(Format format) noexcept;

struct ImageShape {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  PixelType type;
  // 2 channels are gray and alpha, 4 are RGBA or CMYK. If false, they may be any bands; of other numbers it is false.
  bool has_color = false;

  bool operator==(const ImageShape&) const = default;
};

enum class Color : std::uint8_t {
  keep,       // channels as stored
  rgb,        // three channels of every image; 2 and 4 channels are taken for gray or RGB with alpha
  automatic,  // three channels of gray, RGB, and what is known to have alpha or to be CMYK; others as stored
};

// Is an image of so many channels converted to three?
bool becomes_rgb(Color color, std::uint32_t channels, bool has_color) noexcept;

class ImageRows {
 public:
  virtual ~ImageRows() = default;
  // Begin a region, which lies within the image. The rows are valid until the next call.
  virtual Status start(Region region, RowSource*& rows) noexcept = 0;
  // Decode at 1/2, 1/4 or 1/8 of the size from now on (1: at full size), approximately, if the format can and it was
  // asked for: then true, and regions are those of the smaller image, whose sides are rounded up.
  virtual bool reduce(unsigned denominator) noexcept {
    static_cast<void>(denominator);
    return false;
  }
};

// Pixels in memory.
class PictureRows final : public ImageRows, public RowSource {
 public:
  explicit PictureRows(const Picture& picture) noexcept : picture_(picture) {}
  Status start(Region region, RowSource*& rows) noexcept override {
    at_ = {picture_.first + static_cast<std::ptrdiff_t>(region.top) * picture_.stride +
               std::size_t{region.left} * picture_.type.pixel_bytes(),
           picture_.stride, region.height};
    rows = this;
    return {};
  }
  Status next(std::uint32_t max_rows, Rows& rows) noexcept override {
    rows = at_;
    rows.count = max_rows < at_.count ? max_rows : at_.count;
    at_.first = at_.row(rows.count);
    at_.count -= rows.count;
    return {};
  }

 private:
  Picture picture_;
  Rows at_;
};

struct DecodeOptions {
  Color color = Color::keep;
  bool has_color = false;  // as the index claims
  std::uint64_t max_pixels = 0;
  bool approximate_jpeg = false;
  const std::uint32_t* checksum = nullptr;  // from the index, for formats without a checksum of their own
  bool indices = false;                     // of a palette, instead of its colors: what a mask means by them
};

// Decodes images one after the other. Each thread has its own, with its workspace.
class Decoder final : public ImageRows {
 public:
  explicit Decoder(Workspace& workspace) noexcept : workspace_(workspace) {}

  // Read and check the header. If the image becomes RGB, alpha is dropped and CMYK is converted; a single channel stays
  // single.
  Status open(Format format, ByteSource& bytes, const DecodeOptions& options, ImageShape& shape) noexcept;
  Status start(Region region, RowSource*& rows) noexcept override;
  bool reduce(unsigned denominator) noexcept override;

 private:
  // Gives the first channels of a source that has one more, or RGB of CMYK.
  class Narrowed final : public RowSource {
   public:
    void open(RowSource& source, const PixelType& type, std::uint32_t width, bool cmyk, Buffer& buffer) noexcept;
    Status next(std::uint32_t max_rows, Rows& rows) noexcept override;

   private:
    RowSource* source_ = nullptr;
    PixelType type_;
    std::uint32_t width_ = 0;
    bool cmyk_ = false;
    Buffer* buffer_ = nullptr;
  };

  Workspace& workspace_;
  Format format_ = Format::raw;
  HriRows hri_;
  RawRows raw_;
  Extent file_;  // of a format that is read entirely
  JpegRows jpeg_;
  JpegHeader jpeg_header_;
  PngRows png_;
  PngHeader png_header_;
  PngColors png_colors_ = PngColors::all;
  bool approximate_ = false;
  unsigned denominator_ = 1;
  bool rgb_ = false;
  PixelType stored_;
  bool narrows_ = false;
  bool cmyk_ = false;
  Narrowed narrowed_;
  Buffer narrow_rows_;
};

}  // namespace headrace
