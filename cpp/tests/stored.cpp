// SPDX-License-Identifier: Apache-2.0
#include "stored.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>

#include "loading/byte_source.h"
#include "loading/raw_rows.h"
#include "png_file.h"

namespace headrace::tests {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::size_t kRawHeader = 16;
constexpr std::uint32_t kBand = 32;

void put(File& file, std::size_t at, std::uint32_t value) {
  for (unsigned i = 0; i < 4; ++i) file[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::uint64_t aligned(std::uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::abort();
}

struct RawLayout {
  std::size_t sum, pixels, stride;
  std::uint32_t height;

  explicit RawLayout(const File& file) : height(std::uint32_t{file[8]} | std::uint32_t{file[9]} << 8) {
    const std::size_t width = file[12] | std::size_t{file[13]} << 8;
    stride = width * file[6] * (file[5] == 0 ? 1 : 2);
    sum = kRawHeader + 4 * std::size_t{(height + kBand - 1) / kBand};
    pixels = aligned(sum + 4);
  }
};

}  // namespace

File make_hri(const Image& image, Mode mode) {
  Encoded encoded;
  if (!encode(image.pixels(), mode, {}, 1, encoded)) die("encode");
  File file(encoded.size());
  encoded.write(file.data());
  return file;
}

void seal_raw(File& file) {
  if (file.size() < kRawHeader) return;
  const RawLayout layout(file);
  if (layout.pixels > file.size()) return;
  for (std::uint32_t top = 0; top < layout.height; top += kBand) {
    const std::size_t begin = layout.pixels + top * layout.stride;
    const std::size_t n = std::min(kBand, layout.height - top) * layout.stride;
    if (begin > file.size() || n > file.size() - begin) break;
    put(file, kRawHeader + top / kBand * 4, crc32c(Bytes(file).subspan(begin, n)));
  }
  put(file, layout.sum, crc32c(Bytes(file).first(layout.sum)));
}

File make_raw(const Image& image) {
  const std::uint8_t dtype = image.kind.depth == 8 ? 0 : image.kind.is_signed ? 2 : 1;
  File file{0x89, 'H', 'R', 'R', 0, dtype, static_cast<std::uint8_t>(image.kind.channels), 0};
  file.resize(kRawHeader);
  put(file, 8, image.height);
  put(file, 12, image.width);
  file.resize(RawLayout(file).pixels);
  file.insert(file.end(), image.bytes.begin(), image.bytes.end());
  seal_raw(file);
  return file;
}

File make_jpeg(const Image& image) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  unsigned char* written = nullptr;
  unsigned long size = 0;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &written, &size);
  info.image_height = image.height;
  info.image_width = image.width;
  info.input_components = static_cast<int>(image.kind.channels);
  info.in_color_space = image.kind.channels == 1 ? JCS_GRAYSCALE : image.kind.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_start_compress(&info, TRUE);
  for (std::uint32_t y = 0; y < image.height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(image.at(y, 0));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  File file(written, written + size);
  std::free(written);
  return file;
}

Stored store(Format format, const Image& image) {
  const Kind& kind = image.kind;
  const bool has_color = may_have_color(kind.channels) && defines_color(format);
  const ImageShape shape{image.height, image.width, {kind.channels, kind.depth, kind.is_signed}, has_color};
  switch (format) {
    case Format::hri_fast:
      return {format, make_hri(image, Mode::fast), shape};
    case Format::hri_dense:
      return {format, make_hri(image, Mode::dense), shape};
    case Format::jpeg:
      return {format, make_jpeg(image), shape};
    case Format::png: {
      Random random(image.height * 31 + image.width);
      return {format, make_png(image, random), shape};
    }
    default:
      return {format, make_raw(image), shape};
  }
}

std::vector<Stored> make_stored(std::uint64_t seed) {
  constexpr std::array kKinds = {Kind{1, 8, false}, Kind{3, 8, false}, Kind{4, 8, false}, Kind{3, 16, false},
                                 Kind{1, 16, true}, Kind{2, 8, false}, Kind{9, 8, false}, Kind{64, 16, false}};
  constexpr std::array<std::array<std::uint32_t, 2>, 5> kSides = {{{1, 1}, {7, 5}, {24, 40}, {33, 65}, {70, 300}}};
  Random random(seed);
  std::vector<Stored> stored;
  for (const Format format :
       {Format::hri_fast, Format::hri_dense, Format::png, Format::jpeg, Format::webp, Format::raw})
    for (const Kind& kind : kKinds) {
      const bool is_jpeg = format == Format::jpeg;
      if (is_jpeg && (kind.depth != 8 || kind.channels == 2 || kind.channels > 4)) continue;
      const auto sides = kSides[random.below(kind.channels > 4 ? 3 : 5)];
      Stored image =
          store(format, make_image(kContents[random.below(kContents.size())], sides[0], sides[1], kind, random));
      if (!image.bytes.empty()) stored.push_back(std::move(image));
    }
  return stored;
}

DecodeOptions options_of(const Transform& transform, const Rendition& row) noexcept {
  return {transform.color, row.shape.has_color, transform.max_pixels, transform.approximate_jpeg,
          &row.checksum,   transform.mask};
}

Status decode_raw(Bytes file, const DecodeOptions& options, Decoded& decoded) {
  MemoryBytes bytes(file);
  Workspace workspace;
  Decoder decoder(workspace);
  if (Status s = decoder.open(Format::raw, bytes, options, decoded.shape); !s) return s;
  RowSource* source = nullptr;
  if (Status s = decoder.start({0, 0, decoded.shape.height, decoded.shape.width}, source); !s) return s;
  const std::size_t row_bytes = std::size_t{decoded.shape.width} * decoded.shape.type.pixel_bytes();
  decoded.pixels.clear();
  for (std::uint32_t y = 0; y < decoded.shape.height;) {
    Rows rows;
    if (Status s = source->next(decoded.shape.height - y, rows); !s) return s;
    for (std::uint32_t i = 0; i < rows.count; ++i)
      decoded.pixels.insert(decoded.pixels.end(), rows.row(i), rows.row(i) + row_bytes);
    y += rows.count;
  }
  return {};
}

ShardFile::ShardFile() : path_((std::filesystem::temp_directory_path() / "headrace-shard-XXXXXX").string()) {
  handle_ = ::mkstemp(path_.data());
  if (handle_ < 0) die("mkstemp");
}

ShardFile::~ShardFile() {
  ::close(handle_);
  ::unlink(path_.c_str());
}

void ShardFile::write(std::uint64_t offset, Bytes bytes) {
  if (::pwrite(handle_, bytes.data(), bytes.size(), static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes.size()))
    die("pwrite");
  size_ = std::max(size_, offset + bytes.size());
}

Rendition ShardFile::add(const Stored& stored, std::uint32_t shard) {
  const std::uint64_t offset = aligned(size_);
  write(offset, stored.bytes);
  return {shard, offset, stored.bytes.size(), stored.format, crc32c(stored.bytes), stored.shape};
}

}  // namespace headrace::tests
