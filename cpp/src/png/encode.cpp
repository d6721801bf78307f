// SPDX-License-Identifier: Apache-2.0
#include "png/encode.h"

#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>

#include "kernels.h"

namespace headrace {
namespace {

constexpr std::size_t kMaxSide = 0x7FFFFFFF;
constexpr std::size_t kMaxChunkBytes = std::size_t{1} << 30;  // PNG allows 2^31 - 1
constexpr std::size_t kMaxFilteredBytes = std::size_t{1} << 48;
constexpr int kIccLevel = 9;
constexpr std::string_view kIccHead{"ICC Profile\0\0", 13};
constexpr std::string_view kXmpHead{"XML:com.adobe.xmp\0\0\0\0\0", 22};
constexpr Status kNoMemory = {Code::no_memory, "no memory to encode a PNG", 0, -1};

struct Free {
  void operator()(libdeflate_compressor* compressor) const noexcept { libdeflate_free_compressor(compressor); }
};
using Compressor = std::unique_ptr<libdeflate_compressor, Free>;

void put_big_endian(std::uint32_t value, std::uint8_t* to) noexcept {
  for (int shift = 24; shift >= 0; shift -= 8) *to++ = static_cast<std::uint8_t>(value >> shift);
}

// Appends to memory of the caller's, which is large enough.
class Writer {
 public:
  explicit Writer(std::span<std::uint8_t> out) noexcept : out_(out) {}

  std::size_t size() const noexcept { return n_; }
  std::span<std::uint8_t> rest() const noexcept { return out_.subspan(n_); }
  void append(const void* bytes, std::size_t n) noexcept {
    if (n > 0) std::memcpy(out_.data() + n_, bytes, n);
    n_ += n;
  }
  void append(std::string_view text) noexcept { append(text.data(), text.size()); }
  // Bytes that were written to `rest`.
  void advance(std::size_t n) noexcept { n_ += n; }

  // What is appended between these two is the contents of a chunk.
  void begin_chunk(std::string_view name) noexcept {
    begin_ = n_;
    n_ += 4;
    append(name);
  }
  void end_chunk() noexcept {
    put_big_endian(static_cast<std::uint32_t>(n_ - begin_ - 8), out_.data() + begin_);
    put_big_endian(libdeflate_crc32(0, out_.data() + begin_ + 4, n_ - begin_ - 4), out_.data() + n_);
    n_ += 4;
  }

 private:
  std::span<std::uint8_t> out_;
  std::size_t n_ = 0;
  std::size_t begin_ = 0;
};

std::uint64_t filtered_bytes(const Picture& picture) noexcept {
  return (std::uint64_t{picture.width} * picture.type.pixel_bytes() + 1) * picture.height;
}

// Of deflate at any level: libdeflate promises 5 bytes per 5000 and a few more.
std::uint64_t zlib_bound(std::uint64_t n) noexcept { return libdeflate_zlib_compress_bound(nullptr, n); }

void write_header(const Picture& picture, Writer& writer) noexcept {
  constexpr std::array<std::uint8_t, kPngSignatureBytes> signature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  constexpr std::array<PngKind, 4> kinds = {PngKind::gray, PngKind::gray_alpha, PngKind::rgb, PngKind::rgba};
  writer.append(signature.data(), signature.size());
  std::array<std::uint8_t, 13> ihdr{};
  put_big_endian(picture.width, ihdr.data());
  put_big_endian(picture.height, ihdr.data() + 4);
  ihdr[8] = static_cast<std::uint8_t>(picture.type.depth);
  ihdr[9] = static_cast<std::uint8_t>(kinds[picture.type.channels - 1]);
  writer.begin_chunk("IHDR");
  writer.append(ihdr.data(), ihdr.size());
  writer.end_chunk();
}

Status write_metadata(const PngMetadata& metadata, Writer& writer) noexcept {
  if (!metadata.icc.empty()) {
    const Compressor compressor(libdeflate_alloc_compressor(kIccLevel));
    if (!compressor) return kNoMemory;
    writer.begin_chunk("iCCP");
    writer.append(kIccHead);
    writer.advance(libdeflate_zlib_compress(compressor.get(), metadata.icc.data(), metadata.icc.size(),
                                            writer.rest().data(), writer.rest().size()));
    writer.end_chunk();
  }
  if (!metadata.exif.empty()) {
    writer.begin_chunk("eXIf");
    writer.append(metadata.exif.data(), metadata.exif.size());
    writer.end_chunk();
  }
  if (!metadata.xmp.empty()) {
    writer.begin_chunk("iTXt");
    writer.append(kXmpHead);
    writer.append(metadata.xmp.data(), metadata.xmp.size());
    writer.end_chunk();
  }
  return {};
}

void swap_bytes(const std::uint8_t* in, std::size_t n_bytes, std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < n_bytes; i += 2) {
    out[i] = in[i + 1];
    out[i + 1] = in[i];
  }
}

// All rows with their filters.
Status filter(const Picture& picture, Buffer& filtered) noexcept {
  const std::size_t n_bytes = std::size_t{picture.width} * picture.type.pixel_bytes();
  // The four candidates of a row, zeros above the first row, and two rows with their bytes swapped.
  Buffer memory;
  std::uint8_t* const scratch = memory.reserve(7 * n_bytes);
  if (scratch == nullptr || filtered.reserve(filtered_bytes(picture)) == nullptr) return kNoMemory;
  std::uint8_t* const zeros = scratch + 4 * n_bytes;
  std::memset(zeros, 0, n_bytes);
  const std::uint8_t* above = zeros;
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    const std::uint8_t* row = picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride;
    if (picture.type.depth == 16) {
      std::uint8_t* const swapped = zeros + (1 + y % 2) * n_bytes;
      swap_bytes(row, n_bytes, swapped);
      row = swapped;
    }
    kernels().filter_row({row, above, n_bytes, static_cast<std::uint32_t>(picture.type.pixel_bytes()), scratch,
                          filtered.data() + y * (n_bytes + 1)});
    above = row;
  }
  return {};
}

// Put a head before the stream, which starts 8 bytes behind the writer's end; split it if it is longer than a chunk.
void wrap_data(std::size_t n_bytes, Writer& writer) noexcept {
  std::uint8_t* const stream = writer.rest().data() + 8;
  const std::size_t last = (n_bytes - 1) / kMaxChunkBytes;
  for (std::size_t k = last; k > 0; --k)
    std::memmove(stream + k * (kMaxChunkBytes + kPngChunkBytes), stream + k * kMaxChunkBytes,
                 std::min(kMaxChunkBytes, n_bytes - k * kMaxChunkBytes));
  for (std::size_t k = 0; k <= last; ++k) {
    writer.begin_chunk("IDAT");
    writer.advance(std::min(kMaxChunkBytes, n_bytes - k * kMaxChunkBytes));
    writer.end_chunk();
  }
}

}  // namespace

Status check_png(const Picture& picture, const PngMetadata& metadata) noexcept {
  const PixelType& type = picture.type;
  if (type.channels < 1 || type.channels > 4 || type.is_signed || (type.depth != 8 && type.depth != 16))
    return {Code::bad_argument, "PNG stores uint8 and uint16 images with 1 to 4 channels", 0, -1};
  if (picture.height < 1 || picture.width < 1 || picture.height > kMaxSide || picture.width > kMaxSide ||
      filtered_bytes(picture) > kMaxFilteredBytes)
    return {Code::bad_argument, "the sides of a PNG must be in [1, 2^31 - 1]", 0, -1};
  for (const Bytes block : {metadata.icc, metadata.exif, metadata.xmp})
    if (block.size() > kMaxChunkBytes)
      return {Code::bad_argument, "a metadata block of a PNG must be at most 1 GiB", 0, -1};
  return {};
}

std::uint64_t png_bound(const Picture& picture, const PngMetadata& metadata) noexcept {
  const std::uint64_t data = zlib_bound(filtered_bytes(picture));
  const std::uint64_t others = zlib_bound(metadata.icc.size()) + metadata.exif.size() + metadata.xmp.size();
  return kPngSignatureBytes + 13 + kIccHead.size() + kXmpHead.size() + others + data +
         kPngChunkBytes * (6 + data / kMaxChunkBytes);
}

Status encode_png(const Picture& picture, const PngMetadata& metadata, int level, std::span<std::uint8_t> out,
                  std::size_t& size) noexcept {
  size = 0;
  if (Status s = check_png(picture, metadata); !s) return s;
  if (level < 0 || level > kMaxPngLevel) return {Code::bad_argument, "the level of a PNG must be in [0, 12]", 0, -1};
  if (out.size() < png_bound(picture, metadata))
    return {Code::bad_argument, "the output must have room for png_bound() bytes", 0, -1};
  const Compressor compressor(libdeflate_alloc_compressor(level));
  if (!compressor) return kNoMemory;
  Buffer filtered;
  if (Status s = filter(picture, filtered); !s) return s;
  Writer writer(out);
  write_header(picture, writer);
  if (Status s = write_metadata(metadata, writer); !s) return s;
  const std::span<std::uint8_t> room = writer.rest().subspan(8);
  const std::size_t n_bytes =
      libdeflate_zlib_compress(compressor.get(), filtered.data(), filtered_bytes(picture), room.data(), room.size());
  wrap_data(n_bytes, writer);
  writer.begin_chunk("IEND");
  writer.end_chunk();
  size = writer.size();
  return {};
}

}  // namespace headrace
