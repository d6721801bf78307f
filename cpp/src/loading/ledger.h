// SPDX-License-Identifier: Apache-2.0
// What images of each format have cost so far.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "loading/image_rows.h"

namespace headrace {

// CPU time of the calling thread. A system call: some 200 ns.
std::uint64_t thread_cpu_nanoseconds() noexcept;

struct Costs {
  std::uint64_t images = 0, bytes = 0;
  std::uint64_t read_ns = 0, decode_ns = 0, transform_ns = 0, cpu_ns = 0;
  std::uint64_t stored_bytes = 0,
                pixels = 0;  // of the whole images, of which parts may have been read and decoded

  Costs& operator+=(const Costs& other) noexcept;
};

constexpr std::size_t kFormats = 7;  // by their codes

class Ledger {
 public:
  void add(Format format, const Costs& costs) noexcept;
  Costs costs(Format format) const noexcept;

  // What an image is expected to cost: as those of its format did, or by what is known of the format at first.
  double expected_bytes(Format format, std::uint64_t length) const noexcept;
  // How long it keeps a core, in nanoseconds.
  double expected_time(Format format, std::uint64_t pixels) const noexcept;

 private:
  struct Row {
    std::atomic<std::uint64_t> images{0}, bytes{0}, read_ns{0}, decode_ns{0}, transform_ns{0}, cpu_ns{0},
        stored_bytes{0}, pixels{0};
  };

  static std::size_t at(Format format) noexcept;

  std::array<Row, kFormats> rows_;
};

// A thread's own sum, which goes to the ledger when the format changes and when it is asked to: one clock and one set
// of additions for several small images. All CPU time between two calls belongs to the images between them.
class Tally {
 public:
  explicit Tally(Ledger& ledger) noexcept : ledger_(ledger) {}
  // In the thread itself, before its first image.
  void begin() noexcept { cpu_ = thread_cpu_nanoseconds(); }
  // Where to add what the next image costs, before anything is done for it.
  Costs& costs(Format format) noexcept;
  void flush() noexcept;

 private:
  Ledger& ledger_;
  Format format_ = Format::raw;
  Costs sum_;
  std::uint64_t cpu_ = 0;
};

}  // namespace headrace
