// SPDX-License-Identifier: Apache-2.0
// Small images in every format, and a shard file that holds them: what tests of the loading engine read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "images.h"
#include "loading/batch.h"
#include "loading/shards.h"

namespace headrace::tests {

using File = std::vector<std::uint8_t>;

// An encoded image. A WebP file has the contents of a raw file: `decode_raw` replaces the decoder that the core does
// not have.
struct Stored {
  Format format;
  File bytes;
  ImageShape shape;
};

File make_hri(const Image& image, Mode mode);
File make_raw(const Image& image);
// Set the checksums of a raw file right, as far as its header can be believed.
void seal_raw(File& file);
// An empty file if the core was built without libjpeg-turbo.
File make_jpeg(const Image& image);

// Without bytes if the format cannot hold the image.
Stored store(Format format, const Image& image);

// Images of all formats, channels and dtypes, from 1x1 to a few tiles.
std::vector<Stored> make_stored(std::uint64_t seed);

// Pixels of a raw file in memory of their own.
struct Decoded {
  ImageShape shape;
  File pixels;

  Picture picture() noexcept {
    return {pixels.data(), static_cast<std::ptrdiff_t>(std::size_t{shape.width} * shape.type.pixel_bytes()),
            shape.height, shape.width, shape.type};
  }
};

// What a decoder is asked for where an index row claims this and a transform wants that.
DecodeOptions options_of(const Transform& transform, const Rendition& row) noexcept;

// What a external decoder gives: channels as the transform's color asks.
Status decode_raw(Bytes file, const DecodeOptions& options, Decoded& decoded);

// A temporary file with images back to back, each at a multiple of 64; removed at the end.
class ShardFile {
 public:
  ShardFile();
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  // The index row of an image that is put behind those that are there.
  Rendition add(const Stored& stored, std::uint32_t shard = 0);
  // Overwrite bytes, also beyond the end.
  void write(std::uint64_t offset, Bytes bytes);
  const std::string& path() const noexcept { return path_; }
  std::uint64_t size() const noexcept { return size_; }
  Shard shard() const { return {path_, size_}; }

 private:
  std::string path_;
  int handle_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace headrace::tests
