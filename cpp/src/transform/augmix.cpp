// SPDX-License-Identifier: Apache-2.0
// Gamma numbers by Marsaglia and Tsang's method, "A simple method for generating gamma variables" (2000); their shares
// of a sum have Dirichlet's distribution, of two of them the beta distribution.
#include "transform/augmix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "transform/draws.h"
#include "transform/trigonometry.h"

namespace headrace {
namespace {

constexpr std::uint32_t kAttempts = 16;  // one in twenty fails at most

constexpr Status no_memory() noexcept { return {Code::no_memory, "no memory to transform an image"}; }

// In (0, 1].
double positive_unit(std::uint32_t word) noexcept { return 1 - unit(word); }

// Number `which` of the operation uses blocks [16 which, 16 which + 16).
double gamma_number(const DrawKey& key, std::uint16_t number, std::uint32_t which, double alpha) noexcept {
  const auto words = [&](std::uint32_t attempt) {
    return draw(key, number, static_cast<std::uint16_t>(kAttempts * which + attempt));
  };
  // Below 1 a number of alpha + 1 is made smaller by a power of a uniform one.
  const double power = alpha < 1 ? exponential(std::max(-700.0, logarithm(positive_unit(words(0)[3])) / alpha)) : 1;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (std::uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
    const auto w = words(attempt);
    const double x = std::sqrt(-2 * logarithm(positive_unit(w[0]))) * turned(unit(w[1])).cosine;
    const double root = 1 + c * x, v = root * root * root;
    if (root > 0 && logarithm(positive_unit(w[2])) < 0.5 * x * x + d - d * v + d * logarithm(v)) return d * v * power;
  }
  return d * power;
}

std::size_t samples_of(const Picture& picture) noexcept { return std::size_t{picture.width} * picture.type.channels; }

template <class Sample, class F>
void each_sample(const Picture& picture, float* sum, const F& f) noexcept {
  const std::size_t samples = samples_of(picture);
  for (std::uint32_t y = 0; y < picture.height; ++y, sum += samples) {
    auto* const row = reinterpret_cast<Sample*>(picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride);
    for (std::size_t i = 0; i < samples; ++i) f(row[i], sum[i]);
  }
}

template <class F>
void each_of_type(const Picture& picture, float* sum, const F& f) noexcept {
  if (picture.type.depth == 8)
    each_sample<std::uint8_t>(picture, sum, f);
  else if (picture.type.is_signed)
    each_sample<std::int16_t>(picture, sum, f);
  else
    each_sample<std::uint16_t>(picture, sum, f);
}

Status make_dense(Buffer& buffer, const Picture& like, Picture& picture) noexcept {
  picture = like;
  picture.stride = static_cast<std::ptrdiff_t>(std::size_t{like.width} * like.type.pixel_bytes());
  picture.first = buffer.reserve(std::max<std::size_t>(1, static_cast<std::size_t>(picture.stride) * like.height));
  return picture.first ? Status{} : no_memory();
}

}  // namespace

MixWeights draw_mix_weights(const DrawKey& key, std::uint16_t number, double alpha, std::uint32_t branches) noexcept {
  MixWeights weights;
  const double kept = gamma_number(key, number, 0, alpha), mixed = gamma_number(key, number, 1, alpha);
  weights.kept = kept + mixed > 0 ? kept / (kept + mixed) : 0.5;
  double sum = 0;
  for (std::uint32_t k = 0; k < branches; ++k) {
    weights.branches[k] = gamma_number(key, number, 2 + k, alpha);
    sum += weights.branches[k];
  }
  for (std::uint32_t k = 0; k < branches; ++k)
    weights.branches[k] = (1 - weights.kept) * (sum > 0 ? weights.branches[k] / sum : 1.0 / branches);
  return weights;
}

Status keep_picture(const Picture& picture, double weight, Workspace& workspace, Picture& kept) noexcept {
  if (Status s = make_dense(workspace.kept, picture, kept); !s) return s;
  auto* const sum = reinterpret_cast<float*>(
      workspace.sum.reserve(std::max<std::size_t>(1, samples_of(picture) * picture.height) * sizeof(float)));
  if (!sum) return no_memory();
  for (std::uint32_t y = 0; y < picture.height; ++y)
    std::memcpy(kept.first + static_cast<std::ptrdiff_t>(y) * kept.stride,
                picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride, static_cast<std::size_t>(kept.stride));
  const auto w = static_cast<float>(weight);
  each_of_type(kept, sum, [w](auto sample, float& to) { to = static_cast<float>(sample) * w; });
  return {};
}

void add_picture(const Picture& picture, double weight, Workspace& workspace) noexcept {
  const auto w = static_cast<float>(weight);
  each_of_type(picture, reinterpret_cast<float*>(workspace.sum.data()),
               [w](auto sample, float& to) { to = to + static_cast<float>(sample) * w; });
}

Status finish_mix(const Picture& kept, Workspace& workspace, Picture& mixed) noexcept {
  if (Status s = make_dense(workspace.mixed, kept, mixed); !s) return s;
  const float lowest = kept.type.is_signed ? -32768 : 0;
  const float highest = kept.type.depth == 8 ? 255 : kept.type.is_signed ? 32767 : 65535;
  each_of_type(mixed, reinterpret_cast<float*>(workspace.sum.data()), [=](auto& sample, const float& from) {
    float x = from > lowest ? from : lowest;
    x = x < highest ? x : highest;
    sample = static_cast<std::remove_reference_t<decltype(sample)>>(static_cast<std::int32_t>((x - lowest) + 0.5f) +
                                                                    static_cast<std::int32_t>(lowest));
  });
  return {};
}

}  // namespace headrace
