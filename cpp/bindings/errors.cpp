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

}  // namespace

void raise_error(const char* name, const std::string& message, std::ptrdiff_t index) {
  raise_object(make_error(name, message, index));
}

void raise_type_error(const std::string& message) {
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw nb::python_error();
}

ErrorText describe_status(const Status& status, StatusOrigin origin) {
  std::string where = "byte " + std::to_string(status.offset) + ": ";
  if (status.tile >= 0) where = "tile " + std::to_string(status.tile) + " at " + where;
  switch (status.code) {
    case Code::unsupported:
      return {"UnsupportedImage", where + status.what};
    case Code::too_large:
      return {"ImageTooLarge", status.what};
    case Code::no_memory:
      return {"MemoryError", status.what};
    case Code::bad_argument:  // in a dataset the transform is what the caller chose
      return {origin == StatusOrigin::call ? "ValueError" : "TransformError", status.what};
    case Code::unreadable:
      return {"CorruptDataset", "at offset " + std::to_string(status.offset) + " of the shard: " + status.what};
    case Code::ok:
    case Code::corrupt:
      break;
  }
  return {"CorruptImage", where + status.what};
}

void raise_status(const Status& status, std::ptrdiff_t index) {
  const ErrorText text = describe_status(status, StatusOrigin::call);
  if (status.code == Code::no_memory) {
    PyErr_NoMemory();
    throw nb::python_error();
  }
  if (status.code == Code::bad_argument) {
    PyErr_SetString(PyExc_ValueError, (prefix(index) + text.message).c_str());
    throw nb::python_error();
  }
  nb::object error = make_error(text.name, text.message, index);
  if (status.code == Code::corrupt) {
    error.attr("offset") = nb::int_(status.offset);
    if (status.tile >= 0) error.attr("tile") = nb::int_(status.tile);
  }
  raise_object(error);
}

}  // namespace headrace::bindings
