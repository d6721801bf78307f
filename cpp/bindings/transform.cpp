// SPDX-License-Identifier: Apache-2.0
// Transforms on single images: for datasets without a loader, for tests, and for what follows the geometry of a crop.
#include "transform.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "buffers.h"
#include "decoder_lease.h"
#include "errors.h"
#include "gil.h"
#include "loading/image_rows.h"
#include "transform/warp/field.h"

namespace headrace::bindings {
namespace {

constexpr std::pair<std::string_view, OpKind> kOps[] = {
    {"resize", OpKind::resize},
    {"center_crop", OpKind::center_crop},
    {"random_crop", OpKind::random_crop},
    {"random_resized_crop", OpKind::random_resized_crop},
    {"horizontal_flip", OpKind::horizontal_flip},
    {"vertical_flip", OpKind::vertical_flip},
    {"pad", OpKind::pad},
    {"color_jitter", OpKind::color_jitter},
    {"grayscale", OpKind::grayscale},
    {"random_erasing", OpKind::random_erasing},
    {"apply", OpKind::apply},
    {"choice", OpKind::choice},
    {"order", OpKind::order},
    {"branch", OpKind::branch},
    {"affine", OpKind::affine},
    {"affine_level", OpKind::affine_level},
    {"perspective", OpKind::perspective},
    {"elastic", OpKind::elastic},
    {"invert", OpKind::invert},
    {"posterize", OpKind::posterize},
    {"solarize", OpKind::solarize},
    {"solarize_add", OpKind::solarize_add},
    {"autocontrast", OpKind::autocontrast},
    {"equalize", OpKind::equalize},
    {"enhance", OpKind::enhance},
    {"gaussian_blur", OpKind::gaussian_blur},
    {"gaussian_noise", OpKind::gaussian_noise},
    {"permute_channels", OpKind::permute_channels},
    {"jpeg", OpKind::jpeg},
    {"mix", OpKind::mix},
    {"scale_jitter", OpKind::scale_jitter},
    {"shortest_size", OpKind::shortest_size},
    {"letterbox", OpKind::letterbox},
    {"zoom_out", OpKind::zoom_out},
};
constexpr std::pair<std::string_view, DType> kDTypes[] = {
    {"uint8", DType::uint8},     {"uint16", DType::uint16},   {"int16", DType::int16},
    {"float16", DType::float16}, {"float32", DType::float32},
};
constexpr std::pair<std::string_view, Color> kColorChoices[] = {
    {"auto", Color::automatic},
    {"RGB", Color::rgb},
    {"keep", Color::keep},
};
constexpr const char* kFilters[] = {"nearest", "area", "bilinear", "bicubic"};
constexpr const char* kBorders[] = {"constant", "edge", "reflect"};
constexpr const char* kColors[] = {"brightness",
                                   "contrast",
                                   "saturation",
                                   "hue",
                                   "grayscale",
                                   "invert",
                                   "posterize",
                                   "solarize",
                                   "solarize_add",
                                   "autocontrast",
                                   "equalize",
                                   "enhance_brightness",
                                   "enhance_contrast",
                                   "enhance_saturation",
                                   "enhance_sharpness",
                                   "gaussian_blur",
                                   "gaussian_noise",
                                   "permute_channels",
                                   "jpeg"};

template <class T, std::size_t N>
T look_up(const std::pair<std::string_view, T> (&table)[N], std::string_view name, const char* what) {
  for (const auto& [known, value] : table)
    if (known == name) return value;
  throw nb::value_error((std::string(what) + " '" + std::string(name) + "' is not known").c_str());
}

std::unique_ptr<Transform> make_transform(nb::typed<nb::sequence, nb::object> ops, nb::object dtype,
                                          std::string_view layout, nb::object mean, nb::object std,
                                          std::string_view color, bool mask, bool approximate_jpeg,
                                          std::uint64_t max_pixels) {
  auto transform = std::make_unique<Transform>();
  for (nb::handle item : ops) {
    const auto name = nb::cast<std::string>(item[0]);
    const auto parameters = nb::cast<std::vector<double>>(item[1]);
    Op op{look_up(kOps, name, "the operation"), {}};
    if (parameters.size() > op.parameters.size())
      throw nb::value_error((name + " has more parameters than there are").c_str());
    std::copy(parameters.begin(), parameters.end(), op.parameters.begin());
    transform->ops.push_back(op);
  }
  if (const Status status = check_ops(transform->ops); !status) raise_status(status);
  if (!dtype.is_none() && !mask) transform->dtype = look_up(kDTypes, nb::cast<std::string>(dtype), "the dtype");
  if (layout != "CHW" && layout != "HWC") throw nb::value_error("layout must be 'CHW' or 'HWC'");
  transform->layout = layout == "CHW" ? Layout::chw : Layout::hwc;
  if (mean.is_none() != std.is_none()) throw nb::value_error("mean and std must be given together");
  if (!mean.is_none()) {
    transform->mean = nb::cast<std::vector<double>>(mean);
    transform->std = nb::cast<std::vector<double>>(std);
    if (transform->mean.size() != transform->std.size() || transform->mean.empty())
      throw nb::value_error("mean and std must have the same length, at least 1");
    for (const double value : transform->std)
      if (!(value > 0)) throw nb::value_error("every std must be > 0");
    if (transform->dtype && *transform->dtype != DType::float16 && *transform->dtype != DType::float32)
      throw nb::value_error("the dtype of normalized images must be float16 or float32");
  }
  const Color chosen = look_up(kColorChoices, color, "the color");
  transform->color = mask ? Color::keep : chosen;
  transform->max_pixels = max_pixels;
  transform->mask = mask;
  transform->approximate_jpeg = approximate_jpeg && !mask;
  return transform;
}

nb::dict axis_dict(const Axis& axis) {
  nb::dict d;
  d["input"] = axis.input;
  d["start"] = axis.start;
  d["size"] = axis.size;
  d["resized"] = axis.resized;
  d["offset"] = axis.offset;
  d["canvas"] = axis.canvas;
  d["flipped"] = axis.flipped;
  return d;
}

nb::tuple matrix_tuple(const std::array<double, 9>& m) {
  return nb::make_tuple(m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8]);
}

nb::list gate_list(const Warp& warp, std::uint32_t begin, std::uint32_t end) {
  nb::list gates;
  for (std::uint32_t k = begin; k < end; ++k)
    gates.append(nb::make_tuple(warp.gates[k][0], warp.gates[k][1], warp.gates[k][2]));
  return gates;
}

// None, or the nodes of an elastic deformation, float32 [2, rows, columns], and where moved positions lead.
nb::object elastic_dict(const Warp& warp) {
  if (!warp.elastic.bends) return nb::none();
  const DecoderLease thread;
  Field field;
  if (const Status s = make_field(warp.elastic, thread->workspace.field, field); !s) raise_status(s);
  nb::object nodes =
      nb::module_::import_("numpy").attr("empty")(nb::make_tuple(2, field.rows, field.columns), "float32");
  Buffer target;
  if (!target.acquire(nodes, PyBUF_WRITABLE)) throw nb::python_error();
  const std::size_t plane = std::size_t{field.rows} * field.columns;
  for (std::size_t k = 0; k < 2; ++k)
    std::copy_n(field.nodes[k], plane, static_cast<float*>(target.view().buf) + k * plane);
  nb::dict d;
  d["map"] = matrix_tuple(warp.elastic.map);
  d["gates"] = gate_list(warp, 0, warp.elastic.gate_count);
  d["nodes"] = nodes;
  d["size"] = nb::make_tuple(warp.elastic.width, warp.elastic.height);
  d["spacing"] = nb::make_tuple(field_spacing(warp.elastic.sigma[0]), field_spacing(warp.elastic.sigma[1]));
  return d;
}

// None, or how positions of the canvas lead to the cut input, and the lines that bound what is shown.
nb::object warp_dict(const Pass& pass) {
  if (!pass.warps) return nb::none();
  nb::dict d;
  d["map"] = matrix_tuple(pass.warp.map);
  d["gates"] = gate_list(pass.warp, pass.warp.elastic.gate_count, pass.warp.gate_count);
  d["fill"] = nb::make_tuple(pass.warp.fill[0], pass.warp.fill[1], pass.warp.fill[2]);
  d["elastic"] = elastic_dict(pass.warp);
  return d;
}

nb::list passes(const Transform& transform, std::uint32_t height, std::uint32_t width, std::uint64_t seed,
                std::uint32_t epoch, std::uint64_t sample, std::uint16_t view) {
  Program program;
  if (const Status s = make_program(transform.ops, height, width, {seed, epoch, sample, view}, program); !s)
    raise_status(s);
  nb::list list;
  bool in_branch = false;
  for (std::uint32_t i = 0; i < program.pass_count; ++i) {
    const Pass& pass = program.passes[i];
    // The branches of a mix: they do not move the picture as a whole, nor its boxes.
    in_branch = pass.input == PassInput::kept || (in_branch && pass.input == PassInput::previous);
    if (in_branch) continue;
    nb::dict d;
    d["rows"] = axis_dict(pass.rows);
    d["columns"] = axis_dict(pass.columns);
    d["filter"] = kFilters[static_cast<int>(pass.filter)];
    d["antialias"] = pass.antialias;
    d["border"] = kBorders[static_cast<int>(pass.border)];
    d["fill"] = pass.fill;
    d["warp"] = warp_dict(pass);
    nb::list colors;
    for (std::uint32_t c = 0; c < pass.color_count; ++c)
      colors.append(nb::make_tuple(kColors[static_cast<int>(pass.colors[c].kind)], pass.colors[c].value));
    d["colors"] = colors;
    list.append(d);
  }
  return list;
}

nb::tuple shape(const Transform& transform, std::uint32_t height, std::uint32_t width, std::uint32_t channels,
                std::string_view dtype, std::uint64_t seed, std::uint32_t epoch, std::uint64_t sample,
                std::uint16_t view, bool has_color) {
  const DType stored = look_up(kDTypes, dtype, "the dtype");
  const PixelType type{channels, stored == DType::uint8 ? 8U : 16U, stored == DType::int16};
  OutputShape output;
  if (const Status s = output_shape(transform, {height, width, type, has_color}, {seed, epoch, sample, view}, output);
      !s)
    raise_status(s);
  const OutputAxes axes(transform, output);
  nb::list sides;
  for (std::size_t i = 0; i < axes.count; ++i) sides.append(axes.sides[i]);
  return nb::make_tuple(nb::tuple(sides), dtype_name(output.dtype));
}

// Allocates with NumPy, so that small arrays come from its cache; an axis for views comes first, unless they are 0.
nb::object allocate(const Transform& transform, const OutputShape& output, Buffer& buffer, std::uint32_t views = 0) {
  static const nb::object& empty = *new nb::object(nb::module_::import_("numpy").attr("empty"));
  const OutputAxes axes(transform, output);
  nb::list sides;
  if (views > 0) sides.append(views);
  for (std::size_t i = 0; i < axes.count; ++i) sides.append(axes.sides[i]);
  nb::object array = empty(nb::tuple(sides), dtype_name(output.dtype));
  if (!buffer.acquire(array, PyBUF_WRITABLE)) throw nb::python_error();
  return array;
}

nb::object run(const Transform& transform, nb::handle data, std::uint8_t format, std::uint64_t seed,
               std::uint32_t epoch, std::uint64_t sample, std::uint16_t view, bool has_color) {
  const Buffer file = borrow_bytes(data);
  MemoryBytes bytes(file.bytes());
  const DrawKey key{seed, epoch, sample, view};
  const DecoderLease thread;
  ImageShape shape;
  OutputShape output;
  Status status;
  {
    const WithoutGil released;
    const DecodeOptions options{transform.color, has_color,     transform.max_pixels, transform.approximate_jpeg,
                                nullptr,         transform.mask};
    status = thread->decoder.open(static_cast<Format>(format), bytes, options, shape);
    if (status) status = output_shape(transform, shape, key, output);
  }
  if (!status) raise_status(status);
  Buffer target;
  nb::object array = allocate(transform, output, target);
  auto* out = static_cast<std::uint8_t*>(target.view().buf);
  {
    const WithoutGil released;
    status = transform_image(transform, shape, thread->decoder, key, output, out, thread->workspace);
  }
  if (!status) raise_status(status);
  return array;
}

nb::object apply(const Transform& transform, nb::handle image, std::uint64_t seed, std::uint32_t epoch,
                 std::uint64_t sample, std::uint16_t view) {
  Buffer source;
  const Picture picture = borrow_picture(image, source);
  const ImageShape shape{picture.height, picture.width, picture.type};
  const DrawKey key{seed, epoch, sample, view};
  OutputShape output;
  if (const Status s = output_shape(transform, shape, key, output); !s) raise_status(s);
  Buffer target;
  nb::object array = allocate(transform, output, target);
  auto* out = static_cast<std::uint8_t*>(target.view().buf);
  const DecoderLease thread;
  Status status;
  {
    const WithoutGil released;
    PictureRows rows(picture);
    status = transform_image(transform, shape, rows, key, output, out, thread->workspace);
  }
  if (!status) raise_status(status);
  return array;
}

// Every view of an encoded image, group by group, decoded once if that is cheaper. Each group is one array [views, ...]
// if all of its views have one shape, else a list of arrays.
nb::list run_views(nb::handle given, nb::handle data, std::uint8_t format, std::uint64_t seed, std::uint32_t epoch,
                   std::uint64_t sample, bool has_color) {
  const std::vector<ViewGroup> groups = make_groups(given);
  const Transform& first = groups[0].transform;
  const Buffer file = borrow_bytes(data);
  MemoryBytes bytes(file.bytes());
  const DecoderLease thread;
  const auto code = static_cast<Format>(format);
  ImageShape shape;
  Status status;
  std::vector<View> views;
  {
    const WithoutGil released;
    const DecodeOptions options{first.color, has_color, first.max_pixels, first.approximate_jpeg, nullptr, first.mask};
    status = thread->decoder.open(code, bytes, options, shape);
    for (const ViewGroup& group : groups)
      for (std::uint32_t v = 0; v < group.views && status; ++v) {
        View view{&group.transform, {seed, epoch, sample, static_cast<std::uint16_t>(views.size())}, {}, nullptr};
        status = output_shape(group.transform, shape, view.key, view.expected);
        views.push_back(view);
      }
  }
  if (!status) raise_status(status);
  nb::list made;
  std::vector<Buffer> targets(views.size());
  std::size_t at = 0;
  for (const ViewGroup& group : groups) {
    const OutputShape expected = views[at].expected;
    bool uniform = true;
    for (std::uint32_t v = 1; v < group.views; ++v) uniform = uniform && views[at + v].expected == expected;
    nb::list arrays;
    if (uniform) {
      Buffer& target = targets[at];
      nb::object array = allocate(group.transform, expected, target, group.views);
      for (std::uint32_t v = 0; v < group.views; ++v)
        views[at + v].out = static_cast<std::uint8_t*>(target.view().buf) + v * expected.bytes();
      made.append(array);
    } else {
      for (std::uint32_t v = 0; v < group.views; ++v) {
        arrays.append(allocate(group.transform, views[at + v].expected, targets[at + v]));
        views[at + v].out = static_cast<std::uint8_t*>(targets[at + v].view().buf);
      }
      made.append(arrays);
    }
    at += group.views;
  }
  {
    const WithoutGil released;
    status = transform_views(views, shape, reads_entire_file(code), thread->decoder, thread->workspace);
  }
  if (!status) raise_status(status);
  return made;
}

nb::object core_formats() {
  nb::list codes;
  for (int code = 1; code <= 6; ++code)
    if (core_decodes(static_cast<Format>(code))) codes.append(code);
  return nb::steal(PyFrozenSet_New(codes.ptr()));
}

}  // namespace

const char* dtype_name(DType dtype) {
  for (const auto& [name, value] : kDTypes)
    if (value == dtype) return name.data();
  return "";
}

OutputAxes::OutputAxes(const Transform& transform, const OutputShape& shape) {
  if (transform.mask && shape.channels == 1) {
    count = 2;
    sides = {shape.height, shape.width, 0};
  } else if (transform.layout == Layout::chw) {
    sides = {shape.channels, shape.height, shape.width};
  } else {
    sides = {shape.height, shape.width, shape.channels};
  }
}

std::vector<ViewGroup> make_groups(nb::handle given) {
  std::vector<ViewGroup> groups;
  std::uint32_t views = 0;
  for (nb::handle item : given) {
    groups.push_back({nb::cast<const Transform&>(item[0]), nb::cast<std::uint16_t>(item[1])});
    if (groups.back().views == 0) throw nb::value_error("views must be >= 1");
    views += groups.back().views;
  }
  if (groups.empty() || views > 65536) throw nb::value_error("an image must have 1 to 65536 views");
  return groups;
}

Picture borrow_picture(nb::handle image, Buffer& buffer) {
  const Pixels p = borrow_pixels(image, buffer);
  const PixelType type{p.channels, p.depth, p.is_signed};
  if (p.channel_stride != static_cast<std::ptrdiff_t>(type.sample_bytes()) && p.channels > 1)
    throw nb::value_error("the channels of a pixel must be contiguous");
  if (p.column_stride != static_cast<std::ptrdiff_t>(type.pixel_bytes()) && p.width > 1)
    throw nb::value_error("the pixels of a row must be contiguous");
  return {const_cast<std::uint8_t*>(p.origin), p.row_stride, p.height, p.width, type};
}

void register_transform(nb::module_& module) {
  using nb::arg;
  nb::class_<Transform>(module, "Transform")
      .def(nb::new_(&make_transform), arg("ops"), nb::kw_only(), arg("dtype").none(), arg("layout"), arg("mean").none(),
           arg("std").none(), arg("color"), arg("mask"), arg("approximate_jpeg") = false,
           arg("max_pixels") = kMaxPixels)
      .def("shape", &shape, arg("height"), arg("width"), arg("channels"), arg("dtype"), nb::kw_only(), arg("seed"),
           arg("epoch"), arg("sample"), arg("view") = 0, arg("has_color") = false,
           nb::sig("def shape(self, height: int, width: int, channels: int, dtype: str, *, seed: int, epoch: int, "
                   "sample: int, view: int = 0, has_color: bool = False) -> tuple[tuple[int, ...], str]"))
      .def("passes", &passes, arg("height"), arg("width"), nb::kw_only(), arg("seed"), arg("epoch"), arg("sample"),
           arg("view") = 0,
           nb::sig("def passes(self, height: int, width: int, *, seed: int, epoch: int, sample: int, view: int = 0) "
                   "-> list[dict[str, typing.Any]]"))
      .def("apply", &apply, arg("image"), nb::kw_only(), arg("seed"), arg("epoch"), arg("sample"), arg("view") = 0)
      .def("run", &run, arg("data"), arg("format"), nb::kw_only(), arg("seed"), arg("epoch"), arg("sample"),
           arg("view") = 0, arg("has_color") = false);
  module.def("run_views", &run_views, arg("groups"), arg("data"), arg("format"), nb::kw_only(), arg("seed"),
             arg("epoch"), arg("sample"), arg("has_color") = false,
             nb::sig("def run_views(groups: collections.abc.Sequence[tuple[Transform, int]], data: object, "
                     "format: int, *, seed: int, epoch: int, sample: int, has_color: bool = False) "
                     "-> list[typing.Any]"));
  module.def("core_formats", &core_formats, nb::sig("def core_formats() -> frozenset[int]"));
}

}  // namespace headrace::bindings
