// SPDX-License-Identifier: Apache-2.0
// JPEG files from pixels, through libjpeg-turbo.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "headrace/codec.h"
#include "transform/color.h"

namespace headrace {

// A finished file, in memory of the library's.
struct JpegFile {
  struct Free {
    void operator()(std::uint8_t* memory) const noexcept { std::free(memory); }
  };

  Bytes bytes() const noexcept { return {memory.get(), size}; }

  std::unique_ptr<std::uint8_t, Free> memory;
  std::size_t size = 0;
};

// Write a baseline file of 8-bit gray or RGB with sides of 1 to 65500: exact DCT, chroma at half resolution (4:2:0).
// `quality` is libjpeg's, 1 to 100. Nothing else of the pixels is kept, so equal pixels give equal bytes.
Status encode_jpeg(const Picture& picture, int quality, JpegFile& file) noexcept;

}  // namespace headrace
