// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace headrace::bindings {
namespace {

std::string prefix(std::ptrdiff_t index) {
  return index == kNoIndex ? std::string() : "image " + std::to_string(index) + ": ";
}

// headrace.errors is imported only when something is wrong, and is safe to import from here: it imports nothing.
nb::object make_error(const char* name, const std::string& message, std::ptrdiff_t index) {
  const std::string text = prefix(index) + message;
  nb::object error = nb::module_::import_("headrace.errors").attr(name)(nb::str(text.data(), text.size()));
  if (index != kNoIndex) error.attr("index") = nb::int_(index);
  return error;
}

[[noreturn]] void raise_object(const nb::object& error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

std::string place(const Status& status) {
  std::string text = "byte " + std::to_string(status.offset);
  if (status.tile >= 0) text = "tile " + std::to_string(status.tile) + " at " + text;
  return text;
}

}  // namespace

void raise_error(const char* name, const std::string& message, std::ptrdiff_t index) {
  raise_object(make_error(name, message, index));
}

void raise_type_error(const std::string& message) {
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw nb::python_error();
}

void raise_status(const Status& status, std::ptrdiff_t index) {
  switch (status.code) {
    case Code::unsupported:
      raise_error("UnsupportedImage", place(status) + ": " + status.what, index);
    case Code::too_large:
      raise_error("ImageTooLarge", status.what, index);
    case Code::no_memory:
      PyErr_NoMemory();
      throw nb::python_error();
    case Code::bad_argument:
      PyErr_SetString(PyExc_ValueError, (prefix(index) + status.what).c_str());
      throw nb::python_error();
    case Code::unreadable:
      raise_error("CorruptDataset", "offset " + std::to_string(status.offset) + ": " + status.what, index);
    case Code::ok:
    case Code::corrupt:
      break;
  }
  nb::object error = make_error("CorruptImage", place(status) + ": " + status.what, index);
  error.attr("offset") = nb::int_(status.offset);
  if (status.tile >= 0) error.attr("tile") = nb::int_(status.tile);
  raise_object(error);
}

}  // namespace headrace::bindings
