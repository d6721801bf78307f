// SPDX-License-Identifier: Apache-2.0
// Decode PNG files, and list their chunks.
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
#include "png/rows.h"

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

nb::list png_chunks(nb::handle data) {
  const Buffer file = borrow_bytes(data);
  parse(file, PngExtent::file);  // from here on every chunk up to IEND is known to be valid
  nb::list chunks;
  PngChunk chunk;
  for (std::size_t at = kPngSignatureBytes; chunk.name != png_name("IEND");
       at += kPngChunkBytes + chunk.contents.size()) {
    if (const Status status = read_png_chunk(file.bytes(), at, PngCheck::all_but_data, chunk); !status)
      raise_status(status);
    char name[4];
    for (int i = 0; i < 4; ++i) name[i] = static_cast<char>(chunk.name >> (24 - 8 * i) & 0xFF);
    chunks.append(nb::make_tuple(nb::bytes(name, 4), at + 8, at + 8 + chunk.contents.size()));
  }
  return chunks;
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

}  // namespace

void register_png(nb::module_& module) {
  module.def("png_shape", &png_shape,
             nb::sig("def png_shape(data: object, colors: str, /) -> tuple[int, int, int, str]"));
  module.def("png_chunks", &png_chunks, nb::sig("def png_chunks(data: object, /) -> list[tuple[bytes, int, int]]"));
  module.def("decode_png", &decode_png, nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(),
             nb::sig("def decode_png(data: object, colors: str, region: tuple[int, int, int, int] | None, "
                     "out: object, /) -> numpy.typing.NDArray[typing.Any]"));
}

}  // namespace headrace::bindings
