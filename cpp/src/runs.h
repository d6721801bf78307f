// SPDX-License-Identifier: Apache-2.0
// Runs of tiles, checked and decoded: what whole images and strips of them are made of.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels.h"

namespace headrace {

// The sample for each rank, in output form; null if there is no memory. The header has ranks.
std::unique_ptr<std::uint16_t[]> rank_values(const ImageHeader& header) noexcept;

// Check the sums of a run, whose first byte lies at `offset` of the file, then decode it. Sets job.end.
Status decode_run(const Kernels& k, DecodeTiles& job, std::uint64_t offset) noexcept;

}  // namespace headrace
