// SPDX-License-Identifier: Apache-2.0
// What the files of the engine share.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "loading/engine.h"

namespace headrace {

using Clock = std::chrono::steady_clock;

inline std::uint64_t since(Clock::time_point start) noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

// Threads beyond the cores, for reads that wait. While images of several formats take turns, now storage has the longer
// queue and now the cores; the more are under way, the rarer one of the two runs dry.
constexpr unsigned kMostSpares = 32;

// Earlier batches come first, then earlier samples. A thread of ours that waits for a core goes before one that is
// about to begin with someone else's decoder, which takes long: it keeps storage waiting for the next read.
inline std::uint64_t order_of(std::uint64_t batch, std::uint32_t position) noexcept { return batch << 24 | position; }
constexpr std::uint64_t kAfterAll = std::uint64_t{1} << 63;

struct Engine::Claim {
  std::shared_ptr<Batch> batch;
  std::vector<Batch::Job> jobs;
  bool has_core = false;
  std::vector<std::shared_ptr<Batch>> gone;  // to be let go of
};

struct Engine::Worker {
  explicit Worker(Engine& engine) noexcept : tally(engine.ledger_), hold(engine) {}

  Workspace workspace;
  Decoder decoder{workspace};
  Tally tally;
  CoreHold hold;
};

}  // namespace headrace
