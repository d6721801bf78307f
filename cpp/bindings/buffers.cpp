// SPDX-License-Identifier: Apache-2.0
#include "buffers.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace headrace::bindings {
namespace {

// Never released: the module lives as long as the process.
struct NumPy {
  PyObject* empty = nullptr;
  PyObject* uint8 = nullptr;
  PyObject* uint16 = nullptr;
  PyObject* int16 = nullptr;
} numpy;

constexpr char sample_format(const ImageHeader& header) {
  if (header.depth == 8) return 'B';
  return header.is_signed ? 'h' : 'H';
}

constexpr const char* sample_name(const ImageHeader& header) {
  if (header.depth == 8) return "uint8";
  return header.is_signed ? "int16" : "uint16";
}

// The one letter of a native scalar format, or 0 for anything else. '<' is native on every machine that we build for.
char scalar_format(const Py_buffer& view) {
  const char* format = view.format == nullptr ? "B" : view.format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  return format[0] != '\0' && format[1] == '\0' ? format[0] : '\0';
}

std::string describe_shape(const Py_ssize_t* shape, int ndim) {
  std::string text = "[";
  for (int axis = 0; axis < ndim; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

std::string describe_view(const Py_buffer& view) {
  std::string format = view.format == nullptr ? "B" : view.format;
  static constexpr std::array<std::pair<const char*, const char*>, 8> names{{{"B", "uint8"},
                                                                             {"b", "int8"},
                                                                             {"H", "uint16"},
                                                                             {"h", "int16"},
                                                                             {"e", "float16"},
                                                                             {"f", "float32"},
                                                                             {"d", "float64"},
                                                                             {"?", "bool"}}};
  for (const auto& [code, name] : names) {
    if (format == code) return describe_shape(view.shape, view.ndim) + " " + name;
  }
  return describe_shape(view.shape, view.ndim) + " of buffer format '" + format + "'";
}

const char* class_name(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept : view_(std::exchange(other.view_, {})) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    view_ = std::exchange(other.view_, {});
  }
  return *this;
}

bool Buffer::acquire(nb::handle object, int flags) noexcept {
  release();
  if (PyObject_GetBuffer(object.ptr(), &view_, flags) == 0) return true;
  PyErr_Clear();
  view_ = {};
  return false;
}

void Buffer::release() noexcept {
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
}

Buffer borrow_bytes(nb::handle data, std::ptrdiff_t index) {
  Buffer buffer;
  if (buffer.acquire(data, PyBUF_SIMPLE)) return buffer;
  std::string where = index == kNoIndex ? std::string() : "image " + std::to_string(index) + ": ";
  if (!PyObject_CheckBuffer(data.ptr())) {
    raise_type_error(where + "an encoded image must be bytes, a memoryview, an mmap or another buffer; got " +
                     class_name(data) + "; read a file with pathlib.Path(name).read_bytes()");
  }
  raise_type_error(where + "the buffer of an encoded image must be contiguous; pass bytes(data)");
}

Pixels borrow_pixels(nb::handle image, Buffer& buffer) {
  if (!buffer.acquire(image, PyBUF_RECORDS_RO)) {
    raise_type_error(std::string("an image must be an array; got ") + class_name(image));
  }
  const Py_buffer& view = buffer.view();
  const char format = scalar_format(view);
  if ((format != 'B' && format != 'H' && format != 'h') || (view.ndim != 2 && view.ndim != 3)) {
    raise_error("UnsupportedImage",
                "an image is an array [H, W] or [H, W, C] of uint8, uint16 or int16, not " + describe_view(view));
  }
  const Py_ssize_t channels = view.ndim == 3 ? view.shape[2] : 1;
  if (view.shape[0] < 1 || view.shape[0] > 65535 || view.shape[1] < 1 || view.shape[1] > 65535 || channels < 1 ||
      channels > Py_ssize_t{kMaxChannels}) {
    raise_error("UnsupportedImage",
                "an image has 1 to 65535 rows and columns and 1 to 64 channels; this array is " + describe_view(view));
  }
  Pixels pixels;
  pixels.origin = static_cast<const std::uint8_t*>(view.buf);
  pixels.row_stride = view.strides[0];
  pixels.column_stride = view.strides[1];
  pixels.channel_stride = view.ndim == 3 ? view.strides[2] : view.itemsize;
  pixels.height = static_cast<std::uint32_t>(view.shape[0]);
  pixels.width = static_cast<std::uint32_t>(view.shape[1]);
  pixels.channels = static_cast<std::uint32_t>(channels);
  pixels.depth = static_cast<std::uint32_t>(8 * view.itemsize);
  pixels.is_signed = format == 'h';
  return pixels;
}

Buffer borrow_output(nb::handle out) {
  Buffer buffer;
  if (buffer.acquire(out, PyBUF_RECORDS)) return buffer;
  if (!PyObject_CheckBuffer(out.ptr())) {
    raise_type_error(std::string("out must be a NumPy array; got ") + class_name(out) +
                     "; of a torch tensor on the CPU, pass tensor.numpy()");
  }
  raise_error("InvalidOutput", "out is read-only; pass an array that can be written to");
}

Rows output_rows(const Buffer& out, int leading, const ImageHeader& header, const Region& region,
                 std::ptrdiff_t index) {
  const Py_buffer& view = out.view();
  const Py_ssize_t* shape = view.shape + leading;
  const Py_ssize_t* strides = view.strides + leading;
  const int ndim = view.ndim - leading;
  const auto channels = static_cast<Py_ssize_t>(header.channels);
  const bool has_channels = ndim == 3;
  if (scalar_format(view) != sample_format(header) || (ndim != 3 && !(ndim == 2 && channels == 1)) ||
      shape[0] != Py_ssize_t{region.height} || shape[1] != Py_ssize_t{region.width} ||
      (has_channels && shape[2] != channels)) {
    raise_error("InvalidOutput",
                "the image is " + describe_image(header, region) + ", but out is " + describe_view(view), index);
  }
  // The stride of an axis of length 1 says nothing.
  const auto pixel_bytes = static_cast<Py_ssize_t>(header.pixel_bytes());
  const Py_ssize_t row_bytes = pixel_bytes * shape[1];
  const bool rows_contiguous =
      (shape[1] == 1 || strides[1] == pixel_bytes) && (!has_channels || channels == 1 || strides[2] == view.itemsize);
  if (!rows_contiguous || (shape[0] > 1 && std::abs(strides[0]) < row_bytes)) {
    raise_error("InvalidOutput",
                "each row of out must be contiguous and apart from the others; pass a C-contiguous array or a "
                "crop of one",
                index);
  }
  return {static_cast<std::uint8_t*>(view.buf), shape[0] > 1 ? strides[0] : row_bytes};
}

nb::object allocate_output(const ImageHeader& header, const Region& region, Buffer& buffer) {
  const nb::object shape =
      nb::steal(header.channels == 1 ? Py_BuildValue("(II)", region.height, region.width)
                                     : Py_BuildValue("(III)", region.height, region.width, header.channels));
  if (!shape.is_valid()) throw nb::python_error();
  PyObject* dtype = header.depth == 8 ? numpy.uint8 : header.is_signed ? numpy.int16 : numpy.uint16;
  PyObject* arguments[] = {shape.ptr(), dtype};
  nb::object array = nb::steal(PyObject_Vectorcall(numpy.empty, arguments, 2, nullptr));
  if (!array.is_valid()) throw nb::python_error();
  if (!buffer.acquire(array, PyBUF_WRITABLE)) throw nb::type_error("numpy.empty did not return an array");
  return array;
}

std::string describe_image(const ImageHeader& header, const Region& region) {
  const Py_ssize_t shape[] = {region.height, region.width, header.channels};
  return describe_shape(shape, header.channels == 1 ? 2 : 3) + " " + sample_name(header);
}

void import_numpy() {
  const nb::module_ module = nb::module_::import_("numpy");
  numpy.empty = nb::object(module.attr("empty")).release().ptr();
  numpy.uint8 = module.attr("dtype")("uint8").release().ptr();
  numpy.uint16 = module.attr("dtype")("uint16").release().ptr();
  numpy.int16 = module.attr("dtype")("int16").release().ptr();
}

}  // namespace headrace::bindings
