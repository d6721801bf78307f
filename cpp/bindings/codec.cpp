// SPDX-License-Identifier: Apache-2.0
// Encode, decode and inspect. Each binding converts, checks, releases the GIL, calls, and translates the status.
#include "headrace/codec.h"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "buffers.h"
#include "errors.h"
#include "gil.h"
#include "loading/hri_rows.h"

namespace headrace::bindings {
namespace {

constexpr const char* mode_name(Mode mode) { return mode == Mode::fast ? "fast" : "dense"; }

Mode parse_mode(nb::handle name) {
  if (PyUnicode_Check(name.ptr())) {
    if (PyUnicode_CompareWithASCIIString(name.ptr(), "fast") == 0) return Mode::fast;
    if (PyUnicode_CompareWithASCIIString(name.ptr(), "dense") == 0) return Mode::dense;
  }
  throw nb::value_error((std::string("mode must be 'fast' or 'dense'; got ") + nb::repr(name).c_str()).c_str());
}

// A whole number from 0 to 2^63 - 1; larger ones count as that.
std::uint64_t parse_count(nb::handle number, const char* name) {
  const nb::object integer = nb::steal(PyNumber_Index(number.ptr()));
  if (!integer.is_valid()) {
    PyErr_Clear();
    raise_type_error(std::string(name) + " must be an integer; got " + Py_TYPE(number.ptr())->tp_name);
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  if (overflow > 0) return std::numeric_limits<long long>::max();
  if (overflow < 0 || value < 0) throw nb::value_error((std::string(name) + " must not be negative").c_str());
  return static_cast<std::uint64_t>(value);
}

unsigned parse_threads(nb::handle number) {
  constexpr std::uint64_t max_threads = 1024;  // more than any machine has cores to spare for one image
  return static_cast<unsigned>(std::min(parse_count(number, "threads"), max_threads));
}

ImageHeader read_header(const Buffer& file, std::ptrdiff_t index = kNoIndex) {
  ImageHeader header;
  if (const Status status = parse_header(file.bytes(), header); !status) raise_status(status, index);
  return header;
}

[[noreturn]] void raise_region(nb::handle region, const ImageHeader& header, std::ptrdiff_t index) {
  raise_error("InvalidRegion",
              std::string("region ") + nb::repr(region).c_str() +
                  ", as (top, left, height, width), is not within the " + std::to_string(header.height) + " rows and " +
                  std::to_string(header.width) + " columns of the image, or is empty",
              index);
}

Region parse_region(nb::handle region, const ImageHeader& header, std::ptrdiff_t index = kNoIndex) {
  if (region.is_none()) return {0, 0, header.height, header.width};
  const nb::object items = nb::steal(PySequence_Tuple(region.ptr()));
  if (!items.is_valid()) PyErr_Clear();
  if (!items.is_valid() || PyTuple_GET_SIZE(items.ptr()) != 4) {
    raise_type_error(std::string("region must be (top, left, height, width); got ") + nb::repr(region).c_str());
  }
  std::uint32_t values[4];
  for (Py_ssize_t axis = 0; axis < 4; ++axis) {
    const nb::object integer = nb::steal(PyNumber_Index(PyTuple_GET_ITEM(items.ptr(), axis)));
    if (!integer.is_valid()) {
      PyErr_Clear();
      raise_type_error(std::string("region must be four integers, (top, left, height, width); got ") +
                       nb::repr(region).c_str());
    }
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
    if (overflow != 0 || value < 0 || value > 65535) raise_region(region, header, index);
    values[axis] = static_cast<std::uint32_t>(value);
  }
  const Region parsed{values[0], values[1], values[2], values[3]};
  if (parsed.height == 0 || parsed.width == 0 || parsed.top + parsed.height > header.height ||
      parsed.left + parsed.width > header.width) {
    raise_region(region, header, index);
  }
  return parsed;
}

void check_size(const Region& region, std::uint64_t max_pixels, std::ptrdiff_t index = kNoIndex) {
  const std::uint64_t pixels = std::uint64_t{region.height} * region.width;
  if (pixels <= max_pixels) return;
  raise_error("ImageTooLarge",
              std::to_string(region.height) + " x " + std::to_string(region.width) + " are " + std::to_string(pixels) +
                  " pixels, more than max_pixels=" + std::to_string(max_pixels) +
                  "; decode a region, or raise max_pixels if you trust the file",
              index);
}

nb::object decode_image(nb::handle data, nb::handle region, nb::handle out, nb::handle threads, nb::handle max_pixels) {
  const Buffer file = borrow_bytes(data);
  const ImageHeader header = read_header(file);
  const Region wanted = parse_region(region, header);
  check_size(wanted, parse_count(max_pixels, "max_pixels"));
  const unsigned n_threads = parse_threads(threads);

  Buffer target;
  nb::object image;
  Rows rows;
  if (out.is_none()) {
    image = allocate_output(header, wanted, target);
    rows = {static_cast<std::uint8_t*>(target.view().buf),
            static_cast<std::ptrdiff_t>(std::size_t{wanted.width} * header.pixel_bytes())};
  } else {
    image = nb::borrow(out);
    target = borrow_output(out);
    rows = output_rows(target, 0, header, wanted);
  }

  Status status;
  {
    const WithoutGil released;
    status = decode(file.bytes(), header, wanted, rows.first, rows.stride, n_threads);
  }
  if (!status) raise_status(status);
  return image;
}

nb::object decode_images(nb::list datas, nb::handle regions, nb::handle out, nb::handle threads,
                         nb::handle max_pixels) {
  const std::size_t n = nb::len(datas);
  if (!regions.is_none() && nb::len(regions) != n) {
    throw nb::value_error(("there are " + std::to_string(n) + " images but " + std::to_string(nb::len(regions)) +
                           " regions; give one, or None, for each")
                              .c_str());
  }
  const std::uint64_t most_pixels = parse_count(max_pixels, "max_pixels");
  const unsigned n_threads = parse_threads(threads);

  Buffer whole;
  if (!out.is_none()) {
    whole = borrow_output(out);
    if (whole.view().ndim < 1 || static_cast<std::size_t>(whole.view().shape[0]) != n) {
      raise_error("InvalidOutput", "out must have room for " + std::to_string(n) + " images on its first axis");
    }
  }

  std::vector<Buffer> files(n);
  std::vector<Buffer> targets(out.is_none() ? n : 0);
  std::vector<DecodeJob> jobs(n);
  nb::list images;
  for (std::size_t i = 0; i < n; ++i) {
    const auto index = static_cast<std::ptrdiff_t>(i);
    DecodeJob& job = jobs[i];
    files[i] = borrow_bytes(datas[i], index);
    job.file = files[i].bytes();
    job.header = read_header(files[i], index);
    job.region = parse_region(regions.is_none() ? nb::none() : nb::object(regions[i]), job.header, index);
    check_size(job.region, most_pixels, index);
    if (out.is_none()) {
      images.append(allocate_output(job.header, job.region, targets[i]));
      job.out = static_cast<std::uint8_t*>(targets[i].view().buf);
      job.row_stride = static_cast<std::ptrdiff_t>(std::size_t{job.region.width} * job.header.pixel_bytes());
    } else {
      const Rows rows = output_rows(whole, 1, job.header, job.region, index);
      job.out = rows.first + index * whole.view().strides[0];
      job.row_stride = rows.stride;
    }
  }
  {
    const WithoutGil released;
    decode_many(jobs, n_threads);
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (!jobs[i].status) raise_status(jobs[i].status, static_cast<std::ptrdiff_t>(i));
  }
  return out.is_none() ? nb::object(images) : nb::borrow(out);
}

nb::object encode_image(nb::handle image, nb::handle mode, nb::bytes metadata, nb::handle threads) {
  Buffer source;
  const Pixels pixels = borrow_pixels(image, source);
  const Mode parsed_mode = parse_mode(mode);
  const unsigned n_threads = parse_threads(threads);
  const Bytes section{static_cast<const std::uint8_t*>(metadata.data()), metadata.size()};
  if (const Status status = check_metadata(section); !status) raise_error("InvalidMetadata", status.what);

  Encoded encoded;
  Status status;
  {
    const WithoutGil released;
    status = encode(pixels, parsed_mode, section, n_threads, encoded);
  }
  if (!status) raise_status(status);
  nb::object bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(encoded.size())));
  if (!bytes.is_valid()) throw nb::python_error();
  {
    // Nobody else has seen these bytes yet.
    const WithoutGil released;
    encoded.write(reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(bytes.ptr())));
  }
  return bytes;
}

// What `inspect` needs of a header; owns what it shows.
struct Header {
  std::uint32_t width, height, channels, tile_width;
  const char* dtype;
  const char* mode;
  nb::dict metadata;
  std::size_t n_bytes;
};

Header inspect_image(nb::handle data) {
  const Buffer file = borrow_bytes(data);
  const ImageHeader header = read_header(file);
  nb::dict metadata;
  Bytes rest = header.metadata;
  for (MetadataEntry entry; next_metadata(rest, entry);) {
    const nb::object key = nb::steal(PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(entry.key.data()),
                                                          static_cast<Py_ssize_t>(entry.key.size()), nullptr));
    if (!key.is_valid()) {
      PyErr_Clear();
      const auto offset = static_cast<std::uint64_t>(entry.key.data() - file.bytes().data());
      raise_status({Code::corrupt, "a metadata key is not UTF-8", offset});
    }
    metadata[key] = nb::bytes(entry.value.data(), entry.value.size());
  }
  const char* dtype = header.depth == 8 ? "uint8" : header.is_signed ? "int16" : "uint16";
  return {header.width, header.height,          header.channels,     header.tile_width,
          dtype,        mode_name(header.mode), std::move(metadata), file.bytes().size()};
}

// Does the file decode to the very pixels of the image? Strip by strip, so that all of it happens in cache.
bool matches(nb::handle data, nb::handle image) {
  const Buffer file = borrow_bytes(data);
  Buffer source;
  const Pixels pixels = borrow_pixels(image, source);
  const std::size_t pixel_bytes = std::size_t{pixels.channels} * (pixels.depth / 8);
  if ((pixels.channels > 1 && pixels.channel_stride != static_cast<std::ptrdiff_t>(pixels.depth / 8)) ||
      (pixels.width > 1 && pixels.column_stride != static_cast<std::ptrdiff_t>(pixel_bytes)))
    throw nb::value_error("the samples of a row must be contiguous");
  Status status;
  bool same = true;
  {
    const WithoutGil released;
    static thread_local Workspace workspace;
    static thread_local HriRows rows;
    MemoryBytes bytes(file.bytes());
    status = rows.open(bytes, workspace);
    const ImageHeader& header = rows.header();
    if (status)
      same = header.height == pixels.height && header.width == pixels.width && header.channels == pixels.channels &&
             header.depth == pixels.depth && header.is_signed == pixels.is_signed;
    if (status && same) status = rows.start({0, 0, header.height, header.width});
    headrace::Rows strip;
    for (std::uint32_t y = 0; status && same && y < pixels.height; y += strip.count) {
      status = rows.next(pixels.height - y, strip);
      for (std::uint32_t i = 0; status && same && i < strip.count; ++i)
        same = std::memcmp(strip.row(i), pixels.origin + static_cast<std::ptrdiff_t>(y + i) * pixels.row_stride,
                           pixels.width * pixel_bytes) == 0;
    }
  }
  if (!status) raise_status(status);
  return same;
}

std::uint32_t sum_bytes(nb::handle data, std::uint32_t seed) {
  const Buffer buffer = borrow_bytes(data);
  const WithoutGil released;
  return crc32c(buffer.bytes(), seed);
}

}  // namespace

void register_codec(nb::module_& module) {
  import_numpy();

  nb::class_<Header>(module, "Header")
      .def_ro("width", &Header::width)
      .def_ro("height", &Header::height)
      .def_ro("channels", &Header::channels)
      .def_ro("tile_width", &Header::tile_width)
      .def_prop_ro("dtype", [](const Header& header) { return header.dtype; })
      .def_prop_ro("mode", [](const Header& header) { return header.mode; })
      .def_prop_ro(
          "metadata", [](const Header& header) { return header.metadata; },
          nb::sig("def metadata(self) -> dict[str, bytes]"))
      .def_ro("n_bytes", &Header::n_bytes);
  module.attr("TILE_HEIGHT") = nb::int_(kTileHeight);

  module.def("encode", &encode_image,
             nb::sig("def encode(image: object, mode: str, metadata: bytes, threads: int, /) -> bytes"));
  module.def("decode", &decode_image, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(),
             nb::sig("def decode(data: object, region: object, out: object, threads: int, max_pixels: int, /) "
                     "-> numpy.typing.NDArray[typing.Any]"));
  module.def("decode_many", &decode_images, nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(),
             nb::sig("def decode_many(datas: list[typing.Any], regions: object, out: object, threads: int, "
                     "max_pixels: int, /) -> typing.Any"));
  module.def("matches", &matches, nb::sig("def matches(data: object, image: object, /) -> bool"));
  module.def("crc32c", &sum_bytes, nb::sig("def crc32c(data: object, seed: int, /) -> int"));
  module.def("inspect", &inspect_image, nb::sig("def inspect(data: object, /) -> Header"));
}

}  // namespace headrace::bindings
