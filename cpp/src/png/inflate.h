// SPDX-License-Identifier: Apache-2.0
// Inflate the image data of a PNG with libdeflate, as far as it is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "png/header.h"
#include "transform/workspace.h"

struct libdeflate_decompressor;

namespace headrace {

// One of these serves a thread for all its images, and keeps its memory.
class PngInflater {
 public:
  PngInflater() noexcept;
  ~PngInflater();
  PngInflater(const PngInflater&) = delete;
  PngInflater& operator=(const PngInflater&) = delete;

  // Check the checksums of all IDAT chunks, and inflate at least the first `needed` bytes, which stay valid until the
  // next call. The Adler-32 of the stream is checked if the stream ends shortly after these bytes. Bytes behind the
  // stream, or behind the image within it, are ignored, as libpng, libspng and Pillow do.
  Status inflate(const PngHeader& header, std::uint64_t needed, const std::uint8_t*& bytes) noexcept;
  // Free memory beyond `n_bytes` per buffer.
  void shrink(std::size_t n_bytes) noexcept;

 private:
  Status join(const PngHeader& header, Bytes& stream) noexcept;

  struct Free {
    void operator()(libdeflate_decompressor* decompressor) const noexcept;
  };
  std::unique_ptr<libdeflate_decompressor, Free> decompressor_;
  Buffer joined_;    // the contents of several IDAT chunks
  Buffer inflated_;  // filtered rows
};

}  // namespace headrace
