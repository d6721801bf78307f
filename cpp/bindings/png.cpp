// SPDX-License-Identifier: Apache-2.0
// PNG files: decode a region into an array, read the metadata, and encode.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "buffers.h"
#include "errors.h"
#include "gil.h"
#include "png/encode.h"
#include "png/rows.h"
#include "transform.h"

namespace headrace::bindings {
namespace {

using RegionTuple = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

PngColors parse_colors(std::string_view colors) {
  if (colors == "all") return PngColors::all;
  if (colors == "opaque") return PngColors::opaque;
  if (colors == "indices") return PngColors::indices;
  throw nb::value_error("colors must be 'all', 'opaque' or 'indices'");
}

PngHeader parse(const Buffer& file, PngExtent extent) {
  PngHeader header;
  if (const Status status = parse_png(file.bytes(), extent, header); !status) raise_status(status);
  return header;
}

// What the helpers for outputs need to know of an image.
ImageHeader as_image(const PngHeader& png, PngColors colors) {
  const PixelType type = PngRows::pixel_type(png, colors);
  ImageHeader header;
  header.width = png.width;
  header.height = png.height;
  header.channels = type.channels;
  header.depth = type.depth;
  return header;
}

nb::tuple png_shape(nb::handle data, std::string_view colors) {
  const Buffer file = borrow_bytes(data);
  const ImageHeader image = as_image(parse(file, PngExtent::head), parse_colors(colors));
  return nb::make_tuple(image.height, image.width, image.channels, image.depth == 8 ? "uint8" : "uint16");
}

// The blocks under the names of `.hri` metadata.
nb::dict png_metadata(nb::handle data) {
  const Buffer file = borrow_bytes(data);
  PngMetadataBuffers buffers;
  PngMetadata metadata;
  if (const Status status = read_png_metadata(file.bytes(), buffers, metadata); !status) raise_status(status);
  nb::dict blocks;
  const auto add = [&](const char* name, Bytes block) {
    if (!block.empty()) blocks[name] = nb::bytes(block.data(), block.size());
  };
  add("exif", metadata.exif);
  add("icc", metadata.icc);
  add("xmp", metadata.xmp);
  return blocks;
}

// A thread's decoder, with its memory. It is taken while it is in use: a finalizer may run in between and decode too.
class Lease {
 public:
  Lease() : rows_(kept_ ? std::move(kept_) : std::make_unique<PngRows>()) {}
  ~Lease() { kept_ = std::move(rows_); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  PngRows& rows() noexcept { return *rows_; }

 private:
  static inline thread_local std::unique_ptr<PngRows> kept_;
  std::unique_ptr<PngRows> rows_;
};

nb::object decode_png(nb::handle data, std::string_view colors_name, std::optional<RegionTuple> region_tuple,
                      nb::handle out) {
  const Buffer file = borrow_bytes(data);
  const PngColors colors = parse_colors(colors_name);
  const PngHeader header = parse(file, PngExtent::file);
  const ImageHeader image = as_image(header, colors);
  Region region{0, 0, header.height, header.width};
  if (region_tuple) {
    const auto [top, left, height, width] = *region_tuple;
    region = {top, left, height, width};
  }
  // Rows are read before memory is allocated for them: the sides are only a claim.
  Lease lease;
  PngRows& rows = lease.rows();
  Status status;
  {
    const WithoutGil released;
    status = rows.open(header, {region, colors});
  }
  if (!status) raise_status(status);
  Buffer target;
  nb::object array = out.is_none() ? allocate_output(image, region, target) : nb::borrow(out);
  if (!out.is_none()) target = borrow_output(out);
  const Rows to = out.is_none() ? Rows{static_cast<std::uint8_t*>(target.view().buf),
                                       static_cast<std::ptrdiff_t>(std::size_t{region.width} * image.pixel_bytes())}
                                : output_rows(target, 0, image, region);
  {
    const WithoutGil released;
    status = rows.read_all(to.first, to.stride);
  }
  if (!status) raise_status(status);
  return array;
}

nb::bytes encode_png_image(nb::handle image, int level, nb::handle icc, nb::handle exif, nb::handle xmp) {
  Buffer source;
  const Picture picture = borrow_picture(image, source);
  const Buffer icc_buffer = borrow_bytes(icc), exif_buffer = borrow_bytes(exif), xmp_buffer = borrow_bytes(xmp);
  const PngMetadata metadata{icc_buffer.bytes(), exif_buffer.bytes(), xmp_buffer.bytes()};
  if (const Status status = check_png(picture, metadata); !status) raise_status(status);
  headrace::Buffer file;
  std::size_t size = 0;
  Status status;
  {
    const WithoutGil released;
    const std::uint64_t bound = png_bound(picture, metadata);
    std::uint8_t* const out = file.reserve(bound);
    status = out == nullptr ? Status{Code::no_memory, "no memory to encode a PNG"}
                            : encode_png(picture, metadata, level, {out, bound}, size);
  }
  if (!status) raise_status(status);
  return nb::bytes(file.data(), size);
}

}  // namespace

void register_png(nb::module_& module) {
  module.def("png_shape", &png_shape,
             nb::sig("def png_shape(data: object, colors: str, /) -> tuple[int, int, int, str]"));
  module.def("png_metadata", &png_metadata, nb::sig("def png_metadata(data: object, /) -> dict[str, bytes]"));
  module.def(
      "is_animated_png", [](nb::handle data) { return is_animated_png(borrow_bytes(data).bytes()); },
      nb::sig("def is_animated_png(data: object, /) -> bool"));
  module.def("encode_png", &encode_png_image,
             nb::sig("def encode_png(image: object, level: int, icc: object, exif: object, xmp: object, /) -> bytes"));
  module.def("decode_png", &decode_png, nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(),
             nb::sig("def decode_png(data: object, colors: str, region: tuple[int, int, int, int] | None, "
                     "out: object, /) -> numpy.typing.NDArray[typing.Any]"));
}

}  // namespace headrace::bindings
