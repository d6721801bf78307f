// SPDX-License-Identifier: Apache-2.0
// JPEG files: decode a region into an array, and encode.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "buffers.h"
#include "decoder_lease.h"
#include "errors.h"
#include "gil.h"
#include "jpeg/encode.h"
#include "transform.h"

namespace headrace::bindings {
namespace {

using Window = std::array<std::uint32_t, 4>;  // top, left, height, width

bool contains(const ImageShape& shape, const Window& w) noexcept {
  return w[2] != 0 && w[3] != 0 && w[0] < shape.height && w[1] < shape.width && w[2] <= shape.height - w[0] &&
         w[3] <= shape.width - w[1];
}

nb::object decode_jpeg(nb::handle data, bool rgb, const Window& window, nb::handle out, std::uint64_t max_pixels) {
  const Buffer file = borrow_bytes(data);
  MemoryBytes bytes(file.bytes());
  const DecoderLease tools;
  const Region region{window[0], window[1], window[2], window[3]};
  ImageShape shape;
  Status status;
  {
    const WithoutGil released;
    const DecodeOptions options{rgb ? Color::rgb : Color::keep, true, max_pixels};
    status = tools->decoder.open(Format::jpeg, bytes, options, shape);
    if (status && !contains(shape, window)) status = {Code::bad_argument, "the region does not lie within the image"};
  }
  if (!status) raise_status(status);
  ImageHeader header;
  header.height = shape.height;
  header.width = shape.width;
  header.channels = shape.type.channels;
  header.depth = shape.type.depth;
  header.is_signed = shape.type.is_signed;
  Buffer target;
  nb::object image;
  Rows rows;
  const std::size_t row_bytes = std::size_t{region.width} * shape.type.pixel_bytes();
  if (out.is_none()) {
    image = allocate_output(header, region, target);
    rows = {static_cast<std::uint8_t*>(target.view().buf), static_cast<std::ptrdiff_t>(row_bytes)};
  } else {
    image = nb::borrow(out);
    target = borrow_output(out);
    rows = output_rows(target, 0, header, region);
  }
  {
    const WithoutGil released;
    RowSource* source = nullptr;
    status = tools->decoder.start(region, source);
    headrace::Rows strip;
    for (std::uint32_t y = 0; status && y < region.height; y += strip.count) {
      status = source->next(region.height - y, strip);
      for (std::uint32_t i = 0; status && i < strip.count; ++i)
        std::memcpy(rows.first + static_cast<std::ptrdiff_t>(y + i) * rows.stride, strip.row(i), row_bytes);
    }
  }
  if (!status) raise_status(status);
  return image;
}

nb::bytes encode_jpeg_image(nb::handle image, int quality) {
  Buffer source;
  const Picture picture = borrow_picture(image, source);
  JpegFile file;
  Status status;
  {
    const WithoutGil released;
    status = encode_jpeg(picture, quality, file);
  }
  if (!status) raise_status(status);
  return nb::bytes(file.bytes().data(), file.bytes().size());
}

}  // namespace

void register_jpeg(nb::module_& module) {
  module.def("decode_jpeg", &decode_jpeg, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(),
             nb::sig("def decode_jpeg(data: object, rgb: bool, region: tuple[int, int, int, int], "
                     "out: object, max_pixels: int, /) -> numpy.typing.NDArray[typing.Any]"));
  module.def("encode_jpeg", &encode_jpeg_image, nb::sig("def encode_jpeg(image: object, quality: int, /) -> bytes"));
  module.def("jpeg_library", &jpeg_library);
}

}  // namespace headrace::bindings
