// SPDX-License-Identifier: Apache-2.0
// Augmentations as data. A list of operations, a size and a key give a program, which is a pure function of them: the
// same on every machine, thread and target. Programs are then run on pixels, field by field; masks and boxes of a
// sample get the program of its image.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "headrace/status.h"

namespace headrace {

// What a random draw depends on, and nothing else. `sample` is the row of the dataset.
struct DrawKey {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint64_t sample = 0;  // below 2^48
  std::uint16_t view = 0;
};

// The four numbers of block `block` that operation number `operation` draws: Philox 4x32-10 with the seed as its key
// and (sample, view, epoch, operation, block) as its counter.
std::array<std::uint32_t, 4> draw(const DrawKey& key, std::uint16_t operation, std::uint16_t block) noexcept;

enum class Filter : std::uint8_t { nearest, area, bilinear, bicubic };
enum class Border : std::uint8_t { constant, edge, reflect };

enum class OpKind : std::uint8_t {
  resize,               // exact (0: the shorter side), height or side, width, filter, antialias
  center_crop,          // height, width
  random_crop,          // height, width, pad if needed, fill, border
  random_resized_crop,  // height, width, scale from, to, ratio from, to, filter, antialias
  horizontal_flip,      // probability
  vertical_flip,        // probability
  pad,                  // left, top, right, bottom, fill, border
  color_jitter,         // brightness from, to, contrast from, to, saturation from, to, hue from, to
  grayscale,            // probability, channels that come out (1 or 3)

  // probability, scale from, to, ratio from, to, rectangles from, to, fill (0: values, 1: a random color, 2: random
  // pixels), number of values, and at most seven of them, one for each channel. Only others of its kind may follow it.
  random_erasing,
  // Control (transform/control.h). `length` is the number of operations after this one that belong to it.
  apply,         // probability, length: run the body or skip it
  choice,        // length: run one of the branches that the body consists of, picked by weight
  order,         // length: run all branches of the body in a random order
  branch,        // weight, length
  affine,        // degrees from, to, translate x from, to, y from, to, scale from, to, shear x degrees from, to,
                 // y from, to, resampling, fill, center x, y
  affine_level,  // a Movement, the eight numbers of a level, resampling, fill
  perspective,   // probability, distortion, resampling, fill
  elastic,       // alpha x, y, sigma x, y, resampling, fill

  // Pixel values (transform/photometric). A level is eight numbers (transform/level.h).
  invert,            // probability
  posterize,         // probability, rounding (0: down, 1: up), level: the bits that stay
  solarize,          // probability, scale (ThresholdScale), level: the threshold
  solarize_add,      // probability, level: what is added, in 8-bit levels
  autocontrast,      // probability
  equalize,          // probability
  enhance,           // probability, what (0 brightness, 1 contrast, 2 saturation, 3 sharpness), base, least, level:
                     // the factor is max(least, base + level)
  gaussian_blur,     // kernel height, width, sigma from, to
  gaussian_noise,    // mean, deviation, both as a share of the range of levels
  permute_channels,  // none
  jpeg,              // quality from, to

  mix,  // alpha, length: the picture and what the branches of the body make of it, added up with random weights

  scale_jitter,   // height, width, scale from, to, filter, antialias
  shortest_size,  // most of the longer side (0: any), filter, antialias, how many sizes, the sizes (at most 12)
  letterbox,      // height, width, may grow, in the middle, fill, filter, antialias
  zoom_out,       // probability, factor from, to, fill
};

// What the threshold of `solarize` counts: levels of the image's own depth, of 8 bits, or whole ones of 8 bits.
enum class ThresholdScale : std::uint8_t { own, eight_bits, whole_eight_bits };

// What affine_level changes by its level, in the direction of Pillow's and torchvision's functions.
enum class Movement : std::uint8_t {
  rotate,              // degrees, counterclockwise, about the middle
  shear_x,             // the tangent: input x = x + level * y, about the top left corner
  shear_y,             // input y = y + level * x, likewise
  translate_x,         // a fraction of the width, to the right
  translate_y,         // a fraction of the height, down
  translate_x_pixels,  // whole pixels, the fraction cut off
  translate_y_pixels,
};

// The `resampling` of a warp is a filter (0 nearest, 2 bilinear, 3 bicubic, 4 one of bilinear and bicubic, drawn; 4
// only in affine_level) plus the sum of these flags.
inline constexpr std::uint32_t kWarpPixels = 8;   // affine: translations are pixels, not fractions; both are rounded
inline constexpr std::uint32_t kWarpExpand = 16;  // affine: the canvas grows or shrinks to hold the entire picture
inline constexpr std::uint32_t kWarpCenter = 32;  // affine: about the given point, not the middle
inline constexpr std::uint32_t kWarpCorner =
    64;  // affine_level: rotate about the top left corner, shear about the middle

// The `fill` of a warp is three whole levels in one number, which a double holds exactly.
using WarpFill = std::array<std::int32_t, 3>;
constexpr double pack_fill(const WarpFill& levels) noexcept {
  return (levels[0] + 32768) + (levels[1] + 32768) * 0x1p17 + (levels[2] + 32768) * 0x1p34;
}

using Parameters = std::array<double, 16>;

struct Op {
  OpKind kind;
  Parameters parameters{};  // in the order of the comments above; flags are 0 or 1
};

inline constexpr std::size_t kMaxOps = 512;
inline constexpr std::size_t kMaxColorSteps = 8;
inline constexpr std::size_t kMaxPasses = 16;

// One axis of a pass. Its input is cut to [start, start + size), that is resized to `resized`, and what comes out is
// canvas[i] = content[i' - offset] with i' = flipped ? canvas - 1 - i : i; what lies outside the content is border.
// Invariants: start + size <= input; no field but offset is negative; none but start is 0.
struct Axis {
  std::uint32_t input = 0;
  std::uint32_t start = 0;
  std::uint32_t size = 0;
  std::uint32_t resized = 0;
  std::int32_t offset = 0;
  std::uint32_t canvas = 0;
  bool flipped = false;

  // Not of a warp, whose canvas may be larger than its input.
  bool has_border() const noexcept { return offset > 0 || std::int64_t{canvas} - offset > std::int64_t{resized}; }
};

enum class ColorKind : std::uint8_t {
  brightness,  // a factor. This one and the four after it are done in float32 and rounded once, if side by side
  contrast,    // a factor
  saturation,  // a factor
  hue,         // a shift in turns
  grayscale,   // the channels that come out
  invert,
  posterize,     // bits that stay
  solarize,      // threshold, 1 if it counts 8-bit levels
  solarize_add,  // what is added, in 8-bit levels
  autocontrast,
  equalize,
  enhance_brightness,  // a factor. Pillow's ImageEnhance: fractions of levels are cut off
  enhance_contrast,    // a factor
  enhance_saturation,  // a factor
  enhance_sharpness,   // a factor
  gaussian_blur,       // sigma, kernel height, kernel width
  gaussian_noise,      // mean, deviation
  permute_channels,
  jpeg,  // quality
};

inline constexpr ColorKind kLastFusedColor = ColorKind::grayscale;

struct ColorStep {
  ColorKind kind;
  double value = 0;  // the drawn values, as above
  double second = 0;
  double third = 0;
  std::uint16_t operation = 0;  // its number, for draws that depend on the pixels
};

// Where a pass takes its pixels from.
enum class PassInput : std::uint8_t {
  previous,  // the pass before it; the image, for the first one
  kept,      // the picture that a mix has kept
  mixed,     // the result of a mix
};

inline constexpr std::size_t kMaxGates = 12;

// An elastic deformation of a picture: position p of it shows what was at p + d(p), a position that `map` leads to the
// pass's input. The displacement d is a cubic B-spline over random nodes (transform/warp/field.h).
struct Elastic {
  bool bends = false;
  std::array<double, 9> map{};             // affine
  std::uint32_t gate_count = 0;            // the first gates of the warp, which are about p + d(p)
  std::uint32_t height = 0, width = 0;     // of the picture
  std::array<double, 2> alpha{}, sigma{};  // across, down
  std::array<std::uint32_t, 2> key{};      // of the stream of random numbers
};

// Turns, shears and distortions in one resampling. Position (x, y) of the canvas, where pixel i covers [i, i + 1),
// shows what is at map · (x, y, 1) of the pass's input, counted from its start; outside of its size, and where a gate's
// product with (x, y, 1) is negative, there is fill. The gates are the edges of canvases that were composed into this
// one: what they cut away stays away. With an elastic deformation, `map` leads to positions of the picture that it
// deforms.
struct Warp {
  std::array<double, 9> map{};  // row by row; the third row is 0, 0, 1 unless there is a perspective
  std::array<std::array<double, 3>, kMaxGates> gates{};
  std::uint32_t gate_count = 0;
  WarpFill fill{};
  Elastic elastic;
};

// Geometry, then color. In a warp each axis has offset 0 and resized = size. What a pass writes is the input of the
// next one.
struct Pass {
  Axis rows;
  Axis columns;
  Filter filter = Filter::bilinear;
  bool antialias = true;
  Border border = Border::constant;
  double fill = 0;  // in levels of the image's own depth
  std::array<ColorStep, kMaxColorSteps> colors{};
  std::uint32_t color_count = 0;
  PassInput input = PassInput::previous;
  bool keeps = false;  // what it writes is kept, and is the first term of a mix
  bool adds = false;   // what it writes is added to the mix
  double weight = 0;   // with `keeps` and `adds`: of what it writes
  bool warps = false;
  Warp warp;  // if it warps

  bool resizes() const noexcept { return rows.resized != rows.size || columns.resized != columns.size; }
};

// Only the passes below pass_count exist: to clear all of them took 0.4 us per sample, 4 % of loading a small image.
struct Program {
  union {
    std::array<Pass, kMaxPasses> passes;
  };
  std::uint32_t pass_count = 0;  // at least one; an empty list of operations gives one that copies

  Program() noexcept {}
  std::uint32_t height() const noexcept { return passes[pass_count - 1].rows.canvas; }
  std::uint32_t width() const noexcept { return passes[pass_count - 1].columns.canvas; }
};

// Check kinds and ranges of parameters, once, when a transform is made.
Status check_ops(std::span<const Op> ops) noexcept;

// Answered where an image, or what its operations make of it, has more pixels than the caller allows.
inline constexpr Status kTooManyPixels{Code::too_large,
                                       "it has more pixels than max_pixels: raise max_pixels if you trust the dataset"};

// Check that no pass reads or writes more pixels than this. Without it a thin image that is resized by its shorter side
// could become any size.
Status check_pixels(const Program& program, std::uint64_t max_pixels) noexcept;

// Draw what is random and work the operations out for an image of this size. Fails with bad_argument where an
// operation cannot be done, as with a crop larger than the image. `ops` has passed check_ops.
Status make_program(std::span<const Op> ops, std::uint32_t height, std::uint32_t width, const DrawKey& key,
                    Program& program) noexcept;

}  // namespace headrace
