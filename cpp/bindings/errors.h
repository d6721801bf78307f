// SPDX-License-Identifier: Apache-2.0
// From a status of the core to an exception of headrace.errors. All of these need the GIL and never return.
#pragma once

#include <cstddef>
#include <string>

#include "headrace/status.h"

namespace headrace::bindings {

inline constexpr std::ptrdiff_t kNoIndex = -1;

// `index` is the image's position in a list of images; it is named in the message.
[[noreturn]] void raise_status(const Status& status, std::ptrdiff_t index = kNoIndex);

// Raise `name` of headrace.errors.
[[noreturn]] void raise_error(const char* name, const std::string& message, std::ptrdiff_t index = kNoIndex);

// Raise a plain TypeError.
[[noreturn]] void raise_type_error(const std::string& message);

}  // namespace headrace::bindings
