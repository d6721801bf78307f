// SPDX-License-Identifier: Apache-2.0
// Which SIMD instruction set runs the hot loops. Chosen once from what the CPU has; can be listed and forced.
#pragma once

#include <span>

namespace headrace {

// Names of the targets that this build has and this CPU can run, slowest first; "scalar" is always there.
std::span<const char* const> targets() noexcept;

// The target in use.
const char* active_target() noexcept;

// Force a target; false if it is not among targets(). Meant for tests and measurements: the choice is for the process,
// and calls that are under way finish on the target they began with.
bool use_target(const char* name) noexcept;

}  // namespace headrace
