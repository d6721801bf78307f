// SPDX-License-Identifier: Apache-2.0
// Checks that a JPEG's region comes out as a crop of what libjpeg-turbo makes of the whole file, for every kind of file
// that its encoder can write; that damage is refused; and that an image never shows what was decoded before it.
//
//   jpeg [seed [rounds]]
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <jpeglib.h>

#include "images.h"
#include "jpeg/rows.h"

namespace headrace::tests {
namespace {

using File = std::vector<std::uint8_t>;

unsigned passed = 0, failed = 0;

void expect(bool holds, const std::string& what) {
  ++(holds ? passed : failed);
  if (!holds) std::printf("failed: %s\n", what.c_str());
}

struct Sampling {
  const char* name;
  J_COLOR_SPACE stored;
  int channels;
  std::array<std::array<int, 2>, 4> factors;  // horizontal and vertical of each component
};

constexpr std::array kSamplings = {
    Sampling{"gray", JCS_GRAYSCALE, 1, {{{1, 1}}}},
    Sampling{"gray 2x2", JCS_GRAYSCALE, 1, {{{2, 2}}}},
    Sampling{"4:4:4", JCS_YCbCr, 3, {{{1, 1}, {1, 1}, {1, 1}}}},
    Sampling{"4:2:2", JCS_YCbCr, 3, {{{2, 1}, {1, 1}, {1, 1}}}},
    Sampling{"4:2:0", JCS_YCbCr, 3, {{{2, 2}, {1, 1}, {1, 1}}}},
    Sampling{"4:4:0", JCS_YCbCr, 3, {{{1, 2}, {1, 1}, {1, 1}}}},
    Sampling{"4:1:1", JCS_YCbCr, 3, {{{4, 1}, {1, 1}, {1, 1}}}},
    Sampling{"4:1:0", JCS_YCbCr, 3, {{{4, 2}, {1, 1}, {1, 1}}}},
    Sampling{"4:4:1", JCS_YCbCr, 3, {{{1, 4}, {1, 1}, {1, 1}}}},
    Sampling{"3:1", JCS_YCbCr, 3, {{{3, 1}, {1, 1}, {1, 1}}}},
    Sampling{"1:3", JCS_YCbCr, 3, {{{1, 3}, {1, 1}, {1, 1}}}},
    Sampling{"uneven", JCS_YCbCr, 3, {{{2, 2}, {1, 2}, {2, 1}}}},
    Sampling{"coarse luma", JCS_YCbCr, 3, {{{1, 1}, {2, 2}, {2, 1}}}},
    Sampling{"RGB", JCS_RGB, 3, {{{1, 1}, {1, 1}, {1, 1}}}},
    Sampling{"CMYK", JCS_CMYK, 4, {{{1, 1}, {1, 1}, {1, 1}, {1, 1}}}},
    Sampling{"YCCK", JCS_YCCK, 4, {{{1, 1}, {1, 1}, {1, 1}, {1, 1}}}},
    Sampling{"YCCK 4:2:0", JCS_YCCK, 4, {{{2, 2}, {1, 1}, {1, 1}, {2, 2}}}},
};

enum class Coding { baseline, restarts, separate, progressive, unfinished, arithmetic };
constexpr std::array kCodings = {Coding::baseline,    Coding::restarts,   Coding::separate,
                                 Coding::progressive, Coding::unfinished, Coding::arithmetic};
constexpr std::array kCodingNames = {"baseline",    "restarts",   "separate scans",
                                     "progressive", "unfinished", "arithmetic"};

// Soft blobs and some noise: neighbours differ, so that a wrong one shows.
File make_pixels(std::uint32_t height, std::uint32_t width, int channels, Random& random) {
  File pixels(std::size_t{height} * width * static_cast<std::size_t>(channels));
  std::array<std::uint32_t, 12> slope;
  for (auto& s : slope) s = random.below(23);
  std::size_t at = 0;
  for (std::uint32_t y = 0; y < height; ++y)
    for (std::uint32_t x = 0; x < width; ++x)
      for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c)
        pixels[at++] = static_cast<std::uint8_t>(slope[c] * x + slope[c + 4] * y + (x * y >> 5) + random.below(40));
  return pixels;
}

[[noreturn]] void give_up(j_common_ptr common) { std::longjmp(*static_cast<std::jmp_buf*>(common->client_data), 1); }

// Empty if the encoder does not know this combination.
File make_jpeg(const Sampling& sampling, Coding coding, std::uint32_t height, std::uint32_t width, Random& random) {
  const File pixels = make_pixels(height, width, sampling.channels, random);
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  std::jmp_buf escape;
  unsigned char* written = nullptr;
  unsigned long size = 0;
  jpeg_scan_info scans[4] = {};
  info.err = jpeg_std_error(&errors);
  errors.error_exit = give_up;
  info.client_data = &escape;
  const int quality = 60 + static_cast<int>(random.below(40)), interval = 1 + static_cast<int>(random.below(9));
  if (setjmp(escape) != 0) {
    jpeg_destroy_compress(&info);
    std::free(written);
    return {};
  }
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &written, &size);
  info.image_height = height;
  info.image_width = width;
  info.input_components = sampling.channels;
  info.in_color_space = sampling.channels == 1 ? JCS_GRAYSCALE : sampling.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, sampling.stored);
  jpeg_set_quality(&info, quality, TRUE);
  for (int c = 0; c < sampling.channels; ++c) {
    info.comp_info[c].h_samp_factor = sampling.factors[static_cast<std::size_t>(c)][0];
    info.comp_info[c].v_samp_factor = sampling.factors[static_cast<std::size_t>(c)][1];
  }
  if (coding == Coding::restarts) info.restart_interval = static_cast<unsigned>(interval);
  if (coding == Coding::arithmetic) info.arith_code = TRUE;
  if (coding == Coding::progressive || coding == Coding::unfinished) jpeg_simple_progression(&info);
  if (coding == Coding::unfinished) info.num_scans -= sampling.channels == 1 ? 1 : 3;
  if (coding == Coding::separate) {
    for (int c = 0; c < sampling.channels; ++c) scans[c] = {1, {c}, 0, 63, 0, 0};
    info.scan_info = scans;
    info.num_scans = sampling.channels;
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < height) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels.data()) +
                   std::size_t{info.next_scanline} * width * static_cast<std::size_t>(sampling.channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  File file(written, written + size);
  std::free(written);
  return file;
}

// What the library makes of the whole file when it is asked for nothing in particular.
File decode_plainly(const File& file, unsigned denominator, std::uint32_t& height, std::uint32_t& width) {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, file.data(), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&info, TRUE);
  info.scale_denom = denominator;
  jpeg_start_decompress(&info);
  height = info.output_height;
  width = info.output_width;
  const std::size_t row_bytes = std::size_t{width} * static_cast<std::size_t>(info.output_components);
  File pixels(row_bytes * height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels.data() + row_bytes * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  const bool inverted = info.saw_Adobe_marker && info.num_components == 4;
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  if (inverted)
    for (auto& sample : pixels) sample = static_cast<std::uint8_t>(255 - sample);
  return pixels;
}

Status read_all(JpegRows& source, Bytes file, const JpegRequest& request, Random& random, File& out) {
  JpegHeader header;
  if (const Status parsed = parse_jpeg(file, header); !parsed) return parsed;
  if (const Status opened = source.open(file, header, request); !opened) return opened;
  const std::size_t row_bytes = std::size_t{request.region.width} * source.pixel_type().channels;
  out.clear();
  for (std::uint32_t y = 0; y < request.region.height;) {
    Rows rows;
    const std::uint32_t max_rows = 1 + random.below(std::min(40U, request.region.height - y));
    if (const Status read = source.next(max_rows, rows); !read) return read;
    if (rows.count == 0 || rows.count > max_rows) return {Code::bad_argument, "not as many rows as were asked for"};
    for (std::uint32_t k = 0; k < rows.count; ++k) out.insert(out.end(), rows.row(k), rows.row(k) + row_bytes);
    y += rows.count;
  }
  return {};
}

std::uint32_t part(std::uint32_t size, std::uint32_t& start, Random& random) {
  start = random.below(3) == 0 ? 0 : random.below(size);
  return random.below(4) == 0 ? size - start
                              : 1 + random.below(random.below(2) == 0 ? std::min(8U, size - start) : size - start);
}

void check_regions(JpegRows& source, const File& file, unsigned channels, const std::string& name, Random& random) {
  for (const unsigned denominator : {1U, 2U, 4U, 8U}) {
    std::uint32_t height = 0, width = 0;
    const File whole = decode_plainly(file, denominator, height, width);
    for (int k = 0; k < (denominator == 1 ? 16 : 4); ++k) {
      JpegRequest request{.region = {0, 0, height, width}, .scale_denominator = denominator};
      if (k > 0) {
        request.region.height = part(height, request.region.top, random);
        request.region.width = part(width, request.region.left, random);
      }
      const Region& r = request.region;
      File expected, found;
      for (std::uint32_t y = r.top; y < r.top + r.height; ++y) {
        const auto row = whole.begin() + (std::ptrdiff_t{y} * width + r.left) * channels;
        expected.insert(expected.end(), row, row + std::ptrdiff_t{r.width} * channels);
      }
      const Status read = read_all(source, file, request, random, found);
      expect(read && found == expected, name + " by " + std::to_string(denominator) + ": region at " +
                                            std::to_string(r.top) + ", " + std::to_string(r.left) + " of " +
                                            std::to_string(r.height) + " x " + std::to_string(r.width) + " " +
                                            read.what);
    }
  }
}

void check_pixels(std::uint64_t seed, unsigned rounds) {
  constexpr std::array<std::array<std::uint32_t, 2>, 12> sizes = {{{1, 1},
                                                                   {2, 3},
                                                                   {7, 5},
                                                                   {8, 8},
                                                                   {9, 17},
                                                                   {16, 16},
                                                                   {17, 33},
                                                                   {33, 18},
                                                                   {48, 65},
                                                                   {70, 101},
                                                                   {31, 200},
                                                                   {150, 40}}};
  Random random(seed);
  JpegRows source;
  for (unsigned round = 0; round < rounds; ++round)
    for (const Sampling& sampling : kSamplings)
      for (const Coding coding : kCodings)
        for (const auto& [height, width] : sizes) {
          const File file = make_jpeg(sampling, coding, height, width, random);
          if (file.empty()) continue;
          const std::string name = std::string(sampling.name) + ", " + kCodingNames[static_cast<std::size_t>(coding)] +
                                   ", " + std::to_string(height) + " x " + std::to_string(width);
          check_regions(source, file, static_cast<unsigned>(sampling.channels), name, random);
        }
}

// A file cut anywhere is refused when it is read to its end, and so is one without its end marker.
void check_truncation(std::uint64_t seed) {
  Random random(seed);
  JpegRows source;
  File out;
  for (const Coding coding : kCodings) {
    const File file = make_jpeg(kSamplings[4], coding, 40, 50, random);
    if (file.empty()) continue;
    for (std::size_t size = 0; size < file.size(); ++size) {
      const JpegRequest request{.region = {0, 0, 40, 50}};
      expect(!read_all(source, Bytes(file).first(size), request, random, out),
             std::string(kCodingNames[static_cast<std::size_t>(coding)]) + " cut to " + std::to_string(size));
    }
  }
}

// A file without quantization tables is refused, also after one that had them.
void check_tables(std::uint64_t seed) {
  Random random(seed);
  JpegRows source;
  File out;
  File file = make_jpeg(kSamplings[2], Coding::baseline, 16, 16, random);
  const JpegRequest request{.region = {0, 0, 16, 16}};
  expect(static_cast<bool>(read_all(source, file, request, random, out)), "a file with its tables");
  for (std::size_t at = 2; at + 4 < file.size() && file[at + 1] != 0xDA;) {
    const std::size_t length = 2 + (std::size_t{file[at + 2]} << 8) + file[at + 3];
    if (file[at + 1] == 0xDB)
      file.erase(file.begin() + static_cast<std::ptrdiff_t>(at),
                 file.begin() + static_cast<std::ptrdiff_t>(at + length));
    else
      at += length;
  }
  expect(read_all(source, file, request, random, out).code == Code::corrupt, "a file without its tables");
}

void check_requests(std::uint64_t seed) {
  Random random(seed);
  JpegRows source;
  File out;
  const File file = make_jpeg(kSamplings[4], Coding::baseline, 40, 50, random);
  const auto code = [&](JpegRequest request) { return read_all(source, file, request, random, out).code; };
  expect(code({.region = {0, 0, 41, 50}}) == Code::bad_argument, "a region below the image");
  expect(code({.region = {0, 50, 1, 1}}) == Code::bad_argument, "a region beside the image");
  expect(code({.region = {0, 0, 0, 5}}) == Code::bad_argument, "an empty region");
  expect(code({.region = {1, 1, ~0U, ~0U}}) == Code::bad_argument, "a region that overflows");
  expect(code({.region = {0, 0, 21, 25}, .scale_denominator = 2}) == Code::bad_argument,
         "a region below the half image");
  expect(code({.region = {0, 0, 1, 1}, .scale_denominator = 3}) == Code::bad_argument, "a third of the image");
  expect(code({.region = {0, 0, 1, 1}, .max_pixels = 1999}) == Code::too_large, "more pixels than are allowed");
  Rows rows;
  expect(source.next(1, rows).code == Code::bad_argument, "rows of nothing");
}

}  // namespace
}  // namespace headrace::tests

int main(int argc, char** argv) {
  using namespace headrace::tests;
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  check_pixels(seed, argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 1);
  check_truncation(seed);
  check_tables(seed);
  check_requests(seed);
  std::printf("%s: %u passed, %u failed\n", headrace::jpeg_library(), passed, failed);
  return failed == 0 ? 0 : 1;
}
