// SPDX-License-Identifier: Apache-2.0
#include "loading/sample.h"

#include <algorithm>
#include <cstring>

#include "transform/augmix.h"
#include "transform/erase.h"
#include "transform/photometric/steps.h"
#include "transform/resample.h"
#include "transform/warp/warp.h"

namespace headrace {
namespace {

Status bad(const char* what) noexcept { return {Code::bad_argument, what, 0, -1}; }
Status no_memory() noexcept { return {Code::no_memory, "no memory to transform an image", 0, -1}; }

DType own_dtype(const PixelType& type) noexcept {
  return type.depth == 8 ? DType::uint8 : type.is_signed ? DType::int16 : DType::uint16;
}

bool becomes_gray(const Transform& transform) noexcept {
  if (transform.mask) return false;
  return std::any_of(transform.ops.begin(), transform.ops.end(),
                     [](const Op& op) { return op.kind == OpKind::grayscale && op.parameters[1] == 1; });
}

// Values on the scale of 0 to 1: uint8 / 255, uint16 / 65535, int16 / 32768.
Status make_finish(const Transform& transform, const PixelType& type, const OutputShape& shape,
                   Finish& finish) noexcept {
  finish.dtype = shape.dtype;
  finish.layout = transform.layout;
  finish.channels = shape.channels;
  if (shape.dtype != DType::float32 && shape.dtype != DType::float16) return {};
  const double highest = type.depth == 8 ? 255 : type.is_signed ? 32768 : 65535;
  const std::size_t n = transform.mask ? 0 : transform.mean.size();
  if (n > 1 && n != shape.channels)
    return bad("Normalize must have one mean and std, or one for each channel of the image");
  for (std::uint32_t c = 0; c < shape.channels; ++c) {
    const double mean = n == 0 ? 0 : transform.mean[n == 1 ? 0 : c];
    const double std = n == 0 ? 1 : transform.std[n == 1 ? 0 : c];
    finish.scale[c] = static_cast<float>(1 / (highest * std));
    finish.shift[c] = static_cast<float>(-mean / std);
  }
  return {};
}

// The part of an axis' resized content that is seen on its canvas.
struct Visible {
  std::uint32_t begin, count;
};

Visible visible(const Axis& axis, bool all) noexcept {
  if (all) return {0, axis.resized};
  const std::int64_t begin = std::max<std::int64_t>(0, -std::int64_t{axis.offset});
  const std::int64_t end = std::min<std::int64_t>(axis.resized, std::int64_t{axis.canvas} - axis.offset);
  if (end <= begin) return {0, 0};
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin)};
}

Status make_picture(Buffer& buffer, std::uint32_t height, std::uint32_t width, const PixelType& type,
                    Picture& picture) noexcept {
  const std::size_t stride = std::size_t{width} * type.pixel_bytes();
  std::uint8_t* memory = buffer.reserve(std::max<std::size_t>(1, stride * height));
  if (!memory) return no_memory();
  picture = {memory, static_cast<std::ptrdiff_t>(stride), height, width, type};
  return {};
}

Rows all_rows(const Picture& picture) noexcept { return {picture.first, picture.stride, picture.height}; }

// Where an axis' crop lies in an image that was decoded at a fraction of its size.
void reduce_axis(Axis& axis, std::uint32_t denominator) noexcept {
  axis.input = (axis.input + denominator - 1) / denominator;
  axis.start = std::min((axis.start + denominator / 2) / denominator, axis.input - 1);
  axis.size = std::clamp(axis.size / denominator, 1U, axis.input - axis.start);
}

// The largest fraction that leaves more pixels than are wanted.
unsigned reduction(const Pass& pass) noexcept {
  for (const unsigned denominator : {8U, 4U, 2U})
    if (pass.rows.size / denominator >= pass.rows.resized && pass.columns.size / denominator >= pass.columns.resized)
      return denominator;
  return 1;
}

// Runs the passes of one program, one after the other.
class Run {
 public:
  Run(const Transform& transform, const PixelType& type, const DrawKey& key, const Finish& finish, std::uint8_t* out,
      Workspace& workspace) noexcept
      : transform_(transform), type_(type), key_(key), finish_(finish), out_(out), workspace_(workspace) {}

  Status all(const Program& program, ImageRows& image) noexcept {
    Pass first = program.passes[0];
    // Also with 1: the view before may have reduced the same image.
    if (const unsigned denominator = reduction(first); image.reduce(denominator) && denominator > 1) {
      reduce_axis(first.rows, denominator);
      reduce_axis(first.columns, denominator);
    }
    if (Status s = pass(first, 0, program.pass_count == 1, image); !s) return s;
    for (std::uint32_t i = 1; i < program.pass_count; ++i) {
      if (Status s = mix(program.passes[i - 1], program.passes[i].input); !s) return s;
      PictureRows between(current_);
      if (Status s = pass(program.passes[i], i, i + 1 == program.pass_count, between); !s) return s;
    }
    return {};
  }

 private:
  // What a pass wrote goes to the mix that it belongs to, and the input of the next one becomes the current picture.
  Status mix(const Pass& done, PassInput next) noexcept {
    if (done.adds) add_picture(current_, done.weight, workspace_);
    if (done.keeps)
      if (Status s = keep_picture(current_, done.weight, workspace_, kept_); !s) return s;
    if (next == PassInput::mixed) return finish_mix(kept_, workspace_, current_);
    if (next == PassInput::kept) current_ = kept_;
    return {};
  }

  Status pass(const Pass& pass, std::uint32_t number, bool last, ImageRows& image) noexcept {
    if (pass.warps) return warp(pass, number, last, image);
    const bool border = pass.rows.has_border() || pass.columns.has_border();
    const bool mirrored_border = border && pass.border != Border::constant;
    const Visible rows = visible(pass.rows, mirrored_border), columns = visible(pass.columns, mirrored_border);
    const bool colors = pass.color_count > 0 && !transform_.mask;
    const bool empty = rows.count == 0 || columns.count == 0;
    Resample job{type_,
                 pass.rows.size,
                 pass.columns.size,
                 pass.rows.resized,
                 pass.columns.resized,
                 {rows.begin, columns.begin, rows.count, columns.count},
                 transform_.mask ? Filter::nearest : pass.filter,
                 pass.antialias};
    RowSource* source = nullptr;
    if (!empty) {
      const Region need = pass.resizes() ? needed_region(job) : job.window;
      const Region region{need.top + pass.rows.start, need.left + pass.columns.start, need.height, need.width};
      if (Status s = image.start(region, source); !s) return s;
    }
    if (last && !border && !colors && !pass.resizes()) return stream(pass, *source);

    Picture picture;
    if (Status s = make_picture(workspace_.picture[number % 2], rows.count, columns.count, type_, picture); !s)
      return s;
    if (!empty) {
      if (Status s = pass.resizes() ? resample(job, *source, picture.first, picture.stride, workspace_)
                                    : copy(*source, picture);
          !s)
        return s;
    }
    if (border) {
      Picture canvas;
      if (Status s = make_picture(workspace_.canvas, pass.rows.canvas, pass.columns.canvas, type_, canvas); !s)
        return s;
      place(picture, rows.begin, columns.begin, pass.rows, pass.columns, pass.border, pass.fill, canvas);
      picture = canvas;
    }
    return color_and_finish(pass, picture, last);
  }

  Status warp(const Pass& pass, std::uint32_t number, bool last, ImageRows& image) noexcept {
    const Filter filter = transform_.mask ? Filter::nearest : pass.filter;
    Field field;
    if (pass.warp.elastic.bends)
      if (Status s = make_field(pass.warp.elastic, workspace_.field, field); !s) return s;
    const Region region = warped_region(pass, field);
    Picture read, picture;
    if (region.height > 0) {
      RowSource* source = nullptr;
      if (Status s = image.start(
              {region.top + pass.rows.start, region.left + pass.columns.start, region.height, region.width}, source);
          !s)
        return s;
      const std::size_t bytes = std::size_t{region.height} * region.width * type_.pixel_bytes();
      if (!workspace_.warped.reserve(bytes + kWarpOverread)) return no_memory();
      if (Status s = make_picture(workspace_.warped, region.height, region.width, type_, read); !s) return s;
      if (Status s = copy(*source, read); !s) return s;
    }
    if (Status s = make_picture(workspace_.picture[number % 2], pass.rows.canvas, pass.columns.canvas, type_, picture);
        !s)
      return s;
    warp_picture(pass, field, filter, region, read, picture);
    return color_and_finish(pass, picture, last);
  }

  Status color_and_finish(const Pass& pass, Picture picture, bool last) noexcept {
    if (pass.color_count > 0 && !transform_.mask) {
      if (Status s = apply_steps({pass.colors.data(), pass.color_count}, key_, picture, workspace_); !s) return s;
      type_ = picture.type;
    }
    if (last) {
      finish(pass, picture, all_rows(picture), 0, finish_, out_);
      return {};
    }
    return hand_on(pass, picture);
  }

  void finish(const Pass& pass, const Picture& picture, const Rows& rows, std::uint32_t y, const Finish& finish,
              std::uint8_t* out) const noexcept {
    finish_rows(
        {&finish, picture.type, rows, y, picture.height, picture.width, pass.rows.flipped, pass.columns.flipped, out});
  }

  // Nothing but a crop and flips: rows go to the batch as they come.
  Status stream(const Pass& pass, RowSource& source) const noexcept {
    const Picture shape{nullptr, 0, pass.rows.canvas, pass.columns.canvas, type_};
    Rows rows;
    for (std::uint32_t y = 0; y < shape.height; y += rows.count) {
      if (Status s = source.next(shape.height - y, rows); !s) return s;
      finish(pass, shape, rows, y, finish_, out_);
    }
    return {};
  }

  static Status copy(RowSource& source, const Picture& to) noexcept {
    Rows rows;
    for (std::uint32_t y = 0; y < to.height; y += rows.count) {
      if (Status s = source.next(to.height - y, rows); !s) return s;
      for (std::uint32_t i = 0; i < rows.count; ++i)
        std::memcpy(to.first + static_cast<std::ptrdiff_t>(y + i) * to.stride, rows.row(i),
                    std::size_t{to.width} * to.type.pixel_bytes());
    }
    return {};
  }

  Status hand_on(const Pass& pass, const Picture& picture) noexcept {
    current_ = picture;
    if (!pass.rows.flipped && !pass.columns.flipped) return {};
    if (Status s = make_picture(workspace_.mirror, picture.height, picture.width, picture.type, current_); !s) return s;
    Finish same;
    same.dtype = own_dtype(picture.type);
    same.layout = Layout::hwc;
    same.channels = picture.type.channels;
    finish(pass, picture, all_rows(picture), 0, same, current_.first);
    return {};
  }

  const Transform& transform_;
  PixelType type_;
  const DrawKey& key_;
  const Finish& finish_;
  std::uint8_t* out_;
  Workspace& workspace_;
  Picture current_;
  Picture kept_;
};

Status shape_of(const Transform& transform, const ImageShape& stored, const Program& program,
                OutputShape& shape) noexcept {
  const std::uint32_t channels = stored.type.channels;
  if (channels < 1 || channels > kMaxChannels) return bad("an image has 1 to 64 channels");
  if (Status s = check_pixels(program, transform.max_pixels); !s) return s;
  shape.height = program.height();
  shape.width = program.width();
  shape.channels = channels;
  shape.dtype = own_dtype(stored.type);
  if (transform.mask) return {};
  if (becomes_rgb(transform.color, channels, stored.has_color)) {
    if (channels > 4)
      return bad("an image of more than four channels has no RGB: load it with color='auto' or color='keep'");
    shape.channels = 3;
  }
  if (becomes_gray(transform)) shape.channels = 1;
  if (transform.dtype)
    shape.dtype = *transform.dtype;
  else if (!transform.mean.empty())
    shape.dtype = DType::float32;
  return {};
}

}  // namespace

Status output_shape(const Transform& transform, const ImageShape& stored, const DrawKey& key,
                    OutputShape& shape) noexcept {
  Program program;
  if (Status s = make_program(transform.ops, stored.height, stored.width, key, program); !s) return s;
  return shape_of(transform, stored, program, shape);
}

Status transform_image(const Transform& transform, const ImageShape& shape, ImageRows& image, const DrawKey& key,
                       const OutputShape& expected, std::uint8_t* out, Workspace& workspace) noexcept {
  Program program;
  if (Status s = make_program(transform.ops, shape.height, shape.width, key, program); !s) return s;
  OutputShape actual;
  if (Status s = shape_of(transform, shape, program, actual); !s) return s;
  if (!(actual == expected)) return {Code::corrupt, "the image does not have the size that the index claims", 0, -1};
  // Decoders have taken the alpha away by now.
  if (shape.type.channels == 2 && actual.channels == 3)
    return bad("an image of two channels cannot become RGB here: take its alpha away, or use color='keep'");
  Finish finish;
  if (Status s = make_finish(transform, shape.type, actual, finish); !s) return s;
  if (Status s = Run(transform, shape.type, key, finish, out, workspace).all(program, image); !s) return s;
  if (!transform.mask) erase(transform.ops, key, finish, actual.height, actual.width, out);
  return {};
}

}  // namespace headrace
