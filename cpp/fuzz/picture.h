// SPDX-License-Identifier: Apache-2.0
// Pixels from a fuzzer's bytes: any shape, depth and memory layout, and content of the kinds that tiles are made for.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "canvas.h"
#include "headrace/codec.h"

namespace headrace::fuzz {

// Takes bytes from the front; once there are none a pseudo-random sequence that depends on `seed` alone, so that short
// recipes fill large pictures.
class Reader {
 public:
  explicit Reader(Bytes bytes, std::uint64_t seed = 1) : rest_(bytes), random_(seed) {}

  bool empty() const { return rest_.empty(); }
  std::uint32_t byte() {
    if (rest_.empty()) {
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::uint8_t>(random_ >> 56);
    }
    const std::uint8_t value = rest_[0];
    rest_ = rest_.subspan(1);
    return value;
  }
  std::uint32_t pair() {
    const std::uint32_t low = byte();
    return low | byte() << 8;
  }

 private:
  Bytes rest_;
  std::uint64_t random_;
};

class Picture {
 public:
  explicit Picture(Bytes recipe);

  const Pixels& pixels() const { return pixels_; }
  Mode mode() const { return mode_; }
  Bytes metadata() const { return metadata_; }

  // Row y as the decoder must give it back: interleaved, in native byte order.
  Heap row(std::size_t y) const;

 private:
  void read_shape(Reader& reader);
  void read_metadata(Reader& reader);
  std::vector<std::uint32_t> read_samples(Reader& reader) const;
  void lay_out(const std::vector<std::uint32_t>& samples, unsigned layout);

  Pixels pixels_;
  Mode mode_ = Mode::fast;
  std::vector<std::uint8_t> metadata_;
  Heap memory_{std::size_t{0}};
};

}  // namespace headrace::fuzz
