// SPDX-License-Identifier: Apache-2.0
// Control operations: which of the operations that follow run, and in which order. The list of operations is a tree in
// preorder; `length` counts the operations of a body, nested ones included. Nothing depends on what runs: a draw is
// keyed by the position in the list, and what is skipped draws nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "headrace/transform.h"

namespace headrace {

inline constexpr std::size_t kMaxDepth = 8;     // of control operations within each other
inline constexpr std::size_t kMaxOrdered = 64;  // branches of one `order`

// How many operations after this one belong to it.
std::size_t body_length(const Op& op) noexcept;

// Check that every body ends within its parent, that branches stand where they must and nowhere else, and that no body
// is deeper than kMaxDepth. Parameters other than lengths were checked.
Status check_nesting(std::span<const Op> ops) noexcept;

// The position in `body`, the branches of a choice, of the one that the number picks by its weight.
std::size_t picked_branch(std::span<const Op> body, std::uint32_t drawn) noexcept;

// Positions in `body` of its branches, in the order in which they stand there.
struct Branches {
  std::array<std::uint16_t, kMaxOrdered> at;
  std::uint32_t count = 0;
};
Branches branches_of(std::span<const Op> body) noexcept;

}  // namespace headrace
