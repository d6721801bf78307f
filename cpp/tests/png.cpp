// SPDX-License-Identifier: Apache-2.0
// Checks the PNG decoder and encoder on every SIMD target: filters as the specification says them, regions as crops of
// the image, nothing written beside the output, every truncated or changed file refused, and the same file from every
// target.
//
//   png [seed]
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "checks.h"
#include "headrace/targets.h"
#include "kernels.h"
#include "png/encode.h"
#include "png/rows.h"
#include "png_file.h"

namespace headrace::tests {
namespace {

using File = std::vector<std::uint8_t>;

constexpr std::uint8_t kPoison = 0xA5;
constexpr std::size_t kGap = 16;  // bytes after each output row that must stay as they are

void check_filters(Random& random, Checks& checks) {
  for (const std::size_t pixel_bytes : {1U, 2U, 3U, 4U, 6U, 8U}) {
    for (int round = 0; round < 60; ++round) {
      const std::size_t n_bytes = (1 + random.below(round < 40 ? 24 : 200)) * pixel_bytes;
      const std::uint32_t rows = 1 + random.below(20);
      // Small differences give many ties between the three neighbors of a pixel.
      const std::uint32_t range = random.below(2) == 0 ? 256 : 3, first_filter = random.below(4);
      File filtered, above(n_bytes);
      for (auto& byte : above) byte = static_cast<std::uint8_t>(random.below(range));
      std::vector<File> expected;
      for (std::uint32_t y = 0; y < rows; ++y) {
        const std::uint32_t filter = first_filter + random.below(5 - first_filter);
        File row(n_bytes);
        for (auto& byte : row) byte = static_cast<std::uint8_t>(random.below(range));
        filtered.push_back(static_cast<std::uint8_t>(filter));
        filtered.insert(filtered.end(), row.begin(), row.end());
        unfilter_row(filter, pixel_bytes, y == 0 ? above : expected.back(), row);
        expected.push_back(row);
      }
      for (const char* target : targets()) {
        use_target(target);
        const std::size_t stride = n_bytes + kGap;
        File out(rows * stride, kPoison);
        kernels().unfilter_rows({filtered.data(), n_bytes + 1, above.data(), out.data(),
                                 static_cast<std::ptrdiff_t>(stride), rows, n_bytes,
                                 static_cast<std::uint32_t>(pixel_bytes)});
        bool same = true;
        for (std::uint32_t y = 0; y < rows; ++y) {
          const auto row = out.begin() + static_cast<std::ptrdiff_t>(y * stride);
          const auto end = row + static_cast<std::ptrdiff_t>(n_bytes);
          same = same && std::equal(row, end, expected[y].begin()) &&
                 std::all_of(end, end + kGap, [](std::uint8_t byte) { return byte == kPoison; });
        }
        checks.expect(same, std::string(target) + ": filters of " + std::to_string(pixel_bytes) + "-byte pixels");
      }
    }
  }
}

// The region's pixels, or nothing if the file is refused.
File decode_region(const File& file, const Region* part) {
  static PngRows rows;
  PngHeader header;
  if (!parse_png(file, PngExtent::file, header)) return {};
  const Region region = part ? *part : Region{0, 0, header.height, header.width};
  if (!rows.open(header, {region, PngColors::all})) return {};
  File out;
  const std::size_t row_bytes = std::size_t{region.width} * PngRows::pixel_type(header, PngColors::all).pixel_bytes();
  for (std::uint32_t y = 0; y < region.height;) {
    Rows strip;
    if (!rows.next(region.height - y, strip)) return {};
    for (std::uint32_t i = 0; i < strip.count; ++i, ++y) out.insert(out.end(), strip.row(i), strip.row(i) + row_bytes);
  }
  return out;
}

void check_regions(Random& random, Checks& checks) {
  for (const std::uint32_t channels : {1U, 2U, 3U, 4U})
    for (const std::uint32_t depth : {8U, 16U})
      for (int round = 0; round < 12; ++round) {
        const Image image = make_image(kContents[random.below(kContents.size())], 1 + random.below(150),
                                       1 + random.below(80), {channels, depth, false}, random);
        const File file = make_png(image, random);
        checks.expect(decode_region(file, nullptr) == image.bytes, "an image has its pixels");
        Region region{random.below(image.height), random.below(image.width), 1, 1};
        region.height += random.below(image.height - region.top);
        region.width += random.below(image.width - region.left);
        File expected;
        for (std::uint32_t y = region.top; y < region.top + region.height; ++y)
          expected.insert(expected.end(), image.at(y, region.left),
                          image.at(y, region.left) + region.width * image.pixel_bytes());
        checks.expect(decode_region(file, &region) == expected, "a region is a crop of the image");
      }
}

void check_damage(Random& random, Checks& checks) {
  const Image image = make_image(Content::smooth, 30, 20, {3, 8, false}, random);
  const File file = make_png(image, random);
  bool refused = true;
  for (std::size_t n = 0; n < file.size(); ++n)
    refused =
        refused && decode_region(File(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n)), nullptr).empty();
  checks.expect(refused, "a truncated file is refused, wherever it ends");
  for (std::size_t at = 0; at < file.size(); ++at) {
    File changed = file;
    changed[at] ^= static_cast<std::uint8_t>(1U << random.below(8));
    refused = refused && decode_region(changed, nullptr).empty();
  }
  checks.expect(refused, "a file with one changed bit is refused, wherever it is");
}

// A file has the pixels and the metadata, and every target writes the same bytes.
void check_encoding(Random& random, Checks& checks) {
  for (const std::uint32_t channels : {1U, 2U, 3U, 4U})
    for (const std::uint32_t depth : {8U, 16U})
      for (int round = 0; round < 12; ++round) {
        Image image = make_image(kContents[random.below(kContents.size())], 1 + random.below(150), 1 + random.below(80),
                                 {channels, depth, false}, random);
        const Picture picture{image.bytes.data(),
                              static_cast<std::ptrdiff_t>(image.row_bytes()),
                              image.height,
                              image.width,
                              {channels, depth, false}};
        const File icc(random.below(5000), 7), exif(random.below(50), 8), xmp(random.below(50), 9);
        const PngMetadata metadata{icc, exif, xmp};
        const int level = static_cast<int>(random.below(13));
        File first;
        for (const char* target : targets()) {
          use_target(target);
          File file(png_bound(picture, metadata));
          std::size_t size = 0;
          const Status status = encode_png(picture, metadata, level, file, size);
          file.resize(size);
          checks.expect(status && decode_region(file, nullptr) == image.bytes, "an encoded image has its pixels");
          PngMetadataBuffers buffers;
          PngMetadata found;
          const auto same = [](Bytes a, Bytes b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); };
          checks.expect(read_png_metadata(file, buffers, found) && same(found.icc, icc) && same(found.exif, exif) &&
                            same(found.xmp, xmp),
                        "an encoded image has its metadata");
          if (first.empty()) first = file;
          checks.expect(file == first, std::string(target) + " writes the same file");
        }
      }
}

int run(std::uint64_t seed) {
  Random random(seed);
  Checks checks;
  check_filters(random, checks);
  check_regions(random, checks);
  check_damage(random, checks);
  check_encoding(random, checks);
  return checks.report();
}

}  // namespace
}  // namespace headrace::tests

int main(int argc, char** argv) { return headrace::tests::run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1); }
