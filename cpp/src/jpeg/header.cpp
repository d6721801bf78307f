// SPDX-License-Identifier: Apache-2.0
// The segments of a JPEG file before its first scan. The same checks as in headrace.formats, so that a file is refused
// in the same way whoever reads it.
#include <algorithm>
#include <array>

#include "jpeg/rows.h"

namespace headrace {
namespace {

constexpr std::uint8_t kStartOfScan = 0xDA;

Status corrupt(std::size_t offset, const char* what) noexcept { return {Code::corrupt, what, offset, -1}; }
Status unsupported(std::size_t offset, const char* what) noexcept { return {Code::unsupported, what, offset, -1}; }

std::uint32_t big_endian(Bytes file, std::size_t at) noexcept {
  return std::uint32_t{file[at]} << 8 | std::uint32_t{file[at + 1]};
}

// Tables have numbers among those of frame heads.
bool is_frame(std::uint8_t marker) noexcept {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

bool is_adobe(Bytes contents) noexcept {
  constexpr std::array<std::uint8_t, 5> name = {'A', 'd', 'o', 'b', 'e'};
  return contents.size() >= 12 && std::equal(name.begin(), name.end(), contents.begin());
}

Status read_frame(std::uint8_t marker, Bytes contents, std::size_t offset, JpegHeader& header) noexcept {
  if (header.channels != 0) return corrupt(offset, "there is a second frame head");
  if (contents.size() < 6) return corrupt(offset, "a frame head is too short");
  const std::uint32_t depth = contents[0], height = big_endian(contents, 1), width = big_endian(contents, 3);
  const std::uint32_t components = contents[5];
  if (contents.size() != 6 + 3 * std::size_t{components} || width == 0)
    return corrupt(offset, "a frame head's length, components or width are not valid");
  switch (marker) {
    case 0xC0:
    case 0xC1:
    case 0xC2:
    case 0xC9:
    case 0xCA:
      break;
    default:
      return unsupported(offset, "lossless and hierarchical frames are not read");
  }
  if (depth != 8) return unsupported(offset, "only 8 bits a sample are read");
  if (height == 0) return unsupported(offset, "the height is left to be said after the first scan, which is not read");
  if (components != 1 && components != 3 && components != 4)
    return unsupported(offset, "only gray, three colors and CMYK are read");
  header.height = height;
  header.width = width;
  header.channels = components;
  header.progressive = marker == 0xC2 || marker == 0xCA;
  return {};
}

// The marker at `position`, and where what follows it starts.
Status next_marker(Bytes file, std::size_t& position, std::uint8_t& marker) noexcept {
  if (position >= file.size() || file[position] != 0xFF)
    return corrupt(position, "a marker is expected and there is none: the file is damaged or truncated");
  while (position < file.size() && file[position] == 0xFF) ++position;
  if (position == file.size()) return corrupt(position, "the file ends within a marker: it is truncated");
  marker = file[position];
  if (marker < 0xC0 || (marker >= 0xD0 && marker <= 0xD9))
    return corrupt(position, "this marker has no place before the first scan");
  ++position;
  return {};
}

}  // namespace

Status parse_jpeg(Bytes file, JpegHeader& header) noexcept {
  header = {};
  if (file.size() < 2 || file[0] != 0xFF || file[1] != 0xD8)
    return corrupt(0, "this is no JPEG file: it does not start with FF D8");
  for (std::size_t position = 2;;) {
    const std::size_t offset = position;
    std::uint8_t marker = 0;
    if (const Status found = next_marker(file, position, marker); !found) return found;
    if (marker == kStartOfScan)
      return header.channels != 0 ? Status{} : corrupt(offset, "a scan comes before any frame");
    if (file.size() - position < 2) return corrupt(offset, "the file ends within a segment: it is truncated");
    const std::size_t length = big_endian(file, position);
    if (length < 2 || length > file.size() - position)
      return corrupt(offset, "a segment reaches beyond the file: it is truncated");
    const Bytes contents = file.subspan(position + 2, length - 2);
    if (is_frame(marker)) {
      if (const Status read = read_frame(marker, contents, offset, header); !read) return read;
    } else if (marker == 0xEE && is_adobe(contents)) {
      header.adobe = true;
    }
    position += length;
  }
}

}  // namespace headrace
