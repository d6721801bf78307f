// SPDX-License-Identifier: Apache-2.0
// The bytes of one encoded image, wherever they lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/image.h"
#include "transform/workspace.h"

namespace headrace {

// Bytes that were read. Memory is readable up to `readable_end`, which is at or behind their end.
struct Extent {
  Bytes bytes;
  const std::uint8_t* readable_end = nullptr;
};

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const noexcept = 0;
  // Bytes [offset, offset + n) of the image, which lie within it; in `buffer`, or where they already are.
  virtual Status read(std::uint64_t offset, std::size_t n, Buffer& buffer, Extent& extent) noexcept = 0;
  // The same for the first bytes, which only tell where the others are.
  virtual Status read_head(std::size_t n, Buffer& buffer, Extent& extent) noexcept {
    return read(0, n, buffer, extent);
  }
  // How much of a large image is best read at a time.
  virtual std::uint64_t chunk() const noexcept { return kCachedChunk; }

  // Stays in the second-level cache between the kernel's copy and the decoder.
  static constexpr std::uint64_t kCachedChunk = 256 << 10;
};

class MemoryBytes final : public ByteSource {
 public:
  explicit MemoryBytes(Bytes file) noexcept : file_(file) {}
  std::uint64_t size() const noexcept override { return file_.size(); }
  Status read(std::uint64_t offset, std::size_t n, Buffer&, Extent& extent) noexcept override {
    extent = {file_.subspan(offset, n), file_.data() + file_.size()};
    return {};
  }

 private:
  Bytes file_;
};

}  // namespace headrace
