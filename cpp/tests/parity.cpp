// SPDX-License-Identifier: Apache-2.0
// Checks that all targets of the core agree: the same bytes from the same pixels, the same pixels from the same bytes,
// and what went in comes out. Needs no Python, so it runs where only the core was built, an emulator for one.
//
//   parity [seed]    checks
//   parity --time    milliseconds a target, which mean little under an emulator
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "headrace/targets.h"
#include "images.h"
#include "checks.h"

namespace headrace::tests {
namespace {

constexpr std::uint8_t kPoison = 0xA5;
constexpr std::size_t kGap = 48;  // bytes after each output row that must stay as they are
constexpr std::array kModes = {Mode::fast, Mode::dense};

std::vector<std::uint8_t> encode_on(const char* target, const Image& image, Mode mode) {
  use_target(target);
  Encoded encoded;
  if (!encode(image.pixels(), mode, {}, 1, encoded)) return {};
  std::vector<std::uint8_t> file(encoded.size());
  encoded.write(file.data());
  return file;
}

// Does the region come out as it went in, and nothing beside it change?
bool decodes_to(const Image& image, const std::vector<std::uint8_t>& file, const ImageHeader& header, Region region) {
  const std::size_t row = region.width * image.pixel_bytes(), stride = row + kGap;
  std::vector<std::uint8_t> out(kGap + region.height * stride, kPoison);
  const std::vector<std::uint8_t> gap(kGap, kPoison);
  if (!decode(file, header, region, out.data() + kGap, static_cast<std::ptrdiff_t>(stride), 1)) return false;
  if (std::memcmp(out.data(), gap.data(), kGap) != 0) return false;
  for (std::uint32_t y = 0; y < region.height; ++y) {
    const std::uint8_t* const at = out.data() + kGap + y * stride;
    if (std::memcmp(at, image.at(region.top + y, region.left), row) != 0) return false;
    if (std::memcmp(at + row, gap.data(), kGap) != 0) return false;
  }
  return true;
}

Region random_region(const Image& image, Random& random) {
  Region r;
  r.top = random.below(image.height);
  r.left = random.below(image.width);
  r.height = 1 + random.below(image.height - r.top);
  r.width = 1 + random.below(image.width - r.left);
  return r;
}

void check_image(const Image& image, const std::string& name, Random& random, Checks& checks) {
  for (const Mode mode : kModes) {
    const std::string what = name + (mode == Mode::fast ? " fast " : " dense ");
    const auto file = encode_on(targets()[0], image, mode);
    ImageHeader header;
    if (!checks.expect(static_cast<bool>(parse_header(file, header)), what + "does not encode")) continue;
    for (const char* const target : targets()) {
      checks.expect(encode_on(target, image, mode) == file,
                    what + target + " encodes other bytes than " + targets()[0]);
      checks.expect(decodes_to(image, file, header, {0, 0, image.height, image.width}),
                    what + target + " decodes wrongly");
      for (int k = 0; k < 3; ++k) {
        const Region r = random_region(image, random);
        checks.expect(decodes_to(image, file, header, r),
                      what + target + " decodes wrongly the region at " + std::to_string(r.top) + ", " +
                          std::to_string(r.left) + " of " + std::to_string(r.height) + " x " + std::to_string(r.width));
      }
    }
  }
}

void check_images(std::uint64_t seed, Checks& checks) {
  constexpr std::array<std::array<std::uint32_t, 2>, 9> shapes = {
      {{1, 1}, {1, 70}, {37, 1}, {31, 33}, {32, 32}, {33, 127}, {65, 100}, {40, 530}, {9, 1100}}};
  constexpr std::array<std::array<std::uint32_t, 2>, 3> samples = {{{8, 0}, {16, 0}, {16, 1}}};
  Random random(seed);
  for (const auto& [height, width] : shapes)
    for (const auto& [depth, is_signed] : samples)
      for (std::uint32_t channels = 1; channels <= 5; ++channels)
        for (const Content content : kContents) {
          const Kind kind{channels, depth, is_signed != 0};
          const std::string name = std::string(name_of(content)) + " " + std::to_string(height) + " x " +
                                   std::to_string(width) + " x " + std::to_string(channels) +
                                   (kind.is_signed ? " int" : " uint") + std::to_string(depth);
          check_image(make_image(content, height, width, kind, random), name, random, checks);
        }
}

std::uint32_t crc32c_by_bits(Bytes bytes) {
  std::uint32_t crc = ~0U;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

void check_crc(std::uint64_t seed, Checks& checks) {
  const std::array<std::uint8_t, 9> digits = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
  checks.expect(crc32c_by_bits(digits) == 0xE3069283U && crc32c(digits) == 0xE3069283U, "CRC-32C of 123456789");
  Random random(seed);
  std::vector<std::uint8_t> bytes(5000);
  for (auto& b : bytes) b = static_cast<std::uint8_t>(random.next());
  for (std::size_t n = 0; n + 8 <= bytes.size(); n = n < 80 ? n + 1 : n * 5 / 4) {
    const Bytes part = Bytes(bytes).subspan(n % 8, n);
    const std::size_t cut = random.below(static_cast<std::uint32_t>(n + 1));
    const std::uint32_t expected = crc32c_by_bits(part);
    checks.expect(crc32c(part) == expected, "CRC-32C of " + std::to_string(n) + " bytes");
    checks.expect(crc32c(part.subspan(cut), crc32c(part.first(cut))) == expected,
                  "CRC-32C of " + std::to_string(n) + " bytes, continued after " + std::to_string(cut));
  }
}

template <class F>
double milliseconds(const F& f) {
  double lowest = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    lowest = took.count() < lowest ? took.count() : lowest;
  }
  return lowest;
}

int time_targets() {
  Random random(1);
  std::printf("%-22s%-8s%12s%12s\n", "512 x 768", "target", "encode ms", "decode ms");
  for (const Kind kind : {Kind{3, 8, false}, Kind{1, 8, false}, Kind{1, 16, false}})
    for (const Mode mode : kModes) {
      const Image image = make_image(Content::smooth, 512, 768, kind, random);
      for (const char* const target : targets()) {
        std::vector<std::uint8_t> file, out(image.bytes.size());
        const double encoding = milliseconds([&] { file = encode_on(target, image, mode); });
        ImageHeader header;
        if (!parse_header(file, header)) return 1;
        const double decoding = milliseconds([&] {
          if (!decode(file, header, {0, 0, image.height, image.width}, out.data(),
                      static_cast<std::ptrdiff_t>(image.row_bytes()), 1))
            out.clear();
        });
        if (out != image.bytes) return 1;
        const std::string what = std::to_string(kind.channels) + " x uint" + std::to_string(kind.depth) +
                                 (mode == Mode::fast ? " fast" : " dense");
        std::printf("%-22s%-8s%12.2f%12.2f\n", what.c_str(), target, encoding, decoding);
      }
    }
  return 0;
}

int run(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--time") == 0) return time_targets();
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  std::printf("targets:");
  for (const char* const target : targets()) std::printf(" %s", target);
  std::printf("; seed %llu\n", static_cast<unsigned long long>(seed));
  Checks checks;
  check_crc(seed, checks);
  check_images(seed, checks);
  return checks.report();
}

}  // namespace
}  // namespace headrace::tests

int main(int argc, char** argv) { return headrace::tests::run(argc, argv); }
