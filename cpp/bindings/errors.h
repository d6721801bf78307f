// SPDX-License-Identifier: Apache-2.0
// From a status of the core to an exception of headrace.errors. The table in errors.cpp is the only one.
#pragma once

#include <cstddef>
#include <string>

#include "headrace/status.h"

namespace headrace::bindings {

inline constexpr std::ptrdiff_t kNoIndex = -1;

// Where a status comes from: a call about one image, whose arguments the caller chose, or a dataset being loaded.
enum class StatusOrigin { call, dataset };

struct ErrorText {
  const char* name;  // a class of headrace.errors, or of Python's builtins
  std::string message;
};

// The error that a status other than ok stands for, with the location in the file. Needs no GIL.
ErrorText describe_status(const Status& status, StatusOrigin origin);

// All of the following need the GIL and never return.

// `index` is the image's position in a list of images; it is named in the message.
[[noreturn]] void raise_status(const Status& status, std::ptrdiff_t index = kNoIndex);

// Raise `name` of headrace.errors.
[[noreturn]] void raise_error(const char* name, const std::string& message, std::ptrdiff_t index = kNoIndex);

// Raise a plain TypeError.
[[noreturn]] void raise_type_error(const std::string& message);

}  // namespace headrace::bindings
