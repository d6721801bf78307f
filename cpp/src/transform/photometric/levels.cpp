// SPDX-License-Identifier: Apache-2.0
// Steps that map each level of a channel to another: a table is made, from the counts of levels where it depends on
// them, and every sample is looked up. With 8 bits all is as Pillow's ImageOps and ImageEnhance do it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels.h"
#include "transform/color_run.h"
#include "transform/photometric/steps.h"

namespace headrace {
namespace {

constexpr Status no_memory() noexcept { return {Code::no_memory, "no memory to transform an image"}; }

void make_identity(std::int32_t* levels, std::uint32_t size) noexcept {
  for (std::uint32_t i = 0; i < size; ++i) levels[i] = static_cast<std::int32_t>(i);
}

// Each function below writes, for index i, the index that it becomes.

void invert(std::int32_t* to, std::uint32_t size) noexcept {
  for (std::uint32_t i = 0; i < size; ++i) to[i] = static_cast<std::int32_t>(size - 1 - i);
}

void posterize(std::int32_t* to, std::uint32_t size, double bits) noexcept {
  const int depth = size == 256 ? 8 : 16;
  const int dropped = depth - static_cast<int>(std::clamp(bits, 0.0, static_cast<double>(depth)));
  for (std::uint32_t i = 0; i < size; ++i) to[i] = static_cast<std::int32_t>(i >> dropped << dropped);
}

void solarize(std::int32_t* to, std::uint32_t size, double threshold) noexcept {
  for (std::uint32_t i = 0; i < size; ++i) to[i] = static_cast<std::int32_t>(i < threshold ? i : size - 1 - i);
}

// What lies below the middle gets brighter. Of 16 bits an 8-bit level is 257.
void solarize_add(std::int32_t* to, std::uint32_t size, double added) noexcept {
  const auto last = static_cast<std::int64_t>(size) - 1;
  const std::int64_t more = static_cast<std::int64_t>(added) * (last / 255);
  for (std::int64_t i = 0; i <= last; ++i)
    to[i] = static_cast<std::int32_t>(i < size / 2 ? std::clamp<std::int64_t>(i + more, 0, last) : i);
}

// The range of levels that occur becomes the full range. As ImageOps.autocontrast, fractions are cut off.
void stretch(std::int32_t* to, std::uint32_t size, const std::uint32_t* counts) noexcept {
  std::uint32_t low = 0, high = size - 1;
  while (low < high && counts[low] == 0) ++low;
  while (high > low && counts[high] == 0) --high;
  if (low == high) return make_identity(to, size);
  const double last = size - 1, scale = last / (high - low), offset = -static_cast<double>(low) * scale;
  for (std::uint32_t i = 0; i < size; ++i)
    to[i] = static_cast<std::int32_t>(std::clamp(std::trunc(i * scale + offset), 0.0, last));
}

// All levels become about equally frequent. With 8 bits this is ImageOps.equalize, whose step is a whole number of
// pixels. With 16 bits there may be less than a pixel for each level, so that the step is a fraction.
void equalize(std::int32_t* to, std::uint32_t size, const std::uint32_t* counts) noexcept {
  std::uint64_t total = 0, used = 0, last_count = 0;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (counts[i] == 0) continue;
    total += counts[i];
    last_count = counts[i];
    ++used;
  }
  const std::uint64_t highest = size - 1, spread = total - last_count, step = size == 256 ? spread / highest : spread;
  if (used <= 1 || step == 0) return make_identity(to, size);
  const std::uint64_t factor = size == 256 ? 1 : highest;
  std::uint64_t sum = step / 2;
  for (std::uint32_t i = 0; i < size; ++i) {
    to[i] = static_cast<std::int32_t>(std::min(highest, sum / step));
    sum += factor * counts[i];
  }
}

// Pillow's Image.blend of `from` (factor 0) and `level` (factor 1), in float32.
std::int32_t blended(std::int32_t from, std::int32_t level, float factor, std::int32_t lowest,
                     std::int32_t highest) noexcept {
  const float x = static_cast<float>(from) + factor * static_cast<float>(level - from);
  if (!(x > static_cast<float>(lowest))) return lowest;
  return x >= static_cast<float>(highest) ? highest : floor_of(x);
}

void blend(std::int32_t* to, std::uint32_t size, std::int32_t from, float factor, std::int32_t lowest) noexcept {
  const std::int32_t highest = lowest + static_cast<std::int32_t>(size) - 1;
  for (std::uint32_t i = 0; i < size; ++i)
    to[i] = blended(from, static_cast<std::int32_t>(i) + lowest, factor, lowest, highest) - lowest;
}

// How often each level occurs in each of the first channels: `counts` has kCounters tables for each of them, which are
// added up into the first. Pixels side by side are often equal, and a counter that was just written is slow to read.
constexpr std::size_t kCounters = 2;

template <class Sample>
void count_levels(const Picture& picture, std::uint32_t acting, std::uint32_t size, std::uint32_t* counts) noexcept {
  const std::int32_t lowest = min_level(picture.type);
  const std::uint32_t channels = picture.type.channels;
  const std::size_t table = std::size_t{size} * acting;
  std::memset(counts, 0, kCounters * table * sizeof *counts);
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    const auto* row = reinterpret_cast<const Sample*>(picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride);
    for (std::size_t x = 0; x < picture.width; ++x, row += channels) {
      std::uint32_t* const to = counts + x % kCounters * table;
      for (std::size_t c = 0; c < acting; ++c) ++to[c * size + static_cast<std::size_t>(row[c] - lowest)];
    }
  }
  for (std::size_t i = 0; i < table; ++i) counts[i] += counts[table + i];
}

// The same table for the first channels of each pixel.
template <class Sample>
void look_up(const Picture& picture, std::uint32_t acting, const Sample* table) noexcept {
  const std::int32_t lowest = min_level(picture.type);
  const std::uint32_t channels = picture.type.channels;
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    auto* row = reinterpret_cast<Sample*>(picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride);
    const std::size_t samples = std::size_t{picture.width} * channels;
    if (acting == channels) {
      for (std::size_t i = 0; i < samples; ++i) row[i] = table[row[i] - lowest];
    } else {
      for (std::size_t x = 0; x < samples; x += channels)
        for (std::size_t c = 0; c < acting; ++c) row[x + c] = table[row[x + c] - lowest];
    }
  }
}

// A table for each of the first channels.
template <class Sample>
void look_up_each(const Picture& picture, std::uint32_t acting, std::size_t size, const Sample* tables) noexcept {
  const std::int32_t lowest = min_level(picture.type);
  const std::uint32_t channels = picture.type.channels;
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    auto* row = reinterpret_cast<Sample*>(picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride);
    for (std::size_t x = 0; x < picture.width; ++x, row += channels)
      for (std::size_t c = 0; c < acting; ++c) row[c] = tables[c * size + static_cast<std::size_t>(row[c] - lowest)];
  }
}

// The rounded mean of the picture's gray; of all samples if it has no colors.
template <class Sample>
std::int32_t mean_level(const Picture& picture) noexcept {
  const std::uint32_t channels = picture.type.channels;
  const bool color = channels == 3 || channels == 4;
  const std::size_t step = color ? channels : 1, samples = std::size_t{picture.width} * channels;
  std::int64_t sum = 0;
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    const auto* row = reinterpret_cast<const Sample*>(picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride);
    for (std::size_t i = 0; i < samples; i += step)
      sum += color ? gray_level(row[i], row[i + 1], row[i + 2]) : std::int64_t{row[i]};
  }
  const double count = static_cast<double>(samples / step) * picture.height;
  return static_cast<std::int32_t>(std::floor(static_cast<double>(sum) / count + 0.5));
}

template <class Sample>
void make_map(const ColorStep& step, const Picture& picture, const std::uint32_t* counts, std::int32_t* to) noexcept {
  const std::uint32_t size = level_count(picture.type);
  const std::int32_t lowest = min_level(picture.type);
  switch (step.kind) {
    case ColorKind::invert:
      return invert(to, size);
    case ColorKind::posterize:
      return posterize(to, size, step.value);
    case ColorKind::solarize:
      return solarize(to, size, step.second == 1 ? step.value * ((size - 1) / 255) : step.value - lowest);
    case ColorKind::solarize_add:
      return solarize_add(to, size, step.value);
    case ColorKind::autocontrast:
      return stretch(to, size, counts);
    case ColorKind::equalize:
      return equalize(to, size, counts);
    case ColorKind::enhance_contrast:
      return blend(to, size, mean_level<Sample>(picture), static_cast<float>(step.value), lowest);
    default:
      return blend(to, size, 0, static_cast<float>(step.value), lowest);
  }
}

template <class Sample>
Status map_as(const ColorStep& step, Picture& picture, Workspace& workspace) noexcept {
  const bool each = step.kind == ColorKind::autocontrast || step.kind == ColorKind::equalize;
  const std::uint32_t size = level_count(picture.type), acting = acting_channels(picture.type);
  const std::int32_t lowest = min_level(picture.type);
  const std::size_t tables = each ? acting : 1, counters = each ? kCounters * acting : 0;
  std::uint8_t* const memory =
      workspace.tables.reserve(size * (sizeof(std::int32_t) * (1 + counters) + sizeof(Sample) * tables));
  if (!memory) return no_memory();
  auto* const to = reinterpret_cast<std::int32_t*>(memory);
  auto* const counts = reinterpret_cast<std::uint32_t*>(to + size);
  auto* const table = reinterpret_cast<Sample*>(counts + size * counters);
  if (each) count_levels<Sample>(picture, acting, size, counts);
  for (std::size_t c = 0; c < tables; ++c) {
    make_map<Sample>(step, picture, counts + c * size, to);
    for (std::size_t i = 0; i < size; ++i) table[c * size + i] = static_cast<Sample>(to[i] + lowest);
  }
  if (each)
    look_up_each(picture, acting, size, table);
  else
    look_up(picture, acting, table);
  return {};
}

template <class Sample>
void saturate(float factor, const Picture& picture) noexcept {
  const std::int32_t lowest = min_level(picture.type),
                     highest = lowest + static_cast<std::int32_t>(level_count(picture.type)) - 1;
  const std::uint32_t channels = picture.type.channels;
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    auto* pixel = reinterpret_cast<Sample*>(picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride);
    for (std::uint32_t x = 0; x < picture.width; ++x, pixel += channels) {
      const std::int32_t gray = gray_level(pixel[0], pixel[1], pixel[2]);
      for (int c = 0; c < 3; ++c) pixel[c] = static_cast<Sample>(blended(gray, pixel[c], factor, lowest, highest));
    }
  }
}

}  // namespace

Status map_levels(const ColorStep& step, Picture& picture, Workspace& workspace) noexcept {
  if (picture.type.depth == 8) return map_as<std::uint8_t>(step, picture, workspace);
  if (picture.type.is_signed) return map_as<std::int16_t>(step, picture, workspace);
  return map_as<std::uint16_t>(step, picture, workspace);
}

Status enhance_saturation(double factor, Picture& picture) noexcept {
  const std::uint32_t channels = picture.type.channels;
  if (channels == 1) return {};
  if (channels != 3 && channels != 4)
    return {Code::bad_argument, "saturation needs an image of 1, 3 or 4 channels; omit it for this image"};
  const auto f = static_cast<float>(factor);
  if (picture.type.depth == 8) {
    const ColorFactor step{ColorKind::enhance_saturation, f, 0};
    ColorRun run{picture, &step, 1, channels, false, 0};
    kernels().pixels.color_rows(run);
  } else if (picture.type.is_signed) {
    saturate<std::int16_t>(f, picture);
  } else {
    saturate<std::uint16_t>(f, picture);
  }
  return {};
}

}  // namespace headrace
