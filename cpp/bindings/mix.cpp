// SPDX-License-Identifier: Apache-2.0
// MixUp and CutMix on the images of a batch, in place.
#include "transform/mix.h"

#include <cstdint>
#include <string>

#include "buffers.h"
#include "errors.h"
#include "gil.h"

namespace headrace::bindings {
namespace {

nb::tuple draw_mix(double mixup_alpha, double cutmix_alpha, double probability, double switch_probability,
                   std::uint32_t height, std::uint32_t width, std::uint64_t seed, std::uint32_t epoch,
                   std::uint64_t sample, std::uint16_t operation) {
  constexpr const char* kKinds[] = {"none", "mixup", "cutmix"};
  const MixOptions options{mixup_alpha, cutmix_alpha, probability, switch_probability};
  if (const Status status = check_mix(options); !status) raise_status(status);
  const Mixture m = draw_mixture(options, {seed, epoch, sample, 0}, operation, height, width);
  return nb::make_tuple(kKinds[static_cast<int>(m.kind)], m.share, nb::make_tuple(m.top, m.left, m.height, m.width));
}

// A batch in memory that may be written to, with at least two axes.
struct Images {
  explicit Images(nb::handle array) {
    if (!buffer.acquire(array, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) throw nb::python_error();
    if (buffer.view().ndim < 2 || buffer.view().len == 0)
      throw nb::value_error("images must be a batch of at least one image");
    images = static_cast<std::size_t>(buffer.view().shape[0]);
  }
  std::uint8_t* first() const { return static_cast<std::uint8_t*>(buffer.view().buf); }
  std::size_t image_bytes() const { return static_cast<std::size_t>(buffer.view().len) / images; }
  std::size_t side(int axis) const { return static_cast<std::size_t>(buffer.view().shape[axis]); }

  Buffer buffer;
  std::size_t images = 0;
};

void mix(nb::handle array, double share, unsigned threads) {
  const Images images(array);
  const Py_buffer& view = images.buffer.view();
  const std::string format = view.format ? view.format : "";
  if (format != "f" && format != "e") throw nb::value_error("images must be float32 or float16");
  const DType dtype = format == "f" ? DType::float32 : DType::float16;
  const WithoutGil released;
  mix_images(images.first(), images.images, images.image_bytes() / dtype_bytes(dtype), dtype, share, threads);
}

void cut(nb::handle array, std::uint32_t top, std::uint32_t left, std::uint32_t height, std::uint32_t width,
         bool channels_first) {
  const Images images(array);
  const Py_buffer& view = images.buffer.view();
  if (view.ndim != 4) throw nb::value_error("images must be [B, C, H, W] or [B, H, W, C]");
  const std::size_t planes = channels_first ? images.side(1) : 1;
  const std::size_t rows = images.side(channels_first ? 2 : 1), columns = images.side(channels_first ? 3 : 2);
  if (top > rows || height > rows - top || left > columns || width > columns - left)
    throw nb::value_error("the box must lie within the images");
  const std::size_t pixel = static_cast<std::size_t>(view.itemsize) * (channels_first ? 1 : images.side(3));
  const WithoutGil released;
  cut_images(images.first(), images.images, planes, rows, columns, pixel,
             {MixKind::cutmix, 0, top, left, height, width});
}

}  // namespace

void register_mix(nb::module_& module) {
  using nb::arg;
  module.def("draw_mix", &draw_mix, nb::kw_only(), arg("mixup_alpha"), arg("cutmix_alpha"), arg("probability"),
             arg("switch_probability"), arg("height"), arg("width"), arg("seed"), arg("epoch"), arg("sample"),
             arg("operation"),
             nb::sig("def draw_mix(*, mixup_alpha: float, cutmix_alpha: float, probability: float, "
                     "switch_probability: float, height: int, width: int, seed: int, epoch: int, sample: int, "
                     "operation: int) -> tuple[str, float, tuple[int, int, int, int]]"));
  module.def("mix_images", &mix, arg("images"), arg("share"), arg("threads"),
             nb::sig("def mix_images(images: object, share: float, threads: int) -> None"));
  module.def("cut_images", &cut, arg("images"), arg("top"), arg("left"), arg("height"), arg("width"),
             arg("channels_first"),
             nb::sig("def cut_images(images: object, top: int, left: int, height: int, width: int, "
                     "channels_first: bool) -> None"));
}

}  // namespace headrace::bindings
