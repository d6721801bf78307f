// SPDX-License-Identifier: Apache-2.0
#include "png/header.h"

#include <libdeflate.h>

#include <algorithm>
#include <array>

namespace headrace {
namespace {

constexpr std::uint32_t kIhdr = png_name("IHDR"), kPlte = png_name("PLTE"), kIdat = png_name("IDAT"),
                        kIend = png_name("IEND"), kTrns = png_name("tRNS");
constexpr std::uint32_t kMaxSide = 0x7FFFFFFF;
constexpr std::size_t kMaxPaletteBytes = 256 * 3;

Status corrupt(std::size_t offset, const char* what) noexcept { return {Code::corrupt, what, offset, -1}; }

std::uint32_t big_endian(const std::uint8_t* p) noexcept {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | std::uint32_t{p[3]};
}

bool is_letter(std::uint32_t byte) noexcept {
  byte |= 0x20;
  return byte >= 'a' && byte <= 'z';
}

// Four letters, the first of them a small one: a decoder that does not know it may ignore it.
bool is_ancillary(std::uint32_t name) noexcept {
  for (int shift = 0; shift < 32; shift += 8)
    if (!is_letter(name >> shift & 0xFF)) return false;
  return (name >> 24 & 0x20) != 0;
}

bool has_depth(std::uint32_t kind, std::uint32_t depth) noexcept {
  switch (static_cast<PngKind>(kind)) {
    case PngKind::gray:
      return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
    case PngKind::palette:
      return depth == 1 || depth == 2 || depth == 4 || depth == 8;
    case PngKind::rgb:
    case PngKind::gray_alpha:
    case PngKind::rgba:
      return depth == 8 || depth == 16;
  }
  return false;
}

Status parse_ihdr(Bytes contents, std::size_t offset, PngHeader& header) noexcept {
  const std::uint8_t* p = contents.data();
  header.width = big_endian(p);
  header.height = big_endian(p + 4);
  header.depth = p[8];
  if (header.width < 1 || header.width > kMaxSide || header.height < 1 || header.height > kMaxSide)
    return corrupt(offset, "the sides of a PNG must be in [1, 2^31 - 1]");
  if (!has_depth(p[9], p[8])) return corrupt(offset, "PNG does not have this pair of color type and depth");
  header.kind = static_cast<PngKind>(p[9]);
  if (p[10] != 0 || p[11] != 0 || p[12] > 1)
    return corrupt(offset, "PNG does not have this method of compression, filtering or interlacing");
  header.interlaced = p[12] == 1;
  return {};
}

Status parse_other(const PngChunk& chunk, std::size_t offset, bool before_data, PngHeader& header) noexcept {
  const std::size_t n = chunk.contents.size();
  const bool has_palette = header.kind == PngKind::palette;
  if (chunk.name == kPlte) {
    if (!has_palette) return {};  // colors for displays that cannot show all
    if (n % 3 != 0 || n < 3 || n > kMaxPaletteBytes || !header.palette.empty())
      return corrupt(offset, "a PNG palette must have 1 to 256 entries of 3 bytes, and occur once");
    header.palette = chunk.contents;
  } else if (chunk.name == kTrns) {
    if (!has_palette) return {};
    // Behind the data it would change the number of channels after all: decoders differ in what they make of it.
    if (n > header.palette.size() / 3 || !header.alphas.empty() || !before_data)
      return corrupt(offset, "tRNS must be between palette and data, have at most as many entries, and occur once");
    header.alphas = chunk.contents;
  } else if (chunk.name == kIhdr || !is_ancillary(chunk.name)) {
    return corrupt(offset, "a critical PNG chunk is unknown or out of place");
  }
  return {};
}

// libdeflate chooses the code for this processor in the first call of each function, and stores the choice without
// synchronization. Here one thread makes the choices for all that decode PNGs, before any of them inflates.
bool choose_code() noexcept {
  constexpr std::array<std::uint8_t, 2> empty = {0x03, 0x00};  // a stream without bytes
  std::uint8_t out;
  std::size_t n_read, n_written;
  if (libdeflate_decompressor* decompressor = libdeflate_alloc_decompressor()) {
    libdeflate_deflate_decompress_ex(decompressor, empty.data(), empty.size(), &out, 1, &n_read, &n_written);
    libdeflate_free_decompressor(decompressor);
  }
  libdeflate_adler32(1, empty.data(), empty.size());
  libdeflate_crc32(0, empty.data(), empty.size());
  return true;
}

}  // namespace

Status read_png_chunk(Bytes file, std::size_t offset, PngCheck check, PngChunk& chunk) noexcept {
  const std::size_t left = file.size() - offset;
  if (left < kPngChunkBytes) return corrupt(offset, "the PNG ends without IEND: it is truncated");
  const std::uint8_t* head = file.data() + offset;
  const std::size_t n = big_endian(head);
  chunk.name = big_endian(head + 4);
  if (n > left - kPngChunkBytes)
    return corrupt(offset, "a PNG chunk is longer than the rest of the file: it is truncated");
  chunk.contents = file.subspan(offset + 8, n);
  const bool is_data = chunk.name == kIdat;
  if (is_data && check == PngCheck::all_but_data) return {};
  [[maybe_unused]] static const bool chosen = choose_code();
  if (libdeflate_crc32(0, head + 4, n + 4) != big_endian(head + 8 + n))
    return corrupt(offset, is_data ? "the checksum of an IDAT chunk does not match its contents"
                                   : "the checksum of a PNG chunk does not match its contents");
  return {};
}

Status parse_png(Bytes file, PngExtent extent, PngHeader& header) noexcept {
  constexpr std::array<std::uint8_t, kPngSignatureBytes> signature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  header = {};
  if (file.size() < signature.size() || !std::equal(signature.begin(), signature.end(), file.begin()))
    return corrupt(0, "a PNG file must start with PNG's signature");
  std::size_t at = signature.size();
  PngChunk chunk;
  if (Status s = read_png_chunk(file, at, PngCheck::all, chunk); !s) return s;
  if (chunk.name != kIhdr || chunk.contents.size() != 13)
    return corrupt(at, "the first chunk of a PNG must be IHDR of 13 bytes");
  if (Status s = parse_ihdr(chunk.contents, at, header); !s) return s;
  std::size_t data_end = 0;  // 0 before the first IDAT
  for (;;) {
    at += kPngChunkBytes + chunk.contents.size();
    if (Status s = read_png_chunk(file, at, PngCheck::all_but_data, chunk); !s) return s;
    if (chunk.name == kIend) break;
    if (chunk.name != kIdat) {
      if (Status s = parse_other(chunk, at, data_end == 0, header); !s) return s;
      continue;
    }
    if (header.kind == PngKind::palette && header.palette.empty())
      return corrupt(at, "a PNG with a palette must have PLTE before its data");
    if (extent == PngExtent::head) return {};
    if (data_end != 0 && data_end != at) return corrupt(at, "the IDAT chunks of a PNG must be consecutive");
    if (data_end == 0) header.data_offset = at;
    data_end = at + kPngChunkBytes + chunk.contents.size();
  }
  if (data_end == 0) return corrupt(at, "a PNG must have image data before IEND");
  header.data = file.subspan(header.data_offset, data_end - header.data_offset);
  return {};
}

}  // namespace headrace
