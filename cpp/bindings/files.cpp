// SPDX-License-Identifier: Apache-2.0
// Whole files, read and summed without the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <cerrno>
#include <span>
#include <utility>

#include "buffers.h"
#include "gil.h"
#include "loading/whole_file.h"

namespace headrace::bindings {
namespace {

nb::tuple read_file(int handle, nb::handle memory, bool direct, std::pair<std::size_t, std::size_t> blank) {
  Buffer buffer;
  if (!buffer.acquire(memory, PyBUF_CONTIG)) throw nb::type_error("memory must be a contiguous, writable buffer");
  const std::span<std::uint8_t> room(static_cast<std::uint8_t*>(buffer.view().buf),
                                     static_cast<std::size_t>(buffer.view().len));
  WholeFile file;
  {
    const WithoutGil released;
    file = read_whole_file(handle, room, direct, {blank.first, blank.second});
  }
  if (file.error != 0) {
    errno = file.error;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
  return nb::make_tuple(file.size, file.fits ? nb::object(nb::int_(file.checksum)) : nb::none());
}

}  // namespace

void register_files(nb::module_& module) {
  using nb::arg;
  module.def("read_file", &read_file, arg("handle"), arg("memory"), nb::kw_only(), arg("direct"), arg("blank"),
             nb::sig("def read_file(handle: int, memory: object, *, direct: bool, blank: tuple[int, int]) "
                     "-> tuple[int, int | None]"));
}

}  // namespace headrace::bindings
