// SPDX-License-Identifier: Apache-2.0
#include "png/metadata.h"

#include <libdeflate.h>

#include <algorithm>
#include <memory>
#include <string_view>

namespace headrace {
namespace {

constexpr std::size_t kMaxBlockBytes = std::size_t{1} << 26;
constexpr std::size_t kMaxExpansion = 1032;  // of deflate
constexpr std::string_view kXmpKeyword{"XML:com.adobe.xmp\0", 18};

struct Free {
  void operator()(libdeflate_decompressor* decompressor) const noexcept { libdeflate_free_decompressor(decompressor); }
};

// What follows the first zero byte, or nothing.
Bytes after_zero(Bytes bytes) noexcept {
  const auto zero = std::find(bytes.begin(), bytes.end(), 0);
  return zero == bytes.end() ? Bytes{} : Bytes(zero + 1, bytes.end());
}

// The contents of a zlib stream, which does not say how long they are; empty if it is damaged or has too many.
Status inflate(Bytes stream, Buffer& buffer, Bytes& contents) noexcept {
  contents = {};
  const std::unique_ptr<libdeflate_decompressor, Free> decompressor(libdeflate_alloc_decompressor());
  const std::size_t max_bytes = std::min(kMaxBlockBytes, stream.size() * kMaxExpansion);
  for (std::size_t room = std::min(max_bytes, std::max<std::size_t>(4096, 4 * stream.size()));;
       room = std::min(max_bytes, 4 * room)) {
    std::uint8_t* const out = buffer.reserve(room);
    if (!decompressor || (out == nullptr && room > 0)) return {Code::no_memory, "no memory to read a PNG", 0, -1};
    std::size_t n = 0;
    switch (libdeflate_zlib_decompress_ex(decompressor.get(), stream.data(), stream.size(), out, room, nullptr, &n)) {
      case LIBDEFLATE_SUCCESS:
        contents = {out, n};
        return {};
      case LIBDEFLATE_INSUFFICIENT_SPACE:
        if (room < max_bytes) continue;
        return {};
      default:
        return {};
    }
  }
}

// The text of an iTXt chunk with XMP, or nothing.
Status read_xmp(Bytes contents, Buffer& buffer, Bytes& xmp) noexcept {
  if (contents.size() < kXmpKeyword.size() + 2 ||
      !std::equal(kXmpKeyword.begin(), kXmpKeyword.end(), contents.begin(),
                  [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; }))
    return {};
  const bool compressed = contents[kXmpKeyword.size()] == 1;
  // The language and the translated keyword end with a zero byte each.
  const Bytes text = after_zero(after_zero(contents.subspan(kXmpKeyword.size() + 2)));
  if (compressed) return inflate(text, buffer, xmp);
  xmp = text;
  return {};
}

}  // namespace

Status read_png_metadata(Bytes file, PngMetadataBuffers& buffers, PngMetadata& metadata) noexcept {
  metadata = {};
  PngHeader header;
  if (Status s = parse_png(file, PngExtent::file, header); !s) return s;
  PngChunk chunk;
  for (std::size_t at = kPngSignatureBytes; chunk.name != png_name("IEND");
       at += kPngChunkBytes + chunk.contents.size()) {
    if (Status s = read_png_chunk(file, at, PngCheck::all_but_data, chunk); !s) return s;
    Status status;
    if (chunk.name == png_name("eXIf") && metadata.exif.empty()) {
      metadata.exif = chunk.contents;
    } else if (chunk.name == png_name("iCCP") && metadata.icc.empty()) {
      const Bytes method = after_zero(chunk.contents);  // a byte, before the stream
      if (!method.empty()) status = inflate(method.subspan(1), buffers.icc, metadata.icc);
    } else if (chunk.name == png_name("iTXt") && metadata.xmp.empty()) {
      status = read_xmp(chunk.contents, buffers.xmp, metadata.xmp);
    }
    if (!status) return status;
  }
  return {};
}

bool is_animated_png(Bytes file) noexcept {
  PngChunk chunk;
  for (std::size_t at = kPngSignatureBytes; at <= file.size(); at += kPngChunkBytes + chunk.contents.size()) {
    if (!read_png_chunk(file, at, PngCheck::all_but_data, chunk) || chunk.name == png_name("IDAT")) return false;
    if (chunk.name == png_name("acTL") && chunk.contents.size() >= 4)
      return std::any_of(chunk.contents.begin(), chunk.contents.begin() + 3, [](std::uint8_t b) { return b != 0; }) ||
             chunk.contents[3] > 1;
  }
  return false;
}

}  // namespace headrace
