// SPDX-License-Identifier: Apache-2.0
// What the tests of pixel work share: samples by number, rows that come a few at a time, and outputs with guarded
// edges.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "headrace/targets.h"
#include "images.h"
#include "checks.h"
#include "transform/rows.h"

namespace headrace::tests {

// Of all that came out: machines whose digests of a seed differ do not make the same pixels.
struct Digest {
  std::uint64_t value = 0xCBF29CE484222325U;

  void add(std::uint8_t byte) { value = (value ^ byte) * 0x100000001B3U; }
};

void check_resample(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest);
void check_finish(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest);
void check_colors(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest);
void check_noise(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest);
void check_warps(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest);
void check_steps(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest);
void check_place(std::uint64_t seed, unsigned cases, Checks& checks);

inline PixelType type_of(const Kind& kind) { return {kind.channels, kind.depth, kind.is_signed}; }
inline double least_of(const Kind& kind) { return kind.is_signed ? -32768 : 0; }
inline double most_of(const Kind& kind) { return kind.depth == 8 ? 255 : kind.is_signed ? 32767 : 65535; }

inline double sample_at(const std::uint8_t* p, const Kind& kind) {
  if (kind.depth == 8) return *p;
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return kind.is_signed ? static_cast<double>(static_cast<std::int16_t>(bits)) : bits;
}

inline double sample_of(const Image& image, std::uint32_t y, std::uint32_t x, std::uint32_t c) {
  return sample_at(image.at(y, x) + c * image.kind.depth / 8, image.kind);
}

inline std::string name_of(const Kind& kind) {
  return std::to_string(kind.channels) + (kind.is_signed ? " x int" : " x uint") + std::to_string(kind.depth);
}

inline std::string size_of(std::uint32_t height, std::uint32_t width) {
  return std::to_string(height) + " x " + std::to_string(width);
}

inline Kind random_kind(Random& random) {
  constexpr std::array<std::uint32_t, 8> channels = {1, 3, 3, 4, 2, 5, 7, 64};
  const std::uint32_t c = channels[random.below(8)];
  switch (random.below(4)) {
    case 0:
      return {c, 16, false};
    case 1:
      return {c, 16, true};
    default:
      return {c, 8, false};
  }
}

// Noise, or nothing but the two extremes, where filters overshoot most.
inline Image random_image(std::uint32_t height, std::uint32_t width, const Kind& kind, Random& random) {
  Image image{height, width, kind, {}};
  image.bytes.resize(height * image.row_bytes());
  const bool extremes = random.below(3) == 0;
  for (std::size_t i = 0; i < image.bytes.size(); i += kind.depth / 8) {
    const auto noise = static_cast<std::uint16_t>(random.next());
    const auto low = static_cast<std::uint16_t>(kind.is_signed ? 0x8000 : 0);
    const auto high = static_cast<std::uint16_t>(kind.is_signed ? 0x7FFF : 0xFFFF);
    const std::uint16_t sample = !extremes ? noise : noise % 2 ? high : low;
    std::memcpy(image.bytes.data() + i, &sample, kind.depth / 8);
  }
  return image;
}

// Memory between guards that must stay as they are.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes + 2 * kGuard, kPoison) {}

  std::uint8_t* first() { return bytes_.data() + kGuard; }
  const std::uint8_t* first() const { return bytes_.data() + kGuard; }
  bool intact() const {
    const auto poisoned = [](std::uint8_t b) { return b == kPoison; };
    return std::all_of(bytes_.begin(), bytes_.begin() + kGuard, poisoned) &&
           std::all_of(bytes_.end() - kGuard, bytes_.end(), poisoned);
  }
  void add_to(Digest& digest) const {
    for (const std::uint8_t byte : bytes_) digest.add(byte);
  }
  bool operator==(const Guarded& other) const = default;

 private:
  static constexpr std::uint8_t kPoison = 0xA5;
  static constexpr std::ptrdiff_t kGuard = 64;
  std::vector<std::uint8_t> bytes_;
};

// Rows of a part of an image in memory of exactly their size, which is gone with the next call.
class FewRows final : public RowSource {
 public:
  FewRows(const Image& image, const Region& region, std::uint32_t max_rows, Random& random)
      : image_(image), region_(region), max_rows_(max_rows), random_(random) {}

  Status next(std::uint32_t max_rows, Rows& rows) noexcept override {
    if (max_rows == 0 || max_rows > region_.height - at_)
      return {Code::bad_argument, "more rows were asked for than there are"};
    const std::uint32_t count = 1 + random_.below(std::min(max_rows, max_rows_));
    const std::size_t bytes = region_.width * image_.pixel_bytes();
    std::vector<std::uint8_t> held(count * bytes);
    for (std::uint32_t i = 0; i < count; ++i, ++at_)
      std::memcpy(held.data() + i * bytes, image_.at(region_.top + at_, region_.left), bytes);
    std::fill(held_.begin(), held_.end(), std::uint8_t{0xEE});
    held_ = std::move(held);
    rows = {held_.data(), static_cast<std::ptrdiff_t>(bytes), count};
    return {};
  }

 private:
  const Image& image_;
  Region region_;
  std::uint32_t max_rows_, at_ = 0;
  Random& random_;
  std::vector<std::uint8_t> held_;
};

}  // namespace headrace::tests
