// SPDX-License-Identifier: Apache-2.0
// libdeflate inflates a stream in one call and has no way to pause. When its output is full, it returns
// LIBDEFLATE_INSUFFICIENT_SPACE without a count. In its source (decompress_template.h) this happens in three places:
// before a literal, before a match of up to 258 bytes, and before a stored block of up to 65535 bytes that does not
// fit. All that lies before has been written. So with kSlack more bytes of room than are needed, all needed bytes are
// there.
#include "png/inflate.h"

#include <libdeflate.h>

#include <array>
#include <cstring>

namespace headrace {
namespace {

constexpr std::size_t kSlack = 65536;
constexpr std::uint64_t kMaxExpansion = 1032;  // 258 bytes from two codes of one bit each

// Some writers flush the last block and leave the end of the stream out. This stored block is such an end. Its contents
// are a mark: if the stream ends within a block instead, the bits of this one are read as codes of that block, and the
// output does not end with the mark.
constexpr std::size_t kMarkBytes = 8;
constexpr std::array<std::uint8_t, 5 + kMarkBytes> kEndOfStream = {
    0x01, kMarkBytes, 0x00, 0xFF ^ kMarkBytes, 0xFF, 0xB5, 0x3E, 0xD2, 0x67, 0x8B, 0x19, 0xF4, 0x4C};

Status corrupt(const PngHeader& header, const char* what) noexcept {
  return {Code::corrupt, what, header.data_offset, -1};
}
constexpr const char* kTooShort = "the image data of a PNG ends before its last row: it is truncated";
constexpr Status kNoMemory = {Code::no_memory, "no memory to decode a PNG", 0, -1};

}  // namespace

PngInflater::PngInflater() noexcept = default;
PngInflater::~PngInflater() = default;

void PngInflater::Free::operator()(libdeflate_decompressor* decompressor) const noexcept {
  libdeflate_free_decompressor(decompressor);
}

void PngInflater::shrink(std::size_t n_bytes) noexcept {
  joined_.shrink(n_bytes);
  inflated_.shrink(n_bytes);
}

// The contents of all IDAT chunks. With kEndOfStream behind them if they had to be copied; it is not part of `stream`.
Status PngInflater::join(const PngHeader& header, Bytes& stream) noexcept {
  PngChunk chunk;
  std::uint8_t* to = nullptr;
  std::size_t n = 0;
  for (std::size_t at = 0; at < header.data.size(); at += kPngChunkBytes + chunk.contents.size()) {
    if (Status s = read_png_chunk(header.data, at, PngCheck::all, chunk); !s) {
      s.offset += header.data_offset;
      return s;
    }
    if (chunk.contents.size() + kPngChunkBytes == header.data.size()) {
      stream = chunk.contents;
      return {};
    }
    if (to == nullptr) to = joined_.reserve(header.data.size() + kEndOfStream.size());
    if (to == nullptr) return kNoMemory;
    if (!chunk.contents.empty()) std::memcpy(to + n, chunk.contents.data(), chunk.contents.size());
    n += chunk.contents.size();
  }
  stream = {to, n};
  return {};
}

Status PngInflater::inflate(const PngHeader& header, std::uint64_t needed, const std::uint8_t*& bytes) noexcept {
  Bytes stream;
  if (Status s = join(header, stream); !s) return s;
  if (stream.size() < 2) return corrupt(header, kTooShort);
  const unsigned method = stream[0], flags = stream[1];
  if ((method & 15) != 8 || method >> 4 > 7 || (method << 8 | flags) % 31 != 0 || (flags & 0x20) != 0)
    return corrupt(header, "the image data of a PNG must start with the head of a zlib stream");
  Bytes deflated = stream.subspan(2);
  // No memory for what cannot be there.
  if (needed / kMaxExpansion > deflated.size()) return corrupt(header, kTooShort);
  if (!decompressor_) decompressor_.reset(libdeflate_alloc_decompressor());
  std::uint8_t* out = inflated_.reserve(needed + kSlack + kMarkBytes);
  if (!decompressor_ || out == nullptr) return kNoMemory;

  std::size_t n_read = 0, n_written = 0;
  const auto run = [&](std::size_t room) {
    return libdeflate_deflate_decompress_ex(decompressor_.get(), deflated.data(), deflated.size(), out, room, &n_read,
                                            &n_written);
  };
  libdeflate_result result = run(needed + kSlack);
  bool has_end = true;
  if (result == LIBDEFLATE_BAD_DATA) {
    if (stream.data() != joined_.data()) {
      std::uint8_t* copy = joined_.reserve(stream.size() + kEndOfStream.size());
      if (copy == nullptr) return kNoMemory;
      std::memcpy(copy, stream.data(), stream.size());
      stream = {copy, stream.size()};
    }
    std::memcpy(joined_.data() + stream.size(), kEndOfStream.data(), kEndOfStream.size());
    deflated = {stream.data() + 2, stream.size() - 2 + kEndOfStream.size()};
    has_end = false;
    result = run(needed + kSlack + kMarkBytes);
    if (result != LIBDEFLATE_SUCCESS || n_read != deflated.size() || n_written < kMarkBytes ||
        std::memcmp(out + n_written - kMarkBytes, kEndOfStream.data() + 5, kMarkBytes) != 0)
      return corrupt(header, "the image data of a PNG is not a valid zlib stream: it is damaged or truncated");
    n_written -= kMarkBytes;
  }
  bytes = out;
  if (result == LIBDEFLATE_INSUFFICIENT_SPACE) return {};
  if (n_written < needed) return corrupt(header, kTooShort);
  const Bytes rest = deflated.subspan(n_read);
  if (!has_end || rest.size() < 4) return {};  // accepted without its checksum: the chunks have theirs
  const std::uint32_t expected = std::uint32_t{rest[0]} << 24 | std::uint32_t{rest[1]} << 16 |
                                 std::uint32_t{rest[2]} << 8 | std::uint32_t{rest[3]};
  if (libdeflate_adler32(1, out, n_written) != expected)
    return corrupt(header, "the checksum of the image data of a PNG does not match the data");
  return {};
}

}  // namespace headrace
