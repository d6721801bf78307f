// SPDX-License-Identifier: Apache-2.0
#include "png_file.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace headrace::tests {
namespace {

using File = std::vector<std::uint8_t>;

constexpr std::size_t kIdatBytes = 1000;
constexpr std::size_t kMaxBlockBytes = 65535;
constexpr std::uint8_t kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

void append_be(File& file, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) file.push_back(static_cast<std::uint8_t>(value >> shift));
}

void append_chunk(File& file, std::string_view name, Bytes contents) {
  append_be(file, static_cast<std::uint32_t>(contents.size()));
  const std::size_t begin = file.size();
  file.insert(file.end(), name.begin(), name.end());
  file.insert(file.end(), contents.begin(), contents.end());
  append_be(file, libdeflate_crc32(0, file.data() + begin, file.size() - begin));
}

// A zlib stream of stored blocks.
File store_zlib(Bytes bytes) {
  File stream{0x78, 0x01};
  std::size_t at = 0;
  do {
    const std::size_t n = std::min(kMaxBlockBytes, bytes.size() - at);
    stream.push_back(at + n == bytes.size() ? 1 : 0);
    for (const std::size_t value : {n, ~n})
      for (int shift = 0; shift < 16; shift += 8) stream.push_back(static_cast<std::uint8_t>(value >> shift));
    stream.insert(stream.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  bytes.begin() + static_cast<std::ptrdiff_t>(at + n));
    at += n;
  } while (at < bytes.size());
  append_be(stream, libdeflate_adler32(1, bytes.data(), bytes.size()));
  return stream;
}

int predict(unsigned filter, int a, int b, int c) {
  const int p = a + b - c;
  const int to_a = std::abs(p - a), to_b = std::abs(p - b), to_c = std::abs(p - c);
  switch (filter) {
    case 1:
      return a;
    case 2:
      return b;
    case 3:
      return (a + b) / 2;
    case 4:
      return to_a <= to_b && to_a <= to_c ? a : to_b <= to_c ? b : c;
    default:
      return 0;
  }
}

}  // namespace

void unfilter_row(unsigned filter, std::size_t pixel_bytes, const File& above, File& row) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool first = i < pixel_bytes;
    const int a = first ? 0 : row[i - pixel_bytes], c = first ? 0 : above[i - pixel_bytes];
    row[i] = static_cast<std::uint8_t>(row[i] + predict(filter, a, above[i], c));
  }
}

File wrap_png(Bytes ihdr, Bytes other_chunks, Bytes filtered_rows) {
  File file(std::begin(kSignature), std::end(kSignature));
  append_chunk(file, "IHDR", ihdr);
  file.insert(file.end(), other_chunks.begin(), other_chunks.end());
  const File stream = store_zlib(filtered_rows);
  for (std::size_t at = 0; at < stream.size(); at += kIdatBytes)
    append_chunk(file, "IDAT", Bytes(stream).subspan(at, std::min(kIdatBytes, stream.size() - at)));
  append_chunk(file, "IEND", {});
  return file;
}

File make_png(const Image& image, Random& random) {
  const Kind& kind = image.kind;
  if (kind.channels > 4 || kind.is_signed) return {};
  constexpr std::uint8_t kColorTypes[] = {0, 4, 2, 6};
  File ihdr;
  append_be(ihdr, image.width);
  append_be(ihdr, image.height);
  for (const unsigned value : {unsigned{kind.depth}, unsigned{kColorTypes[kind.channels - 1]}, 0U, 0U, 0U})
    ihdr.push_back(static_cast<std::uint8_t>(value));
  const std::size_t pixel_bytes = image.pixel_bytes();
  File filtered, above(image.row_bytes(), 0);
  for (std::uint32_t y = 0; y < image.height; ++y) {
    File row(image.at(y, 0), image.at(y, 0) + image.row_bytes());
    if (kind.depth == 16)
      for (std::size_t i = 0; i < row.size(); i += 2) std::swap(row[i], row[i + 1]);
    const unsigned filter = random.below(5);
    filtered.push_back(static_cast<std::uint8_t>(filter));
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool first = i < pixel_bytes;
      const int a = first ? 0 : row[i - pixel_bytes], c = first ? 0 : above[i - pixel_bytes];
      filtered.push_back(static_cast<std::uint8_t>(row[i] - predict(filter, a, above[i], c)));
    }
    above = row;
  }
  return wrap_png(ihdr, {}, filtered);
}

void seal_png(File& file) {
  for (std::size_t at = sizeof kSignature; at + 12 <= file.size();) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < 4; ++i) n = n << 8 | file[at + i];
    if (n > file.size() - at - 12) return;
    const std::uint32_t sum = libdeflate_crc32(0, file.data() + at + 4, n + 4);
    for (std::size_t i = 0; i < 4; ++i) file[at + 8 + n + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
    at += 12 + n;
  }
}

}  // namespace headrace::tests
