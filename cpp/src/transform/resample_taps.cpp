// SPDX-License-Identifier: Apache-2.0
#include "transform/resample_taps.h"

#include <algorithm>

namespace headrace {
namespace {

struct Box {
  static double weight(double x) noexcept { return x > -0.5 && x <= 0.5 ? 1 : 0; }
};
struct Triangle {
  static double weight(double x) noexcept {
    x = x < 0 ? -x : x;
    return x < 1 ? 1 - x : 0;
  }
};
struct Cubic {
  static double weight(double x) noexcept {
    x = x < 0 ? -x : x;
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
  }
};

// Where the filter lies for each sample of the result. The terms are added in the order in which Pillow adds them:
// whether a sample on the very edge of a box counts may hang on the last bit.
struct Placing {
  double scale, support, narrowing;
  std::uint32_t size;

  explicit Placing(const ResizedAxis& axis) noexcept : size(axis.size) {
    scale = static_cast<double>(axis.size) / axis.resized;
    const double widening = axis.antialias && scale > 1 ? scale : 1;
    support = widening * (axis.filter == Filter::area ? 0.5 : axis.filter == Filter::bilinear ? 1 : 2);
    narrowing = 1 / widening;
  }
  double center(std::uint32_t x) const noexcept { return (x + 0.5) * scale; }
  std::uint32_t begin(std::uint32_t x) const noexcept {
    const double at = center(x) - support + 0.5;
    return at > 0 ? std::min(static_cast<std::uint32_t>(at), size - 1) : 0;
  }
  std::uint32_t end(std::uint32_t x) const noexcept {
    return std::max(std::min(static_cast<std::uint32_t>(center(x) + support + 0.5), size), begin(x) + 1);
  }
  double position(std::int32_t source, double center) const noexcept { return (source - center + 0.5) * narrowing; }
};

// Integers are rounded by their running sum, so that they add up to one and errors do not: what one weight lacks the
// next one gets.
class Rounded {
 public:
  static constexpr bool kEven = true;
  std::int16_t next(double weight) noexcept {
    sum_ += weight * (1 << kWeightBits);
    const auto upto = static_cast<std::int32_t>(sum_ + 32768.5) - 32768;  // the running sum may dip below 0
    const std::int32_t rounded = upto - before_;
    before_ = upto;
    return static_cast<std::int16_t>(rounded);
  }

 private:
  double sum_ = 0;
  std::int32_t before_ = 0;
};

struct Plain {
  static constexpr bool kEven = false;
  float next(double weight) noexcept { return static_cast<float>(weight); }
};

// The weights of the taps of one sample, not yet adding up to one. They are worked out a piece at a time, which
// compilers vectorise, and once only where one piece holds them all.
template <class Shape>
class Shaped {
 public:
  Shaped(const Placing& placing, std::uint32_t x) noexcept : placing_(placing), center_(placing.center(x)) {}

  template <class F>
  void each(std::uint32_t begin, std::uint32_t end, const F& f) noexcept {
    for (; begin < end; begin += std::min(kPiece, end - begin)) {
      const std::uint32_t n = std::min(kPiece, end - begin);
      if (begin != held_ || n != count_) {
        for (std::uint32_t k = 0; k < n; ++k)
          piece_[k] = Shape::weight(placing_.position(static_cast<std::int32_t>(begin + k), center_));
        held_ = begin;
        count_ = n;
      }
      for (std::uint32_t k = 0; k < n; ++k) f(piece_[k]);
    }
  }

 private:
  static constexpr std::uint32_t kPiece = 128;
  const Placing& placing_;
  double center_;
  std::uint32_t held_ = 0, count_ = 0;
  double piece_[kPiece];
};

template <class Shape, class Rounding, class Number>
void fill(const ResizedAxis& axis, bool even_first, Taps* taps, Number* weights) noexcept {
  const Placing placing(axis);
  const std::uint32_t stride = weight_stride(axis), origin = placing.begin(axis.begin);
  for (std::uint32_t i = 0; i < axis.count; ++i, weights += stride) {
    const std::uint32_t x = axis.begin + i, begin = placing.begin(x), end = placing.end(x);
    Shaped<Shape> shaped(placing, x);
    double sum = 0;
    shaped.each(begin, end, [&](double weight) { sum += weight; });
    Rounding rounding;
    std::uint32_t first = begin - origin, count = 0;
    if (even_first && first % 2 == 1) {
      --first;
      weights[count++] = 0;
    }
    if (sum == 0) {  // no sample lies within a narrow filter; the closest one serves
      weights[count++] = rounding.next(1);
    } else {
      const double unit = 1 / sum;
      shaped.each(begin, end, [&](double weight) { weights[count++] = rounding.next(weight * unit); });
    }
    while (count > 2 && weights[count - 1] == 0) --count;
    if (Rounding::kEven && count % 2 == 1) weights[count++] = 0;
    taps[i] = {first, count};
  }
}

template <class Rounding, class Number>
void fill_any(const ResizedAxis& axis, bool even_first, Taps* taps, Number* weights) noexcept {
  if (axis.is_identity()) {  // whatever the filter; Pillow leaves such an axis alone
    const std::uint32_t stride = weight_stride(axis);
    for (std::uint32_t i = 0; i < axis.count; ++i, weights += stride) {
      const std::uint32_t odd = even_first ? i % 2 : 0;
      const Number one = Rounding().next(1);
      weights[0] = odd ? 0 : one;
      weights[1] = odd ? one : 0;
      taps[i] = {i - odd, Rounding::kEven ? 2U : 1U};
    }
  } else if (axis.filter == Filter::area) {
    fill<Box, Rounding>(axis, even_first, taps, weights);
  } else if (axis.filter == Filter::bilinear) {
    fill<Triangle, Rounding>(axis, even_first, taps, weights);
  } else {
    fill<Cubic, Rounding>(axis, even_first, taps, weights);
  }
}

// Pillow steps from sample to sample, and so do we: where the exact position is a whole number, the rounding of the
// steps before it decides.
template <class F>
void each_nearest(const ResizedAxis& axis, const F& f) noexcept {
  const double scale = static_cast<double>(axis.size) / axis.resized;
  double at = scale * 0.5;
  for (std::uint32_t x = 0; x < axis.begin + axis.count; ++x, at += scale)
    if (x >= axis.begin) f(x - axis.begin, std::min(static_cast<std::uint32_t>(at), axis.size - 1));
}

}  // namespace

Range needed_range(const ResizedAxis& axis) noexcept {
  const std::uint32_t last = axis.begin + axis.count - 1;
  if (axis.is_identity()) return {axis.begin, last + 1};
  if (axis.filter == Filter::nearest) {
    Range range{0, 0};
    each_nearest(axis, [&](std::uint32_t x, std::uint32_t source) {
      if (x == 0) range.begin = source;
      range.end = source + 1;
    });
    return range;
  }
  const Placing placing(axis);
  return {placing.begin(axis.begin), placing.end(last)};
}

std::uint32_t max_taps(const ResizedAxis& axis) noexcept {
  if (axis.is_identity() || axis.filter == Filter::nearest) return 1;
  const auto reach = static_cast<std::uint32_t>(Placing(axis).support) + 1;
  return std::min(2 * reach + 1, axis.size);
}

void make_taps(const ResizedAxis& axis, bool even_first, Taps* taps, std::int16_t* weights) noexcept {
  fill_any<Rounded>(axis, even_first, taps, weights);
}

void make_taps(const ResizedAxis& axis, bool even_first, Taps* taps, float* weights) noexcept {
  fill_any<Plain>(axis, even_first, taps, weights);
}

void make_triangle_taps(const ResizedAxis& axis, std::int32_t origin, const TriangleTaps& taps) noexcept {
  const Placing placing(axis);
  for (std::uint32_t i = 0; i < axis.count; ++i) {
    const std::uint32_t begin = placing.begin(axis.begin + i), count = placing.end(axis.begin + i) - begin;
    const double position = placing.position(static_cast<std::int32_t>(begin), placing.center(axis.begin + i));
    double sum = 0;
    for (std::uint32_t k = 0; k < count; ++k) sum += Triangle::weight(position + k * placing.narrowing);
    taps.first[i] = static_cast<std::int32_t>(begin) - origin;
    taps.count[i] = static_cast<std::int32_t>(count);
    taps.position[i] = static_cast<float>(position);
    taps.step[i] = static_cast<float>(placing.narrowing);
    taps.unit[i] = static_cast<float>(1 / sum);
  }
}

Range triangle_range(const ResizedAxis& axis) noexcept {
  const Placing placing(axis);
  return {placing.begin(axis.begin), placing.end(axis.begin + axis.count - 1)};
}

void make_nearest(const ResizedAxis& axis, std::uint32_t* sources) noexcept {
  std::uint32_t origin = 0;
  each_nearest(axis, [&](std::uint32_t x, std::uint32_t source) {
    if (x == 0) origin = source;
    sources[x] = source - origin;
  });
}

}  // namespace headrace
