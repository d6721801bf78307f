// SPDX-License-Identifier: Apache-2.0
#include "loading/image_rows.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "headrace/transform.h"

namespace headrace {
namespace {

constexpr std::uint32_t kNarrowRows = 32;  // converted at a time
constexpr std::uint32_t kMaxSide = 65535;  // of an image in a dataset

bool is_cmyk(const ImageHeader& header) noexcept {
  if (header.channels != 4 || header.depth != 8) return false;
  Bytes rest = header.metadata;
  for (MetadataEntry entry; next_metadata(rest, entry);) {
    const auto text = [](Bytes b) { return std::string_view(reinterpret_cast<const char*>(b.data()), b.size()); };
    if (text(entry.key) == "color") return text(entry.value) == "CMYK";
  }
  return false;
}

// As Pillow converts: 255 is full ink, and black scales the rest.
std::uint8_t without_ink(std::uint32_t ink, std::uint32_t white) noexcept {
  const std::uint32_t product = ink * white + 128;
  return static_cast<std::uint8_t>(white - ((product + (product >> 8)) >> 8));
}

}  // namespace

bool core_decodes(Format format) noexcept {
  switch (format) {
    case Format::hri_fast:
    case Format::hri_dense:
    case Format::png:
    case Format::raw:
    case Format::jpeg:
      return true;
    default:
      return false;
  }
}

bool reads_entire_file(Format format) noexcept {
  return format == Format::jpeg || format == Format::png || !core_decodes(format);
}

bool defines_color(Format format) noexcept {
  return format == Format::png || format == Format::jpeg || format == Format::webp;
}

bool becomes_rgb(Color color, std::uint32_t channels, bool has_color) noexcept {
  if (color != Color::automatic) return color == Color::rgb;
  return channels == 1 || channels == 3 || (has_color && channels <= 4);
}

Status Decoder::open(Format format, ByteSource& bytes, const DecodeOptions& options, ImageShape& shape) noexcept {
  format_ = format;
  rgb_ = false;
  approximate_ = options.approximate_jpeg;
  denominator_ = 1;
  cmyk_ = narrows_ = false;
  switch (format) {
    case Format::hri_fast:
    case Format::hri_dense: {
      if (Status s = hri_.open(bytes, workspace_); !s) return s;
      const ImageHeader& h = hri_.header();
      shape = {h.height, h.width, {h.channels, h.depth, h.is_signed}};
      rgb_ = becomes_rgb(options.color, h.channels, options.has_color);
      cmyk_ = rgb_ && is_cmyk(h);
      break;
    }
    case Format::raw:
      if (Status s = raw_.open(bytes, workspace_); !s) return s;
      shape = {raw_.height(), raw_.width(), raw_.type()};
      rgb_ = becomes_rgb(options.color, raw_.type().channels, options.has_color);
      break;
    case Format::jpeg: {
      if (Status s = bytes.read(0, bytes.size(), workspace_.file, file_); !s) return s;
      if (options.checksum && crc32c(file_.bytes) != *options.checksum)
        return {Code::corrupt, "the checksum of the bytes does not match the one in the index", 0, -1};
      JpegHeader& header = jpeg_header_;
      if (Status s = parse_jpeg(file_.bytes, header); !s) return s;
      if (std::uint64_t{header.height} * header.width > options.max_pixels) return kTooManyPixels;
      // Its own decoder converts CMYK.
      rgb_ = options.color != Color::keep;
      const std::uint32_t channels = rgb_ && header.channels == 4 ? 3 : header.channels;
      shape = {header.height, header.width, {channels, 8, false}};
      break;
    }
    case Format::png: {
      if (Status s = bytes.read(0, bytes.size(), workspace_.file, file_); !s) return s;
      PngHeader& header = png_header_;
      if (Status s = parse_png(file_.bytes, PngExtent::file, header); !s) return s;
      if (std::uint64_t{header.height} * header.width > options.max_pixels) return kTooManyPixels;
      if (header.height > kMaxSide || header.width > kMaxSide)
        return {Code::unsupported, "an image must have at most 65535 rows and columns", 0, -1};
      rgb_ = options.color != Color::keep;
      png_colors_ = options.indices ? PngColors::indices : rgb_ ? PngColors::opaque : PngColors::all;
      shape = {header.height, header.width, PngRows::pixel_type(header, png_colors_)};
      break;
    }
    default:
      return {Code::unsupported, "the core does not decode this format", 0, -1};
  }
  stored_ = shape.type;
  if (rgb_ && format != Format::jpeg) {
    if (shape.type.channels > 4)
      return {Code::unsupported, "an image of more than four channels has no RGB: load it with color='keep'", 0, -1};
    narrows_ = shape.type.channels == 2 || shape.type.channels == 4;
    if (narrows_) shape.type.channels -= 1;
  }
  return {};
}

Status Decoder::start(Region region, RowSource*& rows) noexcept {
  Status status;
  if (format_ == Format::raw) {
    status = raw_.start(region);
    rows = &raw_;
  } else if (format_ == Format::jpeg) {
    // One channel stays one: it is repeated when all else is done.
    const JpegColor color = rgb_ && jpeg_header_.channels == 4 ? JpegColor::rgb : JpegColor::keep;
    status = jpeg_.open(file_.bytes, jpeg_header_, {region, color, denominator_});
    rows = &jpeg_;
  } else if (format_ == Format::png) {
    status = png_.open(png_header_, {region, png_colors_});
    rows = &png_;
  } else {
    status = hri_.start(region);
    rows = &hri_;
  }
  if (!status || !narrows_) return status;
  if (!narrow_rows_.reserve(std::size_t{region.width} * stored_.pixel_bytes() * kNarrowRows))
    return {Code::no_memory, "no memory to convert colors", 0, -1};
  narrowed_.open(*rows, stored_, region.width, cmyk_, narrow_rows_);
  rows = &narrowed_;
  return {};
}

bool Decoder::reduce(unsigned denominator) noexcept {
  if (format_ != Format::jpeg || !approximate_) return false;
  denominator_ = denominator;
  return true;
}

void Decoder::Narrowed::open(RowSource& source, const PixelType& type, std::uint32_t width, bool cmyk,
                             Buffer& buffer) noexcept {
  source_ = &source;
  type_ = type;
  width_ = width;
  cmyk_ = cmyk;
  buffer_ = &buffer;
}

Status Decoder::Narrowed::next(std::uint32_t max_rows, Rows& rows) noexcept {
  Rows wide;
  if (Status s = source_->next(std::min(max_rows, kNarrowRows), wide); !s) return s;
  const std::size_t from = type_.pixel_bytes(), to = from - type_.sample_bytes();
  const std::size_t stride = width_ * to;
  std::uint8_t* first = buffer_->reserve(0);
  for (std::uint32_t y = 0; y < wide.count; ++y) {
    const std::uint8_t* in = wide.row(y);
    std::uint8_t* out = first + y * stride;
    for (std::uint32_t x = 0; x < width_; ++x, in += from, out += to) {
      if (cmyk_) {
        const std::uint32_t white = 255U - in[3];
        for (int c = 0; c < 3; ++c) out[c] = without_ink(in[c], white);
      } else {
        std::memcpy(out, in, to);
      }
    }
  }
  rows = {first, static_cast<std::ptrdiff_t>(stride), wide.count};
  return {};
}

}  // namespace headrace
