// SPDX-License-Identifier: Apache-2.0
// Both work in place, from the last image to the first: what an image is mixed with has not been changed yet, but for
// the last image, of which a piece is kept until the first image has been reached. Columns of pieces through all images
// are independent, so threads share them, and each piece is read from memory once.
#include "transform/mix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels.h"
#include "transform/draws.h"

namespace headrace {
namespace {

constexpr std::size_t kPiece = 2048;            // numbers of an image at a time: two pieces stay in 32 KB
constexpr std::size_t kThreadBytes = 8U << 20;  // fewer per thread are not worth starting it
constexpr std::uint16_t kFirstTry = 1, kTries = 4096;

// A number in (0, 1).
double open_unit(std::uint32_t drawn) noexcept { return (drawn + 0.5) * 0x1p-32; }

// A number of the beta distribution with alpha = beta: by Jöhnk's method if alpha <= 1, by Cheng's method BB else. Both
// accept a pair of uniform numbers with a probability of at least 1/4 and 1/2.
double beta_number(double alpha, const DrawKey& key, std::uint16_t operation) noexcept {
  const double lambda = std::sqrt(1 / alpha), gamma = alpha + 1 / lambda;
  constexpr double kLog4 = 1.3862943611198906, kLog5Plus1 = 2.6094379124341003;
  for (std::uint16_t k = 0; k < kTries; ++k) {
    const auto words = draw(key, operation, static_cast<std::uint16_t>(kFirstTry + k));
    for (int pair = 0; pair < 2; ++pair) {
      const double u = open_unit(words[static_cast<std::size_t>(2 * pair)]),
                   v = open_unit(words[static_cast<std::size_t>(2 * pair + 1)]);
      if (alpha <= 1) {
        const double x = logarithm(u) / alpha, y = logarithm(v) / alpha;
        if (exponential(std::max(x, -700.0)) + exponential(std::max(y, -700.0)) <= 1)
          return 1 / (1 + exponential(std::clamp(y - x, -700.0, 700.0)));
      } else {
        const double odds = lambda * logarithm(u / (1 - u)), w = alpha * exponential(odds);
        const double z = u * u * v, r = gamma * odds - kLog4, s = alpha + r - w;
        if (s + kLog5Plus1 >= 5 * z || r + 2 * alpha * logarithm(2 * alpha / (alpha + w)) >= logarithm(z))
          return w / (alpha + w);
      }
    }
  }
  return 0.5;  // after 8192 pairs: never
}

// A half as a float, exactly; without branches.
float float_of(std::uint16_t half) noexcept {
  const std::uint32_t magnitude = (half & 0x7FFFU) << 13, sign = (half & 0x8000U) << 16;
  const float scaled = __builtin_bit_cast(float, magnitude) * 0x1p112f;
  const std::uint32_t bits =
      magnitude >= 0x0F800000U ? magnitude | 0x7F800000U : __builtin_bit_cast(std::uint32_t, scaled);
  return __builtin_bit_cast(float, bits | sign);
}

void mix(const float* own, const float* other, std::size_t n, float share, float rest, float* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = other[i] * rest + own[i] * share;
}

void mix(const std::uint16_t* own, const std::uint16_t* other, std::size_t n, float share, float rest,
         std::uint16_t* out) noexcept {
  float mixed[kPiece];
  for (std::size_t i = 0; i < n; ++i) mixed[i] = float_of(other[i]) * rest + float_of(own[i]) * share;
  kernels().pixels.write_halves(mixed, n, out);
}

// Numbers [begin, end) of all images.
template <class Number>
void mix_columns(Number* first, std::size_t images, std::size_t samples, double share, std::size_t begin,
                 std::size_t end) noexcept {
  const auto own_share = static_cast<float>(share), rest = static_cast<float>(1 - share);
  Number last[kPiece];
  for (std::size_t at = begin; at < end; at += kPiece) {
    const std::size_t n = std::min(kPiece, end - at);
    const auto image = [&](std::size_t i) { return first + i * samples + at; };
    std::memcpy(last, image(images - 1), n * sizeof(Number));
    for (std::size_t i = images; i-- > 0;) mix(image(i), i > 0 ? image(i - 1) : last, n, own_share, rest, image(i));
  }
}

}  // namespace

Status check_mix(const MixOptions& o) noexcept {
  const auto alpha = [](double x) { return x == 0 || (x >= 1e-3 && x <= 1e3); };
  const auto probability = [](double x) { return x >= 0 && x <= 1; };
  if (!alpha(o.mixup_alpha) || !alpha(o.cutmix_alpha) || (o.mixup_alpha == 0 && o.cutmix_alpha == 0))
    return {Code::bad_argument, "alpha must be in [0.001, 1000]"};
  if (!probability(o.probability) || !probability(o.switch_probability))
    return {Code::bad_argument, "a probability must be in [0, 1]"};
  return {};
}

Mixture draw_mixture(const MixOptions& options, const DrawKey& key, std::uint16_t operation, std::uint32_t height,
                     std::uint32_t width) noexcept {
  Mixture mixture;
  const auto words = draw(key, operation, 0);
  if (unit(words[0]) >= options.probability || height == 0 || width == 0) return mixture;
  const bool both = options.mixup_alpha > 0 && options.cutmix_alpha > 0;
  const bool cuts = both ? unit(words[1]) < options.switch_probability : options.cutmix_alpha > 0;
  mixture.kind = cuts ? MixKind::cutmix : MixKind::mixup;
  mixture.share = beta_number(cuts ? options.cutmix_alpha : options.mixup_alpha, key, operation);
  if (!cuts) return mixture;
  const double half = 0.5 * std::sqrt(1 - mixture.share);
  const auto side = [half](std::uint32_t word, std::uint32_t size, std::uint32_t& begin, std::uint32_t& extent) {
    const std::uint32_t middle = below(word, size), reach = static_cast<std::uint32_t>(half * size);
    begin = middle - std::min(middle, reach);
    extent = std::min(middle + reach, size) - begin;
  };
  side(words[2], height, mixture.top, mixture.height);
  side(words[3], width, mixture.left, mixture.width);
  const double area = static_cast<double>(mixture.height) * mixture.width;
  mixture.share = 1 - area / (static_cast<double>(height) * width);
  return mixture;
}

void mix_images(std::uint8_t* first, std::size_t images, std::size_t samples, DType dtype, double share,
                unsigned threads) noexcept {
  if (images < 2) return;
  const auto columns = [=](std::size_t begin, std::size_t end) {
    if (dtype == DType::float16)
      mix_columns(reinterpret_cast<std::uint16_t*>(first), images, samples, share, begin, end);
    else
      mix_columns(reinterpret_cast<float*>(first), images, samples, share, begin, end);
  };
  const std::size_t useful = images * samples * dtype_bytes(dtype) / kThreadBytes;
  const std::size_t parts = std::clamp<std::size_t>(std::min<std::size_t>(threads, useful), 1, 64);
  const auto edge = [=](std::size_t part) { return samples / parts * part + std::min(part, samples % parts); };
  std::vector<std::thread> others;
  std::size_t done = 0;
  try {
    others.reserve(parts - 1);
    for (; done + 1 < parts; ++done) others.emplace_back(columns, edge(done), edge(done + 1));
  } catch (const std::system_error&) {  // no more threads: this one does the rest
  } catch (const std::bad_alloc&) {
  }
  columns(edge(done), samples);
  for (std::thread& each : others) each.join();
}

void cut_images(std::uint8_t* first, std::size_t images, std::size_t planes, std::size_t height, std::size_t width,
                std::size_t pixel, const Mixture& box) noexcept {
  if (images < 2) return;
  const std::size_t image = planes * height * width * pixel, n = box.width * pixel;
  std::uint8_t last[4096];
  for (std::size_t plane = 0; plane < planes; ++plane)
    for (std::size_t y = box.top; y < box.top + box.height; ++y) {
      std::uint8_t* const row = first + ((plane * height + y) * width + box.left) * pixel;
      for (std::size_t at = 0; at < n; at += sizeof(last)) {
        const std::size_t piece = std::min(sizeof(last), n - at);
        std::memcpy(last, row + (images - 1) * image + at, piece);
        for (std::size_t i = images - 1; i > 0; --i)
          std::memcpy(row + i * image + at, row + (i - 1) * image + at, piece);
        std::memcpy(row + at, last, piece);
      }
    }
}

}  // namespace headrace
