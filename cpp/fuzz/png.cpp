// SPDX-License-Identifier: Apache-2.0
// The fuzz target of the PNG decoder and encoder. An input is a PNG file followed by a trailer of ten bytes:
//
//   byte 0     what happens to the file first: 0 nothing; 1 the checksums of its chunks are set right; any other: its
//              data becomes the filtered rows of a valid zlib stream, so that mutations reach filters and pixels
//   byte 1     bits 0-3 gap between output rows, 4 upside down, 5-6 colors, 7 encode the decoded image
//   bytes 2-9  region: top, left, height, width, two bytes each, modulo what the image allows
//
// Promises checked: no undefined behaviour, nothing read or written beyond a buffer, every target gives the same status
// and the same pixels, and a region of an image that decodes is the crop of the image. An image that is encoded again
// has the same pixels and metadata, and the same bytes on every target.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "../tests/png_file.h"
#include "canvas.h"
#include "headrace/targets.h"
#include "png/encode.h"
#include "png/rows.h"
#include "seal.h"

namespace headrace::fuzz {
namespace {

using File = std::vector<std::uint8_t>;

constexpr std::size_t kTrailerBytes = 10;
constexpr std::uint64_t kMaxOutputBytes = std::uint64_t{1} << 16;
constexpr std::size_t kMaxRowBytes = std::size_t{1} << 16;

// The same header and other chunks, around the contents of all data chunks as rows.
File expose_rows(const File& file) {
  File others, rows, head(13);
  PngChunk chunk;
  for (std::size_t at = kPngSignatureBytes; at <= file.size(); at += kPngChunkBytes + chunk.contents.size()) {
    if (!read_png_chunk(file, at, PngCheck::all, chunk) && chunk.name != png_name("IDAT")) break;
    if (chunk.name == png_name("IEND") || at + kPngChunkBytes + chunk.contents.size() > file.size()) break;
    if (chunk.name == png_name("IHDR"))
      head.assign(chunk.contents.begin(), chunk.contents.end());
    else if (chunk.name == png_name("IDAT"))
      rows.insert(rows.end(), chunk.contents.begin(), chunk.contents.end());
    else
      others.insert(others.end(), chunk.contents.data() - 8, chunk.contents.data() + chunk.contents.size() + 4);
  }
  return tests::wrap_png(head, others, rows);
}

struct Decoded {
  Code code;
  Canvas canvas;
};

struct Drive {
  std::size_t gap;
  bool flipped;
  PngColors colors;

  explicit Drive(std::uint8_t options)
      : gap(options & 15), flipped(options & 16), colors(static_cast<PngColors>((options >> 5 & 3) % 3)) {}

  Decoded decode(const PngHeader& header, const Region& region, bool by_rows, std::uint8_t poison) const {
    static PngRows rows;
    const std::size_t row_bytes = std::size_t{region.width} * PngRows::pixel_type(header, colors).pixel_bytes();
    Decoded decoded{Code::ok, Canvas(region.height, row_bytes, gap, flipped, poison)};
    Status status = rows.open(header, {region, colors});
    if (!by_rows && status) status = rows.read_all(decoded.canvas.origin(), decoded.canvas.row_stride());
    if (by_rows) {
      for (std::uint32_t y = 0; status && y < region.height;) {
        Rows some;
        status = rows.next(1 + y % 5 < region.height - y ? 1 + y % 5 : region.height - y, some);
        for (std::uint32_t i = 0; status && i < some.count; ++i, ++y)
          std::memcpy(decoded.canvas.origin() + static_cast<std::ptrdiff_t>(y) * decoded.canvas.row_stride(),
                      some.row(i), row_bytes);
      }
    }
    decoded.code = status.code;
    return decoded;
  }
};

// The file of a picture, which is decoded again and compared with it.
File encode_again(Canvas& canvas, const Picture& picture, const PngMetadata& metadata, int level, const char* target) {
  const Heap room(png_bound(picture, metadata));
  std::size_t size = 0;
  require(encode_png(picture, metadata, level, {room.data(), room.size()}, size).code == Code::ok,
          "an image that decodes is encoded", target);
  require(size <= room.size(), "the bound is enough", target);
  const File file(room.data(), room.data() + size);
  PngHeader header;
  require(parse_png(file, PngExtent::file, header).code == Code::ok, "an encoded file is valid", target);
  require(PngRows::pixel_type(header, PngColors::all) == picture.type, "an encoded file has the type", target);
  const Decoded again = Drive(0).decode(header, {0, 0, header.height, header.width}, false, 0xEE);
  require(again.code == Code::ok && is_crop(again.canvas, canvas, 0, 0), "an encoded file has the pixels", target);
  PngMetadataBuffers buffers;
  PngMetadata found;
  require(read_png_metadata(file, buffers, found).code == Code::ok, "an encoded file has metadata", target);
  require(same(found.icc, metadata.icc) && same(found.exif, metadata.exif) && same(found.xmp, metadata.xmp),
          "an encoded file has the same metadata", target);
  return file;
}

void run(Bytes input) {
  if (input.size() < kTrailerBytes) return;
  const std::uint8_t* trailer = input.data() + input.size() - kTrailerBytes;
  File bytes(input.data(), trailer);
  if (trailer[0] != 0) tests::seal_png(bytes);
  if (trailer[0] > 1) bytes = expose_rows(bytes);
  const Heap file{Bytes(bytes)};

  PngHeader head_only, header;
  const Code head = parse_png(file.bytes(), PngExtent::head, head_only).code;
  const Status parsed = parse_png(file.bytes(), PngExtent::file, header);
  require(parsed.code == Code::ok || parsed.code == Code::corrupt, "a bad file is corrupt", "any");
  require(!parsed || head == Code::ok, "a valid file has a valid head", "any");
  if (!parsed || header.width > kMaxRowBytes || std::uint64_t{header.width} * header.height * 8 > kMaxOutputBytes)
    return;

  const Drive drive(trailer[1]);
  require(PngRows::pixel_type(head_only, drive.colors) == PngRows::pixel_type(header, drive.colors),
          "the chunks before the data say what the pixels are", "any");
  Region region;
  region.top = load_le(trailer + 2, 2) % header.height;
  region.left = load_le(trailer + 4, 2) % header.width;
  region.height = 1 + load_le(trailer + 6, 2) % (header.height - region.top);
  region.width = 1 + load_le(trailer + 8, 2) % (header.width - region.left);
  const std::size_t pixel_bytes = PngRows::pixel_type(header, drive.colors).pixel_bytes();

  PngMetadataBuffers buffers;
  PngMetadata metadata;
  const Code read = read_png_metadata(file.bytes(), buffers, metadata).code;
  require(read == Code::ok || read == Code::no_memory, "metadata of a valid file is read", "any");
  static_cast<void>(is_animated_png(file.bytes()));
  std::optional<Decoded> first_image, first_part;
  std::optional<File> first_file;
  std::uint8_t poison = 0xCD;
  for (const char* target : targets()) {
    require(use_target(target), "a listed target can be forced", target);
    Decoded image = drive.decode(header, {0, 0, header.height, header.width}, poison == 0xCD, poison);
    Decoded part = drive.decode(header, region, poison != 0xCD, poison);
    require(image.code == Code::ok || image.code == Code::corrupt, "bad data is corrupt", target);
    require(image.canvas.gaps_untouched() && part.canvas.gaps_untouched(), "gaps between rows stay untouched", target);
    if (image.code == Code::ok) {
      require(part.code == Code::ok, "a region of a valid image decodes", target);
      require(is_crop(part.canvas, image.canvas, region.top, region.left * pixel_bytes), "a region is a crop", target);
      if ((trailer[1] & 0x80) != 0) {
        const Picture picture{image.canvas.origin(), image.canvas.row_stride(), header.height, header.width,
                              PngRows::pixel_type(header, drive.colors)};
        const File again = encode_again(image.canvas, picture, metadata, trailer[2] % 3, target);
        require(!first_file || again == *first_file, "targets agree on the file", target);
        first_file = again;
      }
    }
    if (first_image) {
      require(image.code == first_image->code && part.code == first_part->code, "targets agree on the status", target);
      require(image.code != Code::ok || is_crop(image.canvas, first_image->canvas, 0, 0), "targets agree on the pixels",
              target);
      require(part.code != Code::ok || is_crop(part.canvas, first_part->canvas, 0, 0), "targets agree on a region",
              target);
    } else {
      first_image.emplace(std::move(image));
      first_part.emplace(std::move(part));
    }
    poison ^= 0xFF;
  }
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  headrace::fuzz::run({data, size});
  return 0;
}
