// SPDX-License-Identifier: Apache-2.0
// Operations and passes carried out one by one on whole pictures, with no thought of speed: what the passes of a
// program are compared with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/transform.h"

namespace headrace::tests {

// A pixel is a number that says where it came from and what befell it; two that are equal have the same history.
struct Plain {
  std::uint32_t height, width;
  std::vector<std::uint64_t> pixels;

  std::uint64_t at(std::uint32_t y, std::uint32_t x) const { return pixels[std::size_t{y} * width + x]; }
  bool operator==(const Plain&) const = default;
};

Plain make_plain(std::uint32_t height, std::uint32_t width);

// The operations in turn, each on the picture that the one before it made. Filters are taken for nearest. False if a
// crop does not fit.
bool apply_operations(std::span<const Op> ops, const DrawKey& key, Plain& picture);

// The passes as transform.h explains them.
Plain apply_program(const Program& program, Plain picture);

}  // namespace headrace::tests
