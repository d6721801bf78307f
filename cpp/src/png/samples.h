// SPDX-License-Identifier: Apache-2.0
// From the samples of an unfiltered PNG row to pixels: bits unpacked, 16-bit samples in native order, palettes looked
// up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "png/header.h"
#include "transform/workspace.h"

namespace headrace {

enum class PngColors : std::uint8_t {
  all,      // the colors of a palette, with alpha if it has any
  opaque,   // the colors of a palette, without alpha
  indices,  // the indices of a palette
};

class PngSamples {
 public:
  // `convert` may write so many bytes behind the end of a row.
  static constexpr std::size_t kOverwrite = 4;

  void open(const PngHeader& header, PngColors colors, std::uint32_t width) noexcept;
  // False if the pixels are the bytes of the row.
  bool converts() const noexcept { return step_ != Step::none; }
  // Convert one row, or false if it has an index without a palette entry. `packed`: samples of less than 8 bits are as
  // in the file, and `first` is the first one to convert; otherwise each has a byte, and `first` is 0.
  bool convert(const std::uint8_t* row, bool packed, std::uint32_t first, std::uint8_t* out) noexcept;

 private:
  enum class Step : std::uint8_t { none, swap, scale, check, look_up };

  template <class Samples>
  bool look_up(const Samples& index_of, std::uint8_t* out) const noexcept;

  Step step_ = Step::none;
  std::uint32_t depth_ = 8;
  std::uint32_t width_ = 0;
  std::uint32_t entries_ = 0;
  std::uint32_t channels_ = 0;  // of a pixel as delivered
  std::array<std::array<std::uint8_t, 4>, 256> palette_{};
};

}  // namespace headrace
