// SPDX-License-Identifier: Apache-2.0
// A mix of pictures, as AugMix has it: what several branches make of one picture, added up with random weights.
#pragma once

#include <array>
#include <cstdint>

#include "headrace/transform.h"
#include "transform/color.h"
#include "transform/workspace.h"

namespace headrace {

inline constexpr std::size_t kMaxMixed = 14;  // branches: each needs a pass

struct MixWeights {
  double kept;                               // of the picture itself
  std::array<double, kMaxMixed> branches{};  // together 1 - kept
};

// A share from the symmetric beta distribution of alpha, divided among the branches by the symmetric Dirichlet
// distribution of alpha.
MixWeights draw_mix_weights(const DrawKey& key, std::uint16_t number, double alpha, std::uint32_t branches) noexcept;

// Keep a copy of the picture, in workspace.kept, and begin the sum with weight times it.
Status keep_picture(const Picture& picture, double weight, Workspace& workspace, Picture& kept) noexcept;

// Add weight times a picture of the kept one's size and type to the sum.
void add_picture(const Picture& picture, double weight, Workspace& workspace) noexcept;

// The sum, clamped and rounded, in workspace.mixed; of the kept picture's size and type.
Status finish_mix(const Picture& kept, Workspace& workspace, Picture& mixed) noexcept;

}  // namespace headrace
