// SPDX-License-Identifier: Apache-2.0
// What images of each format have cost so far: bytes, time and CPU time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "loading/image_rows.h"

namespace headrace {

using Clock = std::chrono::steady_clock;

inline std::uint64_t nanoseconds_since(Clock::time_point start) noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

// CPU time of the calling thread. A system call that takes about 200 ns.
std::uint64_t thread_cpu_nanoseconds() noexcept;

struct Costs {
  std::uint64_t images = 0, bytes = 0;
  std::uint64_t read_ns = 0, decode_ns = 0, transform_ns = 0, cpu_ns = 0;
  std::uint64_t stored_bytes = 0, pixels = 0;  // of the entire images, of which only parts may have been read

  Costs& operator+=(const Costs& other) noexcept;
};

constexpr std::size_t kFormats = 8;  // format codes are 1 to 6, and that of tensors

// Any thread may call its methods: all counters are atomic.
class CostTable {
 public:
  void add(Format format, const Costs& costs) noexcept;
  Costs costs(Format format) const noexcept;
  void add_failed_rendition() noexcept { failed_renditions_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t failed_renditions() const noexcept { return failed_renditions_.load(std::memory_order_relaxed); }

  // The expected cost of an image: the mean of its format so far, or a fixed estimate before the first one.
  double expected_bytes(Format format, std::uint64_t length) const noexcept;
  // Nanoseconds on a core.
  double expected_time(Format format, std::uint64_t pixels) const noexcept;

 private:
  struct Row {
    std::atomic<std::uint64_t> images{0}, bytes{0}, read_ns{0}, decode_ns{0}, transform_ns{0}, cpu_ns{0},
        stored_bytes{0}, pixels{0};
  };

  static std::size_t at(Format format) noexcept;

  std::array<Row, kFormats> rows_;
  std::atomic<std::uint64_t> failed_renditions_{0};
};

// Sums up the costs of one thread's images and adds them to the table when the format changes and on `flush`: several
// small images share one read of the CPU clock. All CPU time since the last addition counts as theirs.
class CostRecorder {
 public:
  explicit CostRecorder(CostTable& table) noexcept : table_(table) {}
  // Call it in the thread itself, before its first image.
  void begin() noexcept { cpu_ = thread_cpu_nanoseconds(); }
  // The sum to which to add the costs of the next image. Call it before any work on that image.
  Costs& costs(Format format) noexcept;
  void flush() noexcept;

 private:
  CostTable& table_;
  Format format_ = Format::raw;
  Costs sum_;
  std::uint64_t cpu_ = 0;
};

}  // namespace headrace
