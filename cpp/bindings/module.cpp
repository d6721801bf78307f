// SPDX-License-Identifier: Apache-2.0
// The extension module headrace._core: a list of what is registered, one file a concept.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace headrace::bindings {

void register_codec(nb::module_& module);
void register_files(nb::module_& module);
void register_jpeg(nb::module_& module);
void register_kernels(nb::module_& module);
void register_loading(nb::module_& module);
void register_mix(nb::module_& module);
void register_mosaic(nb::module_& module);
void register_png(nb::module_& module);
void register_targets(nb::module_& module);
void register_transform(nb::module_& module);

}  // namespace headrace::bindings

NB_MODULE(_core, module) {
  // A daemon thread that is inside a call when the program ends keeps what it holds: no fault of the user's.
  nb::set_leak_warnings(HEADRACE_TELLS_LEAKS);
  module.doc() = "The C++ core. Private: use headrace.codec.";
  headrace::bindings::register_codec(module);
  headrace::bindings::register_targets(module);
  headrace::bindings::register_transform(module);
  headrace::bindings::register_loading(module);
  headrace::bindings::register_files(module);
  headrace::bindings::register_jpeg(module);
  headrace::bindings::register_kernels(module);
  headrace::bindings::register_mix(module);
  headrace::bindings::register_mosaic(module);
  headrace::bindings::register_png(module);
}
