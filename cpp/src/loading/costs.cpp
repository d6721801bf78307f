// SPDX-License-Identifier: Apache-2.0
#include "loading/costs.h"

#include <ctime>

namespace headrace {
namespace {

// Nanoseconds per pixel, by format code, until images of the format have been measured. Rough values suffice: they only
// rank formats until the first measurements.
constexpr std::array<double, kFormats> kTypicalTime = {0, 1, 3, 20, 6, 15, 0.3, 0.1};

}  // namespace

std::uint64_t thread_cpu_nanoseconds() noexcept {
  timespec now{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return 0;
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

Costs& Costs::operator+=(const Costs& other) noexcept {
  images += other.images;
  bytes += other.bytes;
  read_ns += other.read_ns;
  decode_ns += other.decode_ns;
  transform_ns += other.transform_ns;
  cpu_ns += other.cpu_ns;
  stored_bytes += other.stored_bytes;
  pixels += other.pixels;
  return *this;
}

// Unknown formats are counted in row 0; their images fail.
std::size_t CostTable::at(Format format) noexcept {
  const auto code = static_cast<std::size_t>(format);
  return code < kFormats ? code : 0;
}

void CostTable::add(Format format, const Costs& costs) noexcept {
  Row& row = rows_[at(format)];
  const auto add = [](std::atomic<std::uint64_t>& to, std::uint64_t n) {
    if (n != 0) to.fetch_add(n, std::memory_order_relaxed);
  };
  add(row.images, costs.images);
  add(row.bytes, costs.bytes);
  add(row.read_ns, costs.read_ns);
  add(row.decode_ns, costs.decode_ns);
  add(row.transform_ns, costs.transform_ns);
  add(row.cpu_ns, costs.cpu_ns);
  add(row.stored_bytes, costs.stored_bytes);
  add(row.pixels, costs.pixels);
}

Costs CostTable::costs(Format format) const noexcept {
  const Row& row = rows_[at(format)];
  const auto get = [](const std::atomic<std::uint64_t>& from) { return from.load(std::memory_order_relaxed); };
  return {get(row.images),       get(row.bytes),  get(row.read_ns),      get(row.decode_ns),
          get(row.transform_ns), get(row.cpu_ns), get(row.stored_bytes), get(row.pixels)};
}

double CostTable::expected_bytes(Format format, std::uint64_t length) const noexcept {
  const Costs so_far = costs(format);
  const double share =
      so_far.stored_bytes == 0 ? 1 : static_cast<double>(so_far.bytes) / static_cast<double>(so_far.stored_bytes);
  return share * static_cast<double>(length);
}

double CostTable::expected_time(Format format, std::uint64_t pixels) const noexcept {
  const Costs so_far = costs(format);
  if (so_far.pixels == 0) return kTypicalTime[at(format)] * static_cast<double>(pixels);
  const double time = static_cast<double>(so_far.decode_ns + so_far.transform_ns);
  return time / static_cast<double>(so_far.pixels) * static_cast<double>(pixels);
}

Costs& CostRecorder::costs(Format format) noexcept {
  if (format != format_) flush();
  format_ = format;
  return sum_;
}

void CostRecorder::flush() noexcept {
  if (sum_.images == 0) return;
  const std::uint64_t now = thread_cpu_nanoseconds();
  sum_.cpu_ns += now - cpu_;
  cpu_ = now;
  table_.add(format_, sum_);
  sum_ = {};
}

}  // namespace headrace
