// SPDX-License-Identifier: Apache-2.0
// Resizing against sums in doubles with weights from the definition of each filter.
#include "transform/resample.h"

#include <cmath>

#include "pixels.h"

namespace headrace::tests {
namespace {

double weight_of(Filter filter, double x) {
  const double d = std::abs(x);
  if (filter == Filter::area) return x > -0.5 && x <= 0.5 ? 1 : 0;
  if (filter == Filter::bilinear) return d < 1 ? 1 - d : 0;
  if (d < 1) return 1.5 * d * d * d - 2.5 * d * d + 1;
  return d < 2 ? -0.5 * d * d * d + 2.5 * d * d - 4 * d + 2 : 0;
}

using Plane = std::vector<double>;

// One axis: `count` lines of `size` numbers, `step` apart from number to number, to `resized` numbers each.
Plane resize_lines(const Plane& in, std::uint32_t count, std::uint32_t size, std::uint32_t resized, bool rows,
                   const Resample& job) {
  if (size == resized) return in;
  Plane out(std::size_t{count} * resized);
  const double scale = static_cast<double>(size) / resized, widening = job.antialias && scale > 1 ? scale : 1;
  const double support = widening * (job.filter == Filter::area ? 0.5 : job.filter == Filter::bilinear ? 1 : 2);
  double stepped = scale * 0.5;  // the position of nearest is a running sum
  for (std::uint32_t i = 0; i < resized; ++i, stepped += scale) {
    const double center = (i + 0.5) * scale;
    const auto begin = static_cast<std::uint32_t>(std::max(center - support + 0.5, 0.0));
    const auto end = std::min(static_cast<std::uint32_t>(center + support + 0.5), size);
    double total = 0;
    std::vector<double> weights(size, 0.0);
    if (job.filter == Filter::nearest) {
      weights[std::min(static_cast<std::uint32_t>(stepped), size - 1)] = total = 1;
    } else {
      for (std::uint32_t s = begin; s < end; ++s)
        total += weights[s] = weight_of(job.filter, (s - center + 0.5) * (1 / widening));
      if (total == 0) weights[begin] = total = 1;
    }
    for (std::uint32_t line = 0; line < count; ++line) {
      double sum = 0;
      for (std::uint32_t s = 0; s < size; ++s)
        if (weights[s] != 0) sum += weights[s] / total * in[rows ? s * count + line : line * size + s];
      out[rows ? std::size_t{i} * count + line : std::size_t{line} * resized + i] = sum;
    }
  }
  return out;
}

// One channel of the whole resized image.
Plane reference(const Image& image, std::uint32_t c, const Resample& job) {
  Plane plane(std::size_t{job.height} * job.width);
  for (std::uint32_t y = 0; y < job.height; ++y)
    for (std::uint32_t x = 0; x < job.width; ++x) plane[std::size_t{y} * job.width + x] = sample_of(image, y, x, c);
  const auto cut = [&](Plane p) {
    for (double& v : p) v = std::clamp(v, least_of(image.kind), most_of(image.kind));
    return p;
  };
  const int fewer_rows = static_cast<int>(job.height) - static_cast<int>(job.resized_height);
  const int fewer_columns = static_cast<int>(job.width) - static_cast<int>(job.resized_width);
  if (fewer_rows > 0 && fewer_rows > 2 * fewer_columns) {
    plane = cut(resize_lines(plane, job.width, job.height, job.resized_height, true, job));
    return cut(resize_lines(plane, job.resized_height, job.width, job.resized_width, false, job));
  }
  plane = cut(resize_lines(plane, job.height, job.width, job.resized_width, false, job));
  return cut(resize_lines(plane, job.resized_width, job.height, job.resized_height, true, job));
}

// The largest distance from the reference, in levels.
double farthest(const Image& image, const Resample& job, const Guarded& out) {
  const std::size_t sample_bytes = image.kind.depth / 8;
  double highest = 0;
  for (std::uint32_t c = 0; c < image.kind.channels; c += c < 5 ? 1 : 29) {
    const Plane plane = reference(image, c, job);
    for (std::uint32_t y = 0; y < job.window.height; ++y)
      for (std::uint32_t x = 0; x < job.window.width; ++x) {
        const std::size_t at = (std::size_t{y} * job.window.width + x) * image.kind.channels + c;
        const double expected = plane[std::size_t{job.window.top + y} * job.resized_width + job.window.left + x];
        highest = std::max(highest, std::abs(sample_at(out.first() + at * sample_bytes, image.kind) - expected));
      }
  }
  return highest;
}

std::uint32_t random_size(Random& random) {
  switch (random.below(4)) {
    case 0:
      return 1 + random.below(6);
    case 1:
      return 1U << random.below(8);
    default:
      return 1 + random.below(120);
  }
}

Guarded resample_on(const char* target, const Image& image, const Resample& job, std::uint32_t most_rows,
                    Workspace& workspace, bool& ok) {
  use_target(target);
  const std::size_t row = job.window.width * image.pixel_bytes();
  Guarded out(job.window.height * row);
  Random chance(most_rows);
  FewRows source(image, needed_region(job), most_rows, chance);
  ok = static_cast<bool>(resample(job, source, out.first(), static_cast<std::ptrdiff_t>(row), workspace));
  return out;
}

void check_job(const Image& image, const Resample& job, Random& random, Checks& checks, Digest& digest) {
  constexpr std::array names = {"nearest ", "area ", "bilinear ", "bicubic "};
  const std::string what = names[static_cast<std::size_t>(job.filter)] + name_of(image.kind) + ", " +
                           size_of(job.height, job.width) + " to " + size_of(job.resized_height, job.resized_width) +
                           (job.antialias ? " " : " without antialias ");
  const Region need = needed_region(job);
  if (!checks.expect(need.height > 0 && need.width > 0 && need.top + need.height <= job.height &&
                         need.left + need.width <= job.width,
                     what + "needs what the image does not have"))
    return;
  const std::uint32_t few = 1 + random.below(4), more = 1 + random.below(64);  // rows that come at a time
  Workspace workspace;
  bool ok = false;
  const Guarded expected = resample_on(targets()[0], image, job, few, workspace, ok);
  if (!checks.expect(ok && expected.intact(), what + "fails or writes beyond its output")) return;
  expected.add_to(digest);
  // A final rounding; weights of 14 bits and 6 bits between the passes, or the errors of float32.
  const double tolerance = job.filter == Filter::nearest ? 0 : image.kind.depth == 8 ? 0.7 : 0.6;
  const double distance = farthest(image, job, expected);
  checks.expect(distance <= tolerance, what + "is " + std::to_string(distance) + " levels off");
  for (const char* const target : targets()) {
    const Guarded out = resample_on(target, image, job, more, workspace, ok);
    checks.expect(ok && out == expected, what + target + " differs from " + targets()[0]);
  }
}

class Broken final : public RowSource {
 public:
  Status next(std::uint32_t, Rows&) noexcept override { return {Code::corrupt, "broken"}; }
};

void check_failures(Checks& checks) {
  Workspace workspace;
  std::uint8_t out[64];
  Broken source;
  for (const Filter filter : {Filter::nearest, Filter::area, Filter::bilinear, Filter::bicubic}) {
    const Resample job{{1, 8, false}, 9, 9, 8, 8, {0, 0, 8, 8}, filter, true};
    checks.expect(resample(job, source, out, 8, workspace).code == Code::corrupt, "a source's error is lost");
  }
}

}  // namespace

void check_resample(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest) {
  Random random(seed);
  for (unsigned i = 0; i < cases; ++i) {
    const Kind kind = random_kind(random);
    Resample job{type_of(kind),
                 random_size(random),
                 random_size(random),
                 random_size(random),
                 random_size(random),
                 {},
                 static_cast<Filter>(random.below(4)),
                 random.below(5) != 0};
    if (i % 16 == 0) job.resized_height = job.height;
    if (i % 16 == 1) job.resized_width = job.width;
    job.window = {0, 0, job.resized_height, job.resized_width};
    if (i % 2 == 0) {
      job.window.top = random.below(job.resized_height);
      job.window.left = random.below(job.resized_width);
      job.window.height = 1 + random.below(job.resized_height - job.window.top);
      job.window.width = 1 + random.below(job.resized_width - job.window.left);
    }
    check_job(random_image(job.height, job.width, kind, random), job, random, checks, digest);
  }
  // More taps than integer weights are good for, and the widest image that there is.
  for (const Filter filter : {Filter::area, Filter::bilinear, Filter::bicubic, Filter::nearest})
    for (const Kind kind : {Kind{3, 8, false}, Kind{1, 16, true}}) {
      const Resample tall{type_of(kind), 3000, 5, 2, 4, {0, 0, 2, 4}, filter, true};
      check_job(random_image(3000, 5, kind, random), tall, random, checks, digest);
      const Resample wide{type_of(kind), 2, 65535, 3, 7, {1, 2, 2, 4}, filter, true};
      check_job(random_image(2, 65535, kind, random), wide, random, checks, digest);
      const Resample wider{type_of(kind), 1, 3, 2, 65535, {0, 65000, 2, 535}, filter, true};
      check_job(random_image(1, 3, kind, random), wider, random, checks, digest);
    }
  check_failures(checks);
}

}  // namespace headrace::tests
