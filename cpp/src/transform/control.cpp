// SPDX-License-Identifier: Apache-2.0
#include "transform/control.h"

#include "transform/draws.h"
#include "transform/augmix.h"

namespace headrace {
namespace {

constexpr Status bad(const char* what) noexcept { return {Code::bad_argument, what}; }

std::size_t branch_size(const Op& branch) noexcept { return 1 + body_length(branch); }

// Of a choice, an order or a mix.
Status check_branches(std::span<const Op> body, OpKind parent) noexcept {
  double total = 0;
  std::size_t count = 0;
  for (std::size_t at = 0; at < body.size(); at += branch_size(body[at])) {
    if (body[at].kind != OpKind::branch) return bad("the body of choice, order and mix must be a sequence of branches");
    total += body[at].parameters[0];
    ++count;
  }
  if (count == 0) return bad("choice, order and mix must have at least one branch");
  if (parent == OpKind::mix && count > kMaxMixed) return bad("mix must have at most 14 branches");
  if (parent == OpKind::order && count > kMaxOrdered) return bad("order must have at most 64 branches");
  if (parent == OpKind::choice && total <= 0) return bad("choice: at least one weight must be > 0");
  return {};
}

// What is known of a body.
struct Body {
  bool of_branches, conditional, mixed;
};

Status check_body(std::span<const Op> body, std::size_t depth, Body kind) noexcept {
  const auto [of_branches, conditional, mixed] = kind;
  if (depth > kMaxDepth) return bad("transforms must be nested at most 8 levels deep");
  for (std::size_t at = 0; at < body.size();) {
    const Op& op = body[at];
    const std::size_t length = body_length(op);
    if (length > body.size() - at - 1) return bad("the body of an operation must end within its parent's");
    if ((op.kind == OpKind::branch) != of_branches) return bad("a branch must be part of a choice, order or mix");
    // Else the number of channels would be random, and samples would not fit into one batch.
    if (conditional && op.kind == OpKind::grayscale && op.parameters[1] == 1)
      return bad("grayscale: inside apply, choice or mix the number of output channels must be 3");
    const auto inner = body.subspan(at + 1, length);
    const bool chooses = op.kind == OpKind::choice, mixes = op.kind == OpKind::mix;
    const bool has_branches = chooses || mixes || op.kind == OpKind::order;
    if (mixes && mixed) return bad("a mix must not be inside another mix");
    if (length > 0) {
      const bool skips = conditional || chooses || mixes || op.kind == OpKind::apply;
      if (const Status s =
              check_body(inner, depth + (op.kind != OpKind::branch), {has_branches, skips, mixed || mixes});
          !s)
        return s;
    }
    if (has_branches)
      if (const Status s = check_branches(inner, op.kind); !s) return s;
    at += 1 + length;
  }
  return {};
}

}  // namespace

std::size_t body_length(const Op& op) noexcept {
  switch (op.kind) {
    case OpKind::apply:
    case OpKind::branch:
    case OpKind::mix:
      return static_cast<std::size_t>(op.parameters[1]);
    case OpKind::choice:
    case OpKind::order:
      return static_cast<std::size_t>(op.parameters[0]);
    default:
      return 0;
  }
}

Status check_nesting(std::span<const Op> ops) noexcept { return check_body(ops, 0, {false, false, false}); }

std::size_t picked_branch(std::span<const Op> body, std::uint32_t drawn) noexcept {
  double total = 0;
  for (std::size_t at = 0; at < body.size(); at += branch_size(body[at])) total += body[at].parameters[0];
  const double target = unit(drawn) * total;
  double sum = 0;
  std::size_t picked = 0;
  for (std::size_t at = 0; at < body.size(); at += branch_size(body[at])) {
    if (body[at].parameters[0] == 0) continue;
    picked = at;  // rounding may leave the target just beyond the last sum
    sum += body[at].parameters[0];
    if (target < sum) break;
  }
  return picked;
}

Branches branches_of(std::span<const Op> body) noexcept {
  Branches found;
  for (std::size_t at = 0; at < body.size(); at += branch_size(body[at]))
    found.at[found.count++] = static_cast<std::uint16_t>(at);
  return found;
}

}  // namespace headrace
