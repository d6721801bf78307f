// SPDX-License-Identifier: Apache-2.0
// List, show and force the SIMD target; name a library that the core was linked with.
#include "headrace/targets.h"

#include <libdeflate.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "errors.h"

namespace nb = nanobind;

namespace headrace::bindings {
namespace {

nb::tuple list_targets() {
  nb::list names;
  for (const char* name : targets()) names.append(name);
  return nb::tuple(names);
}

void force_target(const std::string& name) {
  if (use_target(name.c_str())) return;
  std::string message = "there is no target \"" + name + "\" on this machine; it has";
  const char* separator = " ";
  for (const char* known : targets()) {
    message.append(separator).append(known);
    separator = ", ";
  }
  raise_error("UnknownTarget", message);
}

}  // namespace

void register_targets(nb::module_& module) {
  module.def("targets", &list_targets, nb::sig("def targets() -> tuple[str, ...]"));
  module.def("active_target", &active_target);
  module.def("use_target", &force_target, nb::arg("name"));
  module.def("inflate_library", [] { return "libdeflate " LIBDEFLATE_VERSION_STRING; });
}

}  // namespace headrace::bindings
