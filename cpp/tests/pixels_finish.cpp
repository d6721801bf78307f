// SPDX-License-Identifier: Apache-2.0
// Finishing against one sample at a time.
#include "transform/finish.h"

#include <cmath>

#include "pixels.h"

namespace headrace::tests {
namespace {

// The nearest half, ties to even, from the definition: steps of 2^-10 of the power of two below, 2^-24 at least.
std::uint16_t nearest_half(float value) {
  const double magnitude = std::abs(static_cast<double>(value));
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (magnitude >= 65520) return sign | 0x7C00;
  int exponent = -14;
  while (std::ldexp(2.0, exponent) <= magnitude) ++exponent;
  const auto steps = static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | (steps + (exponent + 14) * 1024));
}

int value_bits(std::uint32_t bytes, bool is_signed) { return bytes == 1 ? 8 : is_signed ? 15 : 16; }

std::uint32_t integer_of(double level, const Kind& from, DType to) {
  const int in = value_bits(from.depth / 8, from.is_signed), out = value_bits(dtype_bytes(to), to == DType::int16);
  if (in == out) return static_cast<std::uint32_t>(static_cast<std::int32_t>(level)) & (out == 8 ? 0xFF : 0xFFFF);
  const auto x = static_cast<std::uint32_t>(std::max(level, 0.0));
  if (in == 8 && out == 16) return x * 257;
  return in > out ? x >> (in - out) : x << (out - in);
}

// The bytes of one sample of the result.
void finish_sample(double level, const Kind& kind, const Finish& finish, std::uint32_t c, std::uint8_t* to) {
  if (finish.dtype == DType::float32 || finish.dtype == DType::float16) {
    const float product = static_cast<float>(level) * finish.scale[c];
    const float value = product + finish.shift[c];
    const std::uint16_t half = nearest_half(value);
    if (finish.dtype == DType::float32)
      std::memcpy(to, &value, 4);
    else
      std::memcpy(to, &half, 2);
  } else {
    const std::uint32_t level_out = integer_of(level, kind, finish.dtype);
    std::memcpy(to, &level_out, dtype_bytes(finish.dtype));
  }
}

Guarded reference(const Image& image, const Finish& finish, bool flip_rows, bool flip_columns) {
  const std::size_t bytes = dtype_bytes(finish.dtype), height = image.height, width = image.width;
  Guarded out(height * width * finish.channels * bytes);
  for (std::uint32_t y = 0; y < height; ++y)
    for (std::uint32_t x = 0; x < width; ++x)
      for (std::uint32_t c = 0; c < finish.channels; ++c) {
        const std::size_t to_y = flip_rows ? height - 1 - y : y, to_x = flip_columns ? width - 1 - x : x;
        const std::size_t at = finish.layout == Layout::chw ? (c * height + to_y) * width + to_x
                                                            : (to_y * width + to_x) * finish.channels + c;
        const double level = sample_of(image, y, x, image.kind.channels == 1 ? 0 : c);
        finish_sample(level, image.kind, finish, c, out.first() + at * bytes);
      }
  return out;
}

}  // namespace

void check_finish(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest) {
  constexpr std::array names = {"uint8", "uint16", "int16", "float16", "float32"};
  Random random(seed + 1);
  for (unsigned i = 0; i < cases; ++i) {
    const Kind kind = random_kind(random);
    const std::uint32_t widest = i % 8 == 0 ? 900 : 100;
    const std::uint32_t height = 1 + random.below(9), width = 1 + random.below(widest);
    const Image image = random_image(height, width, kind, random);
    Finish finish;
    finish.dtype = static_cast<DType>(random.below(5));
    finish.layout = static_cast<Layout>(random.below(2));
    const bool mapped = random.below(2) == 0 && (kind.channels == 1 || kind.channels == 4);
    finish.channels = mapped ? 3 : kind.channels;
    for (std::uint32_t c = 0; c < finish.channels; ++c) {  // from halves below the normal ones to those beyond the last
      const auto fraction = static_cast<float>(random.below(1000)), offset = static_cast<float>(random.below(1000));
      finish.scale[c] = std::ldexp(1 + fraction / 1000, static_cast<int>(random.below(40)) - 32);
      finish.shift[c] = std::ldexp(offset - 500, -static_cast<int>(random.below(30)));
    }
    const bool flip_rows = random.below(2) == 0, flip_columns = random.below(2) == 0;
    const Guarded expected = reference(image, finish, flip_rows, flip_columns);
    const std::string what = "finish " + name_of(kind) + ", " + size_of(image.height, image.width) + " as " +
                             names[static_cast<std::size_t>(finish.dtype)] +
                             (finish.layout == Layout::chw ? " CHW" : " HWC") + (flip_columns ? " flipped " : " ");
    const std::uint32_t cut = random.below(image.height + 1);
    for (const char* const target : targets()) {
      use_target(target);
      Guarded out(image.height * image.width * finish.channels * std::size_t{dtype_bytes(finish.dtype)});
      for (const auto& [begin, end] : {std::array{0U, cut}, std::array{cut, image.height}}) {
        const Rows rows{image.bytes.data() + begin * image.row_bytes(), static_cast<std::ptrdiff_t>(image.row_bytes()),
                        end - begin};
        finish_rows(
            {&finish, type_of(kind), rows, begin, image.height, image.width, flip_rows, flip_columns, out.first()});
      }
      checks.expect(out == expected, what + target + " differs from the definition");
      if (target == targets()[0]) out.add_to(digest);
    }
  }
}

}  // namespace headrace::tests
