// SPDX-License-Identifier: Apache-2.0
// The engine and its batches. Nothing here waits with the GIL held.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gil.h"
#include "loading/engine.h"
#include "platform/platform.h"
#include "transform.h"

namespace headrace::bindings {
namespace {

// Threads do not survive a fork: in a child the engine is only a memory of itself, and must not even be destroyed.
struct PyEngine {
  std::shared_ptr<Engine> engine;
  int process = platform::process_id();

  ~PyEngine() {
    if (!engine) return;
    if (process != platform::process_id()) {
      new std::shared_ptr<Engine>(engine);  // leaked
    } else {
      const WithoutGil released;
      engine->close();
    }
  }

  // It may be closed: what it has done can still be told.
  Engine& ours() const {
    if (process != platform::process_id())
      raise_error("LoaderError",
                  "this engine belongs to the parent process and does not work after a fork; create a new one in the "
                  "child process");
    return *engine;
  }

  Engine& get() const {
    if (ours().closed()) raise_error("EngineClosed", "the engine is closed");
    return *engine;
  }
};

struct PyBatch {
  std::shared_ptr<Batch> batch;

  PyBatch() = default;
  PyBatch(PyBatch&&) = default;
  ~PyBatch() {
    if (batch) batch->cancel();
  }
};

struct PyExternalImage {
  std::shared_ptr<Engine> engine;  // outlives what it handed out
  std::unique_ptr<ExternalImage> image;

  ExternalImage& get() const {
    if (!image) raise_error("LoaderError", "this image has already been finished");
    return *image;
  }
};

void check_rate(double rate) {
  if (!(rate >= 0)) throw nb::value_error("storage_rate must be >= 0 bytes per second (0 is unlimited)");
}

// Path, size and last bytes of dataset.json.
Identity make_identity(nb::handle given) {
  Identity identity;
  if (given.is_none()) return identity;
  identity.path = nb::cast<std::string>(given[0]);
  identity.size = nb::cast<std::uint64_t>(given[1]);
  const auto ending = nb::cast<nb::bytes>(given[2]);
  identity.ending.assign(ending.c_str(), ending.size());
  return identity;
}

std::unique_ptr<PyEngine> make_engine(nb::typed<nb::sequence, nb::object> shards, unsigned threads, bool direct,
                                      double storage_rate, nb::object identity, nb::object formats) {
  check_rate(storage_rate);
  std::uint32_t codes = formats.is_none() ? ~0U : 0U;
  if (!formats.is_none())
    for (nb::handle code : formats) codes |= 1U << (nb::cast<std::uint8_t>(code) & 31U);
  std::vector<Shard> list;
  for (nb::handle item : shards) {
    list.push_back({nb::cast<std::string>(item[0]), nb::cast<std::uint64_t>(item[1])});
    if (nb::len(item) > 2) list.back().dataset = nb::cast<std::uint32_t>(item[2]);
  }
  std::vector<Identity> identities;
  if (nb::isinstance<nb::list>(identity))
    for (nb::handle each : identity) identities.push_back(make_identity(each));
  else
    identities.push_back(make_identity(identity));
  if (threads > 4096) throw nb::value_error("threads must be in [0, 4096]");
  auto engine = std::make_unique<PyEngine>();
  try {
    engine->engine =
        std::make_shared<Engine>(std::move(list), threads, direct, storage_rate, std::move(identities), codes);
  } catch (const std::system_error&) {
    raise_error("LoaderError", "cannot start a thread: the system limit is reached; raise it or stop other processes");
  }
  return engine;
}

template <class T>
const T* column(const nb::dict& columns, const char* name, std::size_t n) {
  const nb::object array = columns[name];
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
  const bool fits = view.itemsize == sizeof(T) && view.len == static_cast<Py_ssize_t>(n * sizeof(T));
  const void* data = view.buf;
  // The array outlives the call: the caller's dictionary holds it.
  PyBuffer_Release(&view);
  if (!fits)
    throw nb::value_error(
        (std::string("the column ") + name + " must have the documented dtype and one entry per sample").c_str());
  return static_cast<const T*>(data);
}

// A dtype code of the index (spec/dataset.md §2); a depth of 0 is one that there is not.
struct StoredDType {
  std::uint32_t depth = 0;
  bool is_signed = false, has_color = false;
};

const StoredDType& stored_dtype(std::uint8_t code) {
  static constexpr StoredDType kTypes[] = {{},
                                           {8, false, false},
                                           {16, false, false},
                                           {16, true, false},
                                           {8, false, true},
                                           {16, false, true},
                                           {8, false, true}};
  return kTypes[code < std::size(kTypes) ? code : 0];
}

std::vector<Rendition> make_renditions(const nb::dict& columns, std::size_t n) {
  const auto* shard = column<std::uint32_t>(columns, "shard", n);
  const auto* offset = column<std::uint64_t>(columns, "offset", n);
  const auto* length = column<std::uint64_t>(columns, "length", n);
  const auto* format = column<std::uint8_t>(columns, "format", n);
  const auto* height = column<std::uint32_t>(columns, "height", n);
  const auto* width = column<std::uint32_t>(columns, "width", n);
  const auto* channels = column<std::uint8_t>(columns, "channels", n);
  const auto* dtype = column<std::uint8_t>(columns, "dtype", n);
  const auto* checksum = column<std::uint32_t>(columns, "checksum", n);
  std::vector<Rendition> renditions(n);
  for (std::size_t i = 0; i < n; ++i) {
    const StoredDType& stored = stored_dtype(dtype[i]);
    const auto code = static_cast<Format>(format[i]);
    renditions[i] = {shard[i],
                     offset[i],
                     length[i],
                     code,
                     checksum[i],
                     {height[i],
                      width[i],
                      {channels[i], stored.depth, stored.is_signed},
                      may_have_color(channels[i]) && (stored.has_color || defines_color(code))}};
  }
  return renditions;
}

// None, or (the ends of the samples' boxes as int64 [n], all corners as float32 [N, 4]).
std::shared_ptr<const SampleBoxes> make_boxes(nb::handle given, std::size_t n) {
  if (given.is_none()) return nullptr;
  Buffer ends, corners;
  const nb::object end_array = given[0], corner_array = given[1];
  if (!ends.acquire(end_array, PyBUF_C_CONTIGUOUS) || ends.view().itemsize != 8 || ends.bytes().size() != 8 * n ||
      !corners.acquire(corner_array, PyBUF_C_CONTIGUOUS) || corners.view().itemsize != sizeof(float) ||
      corners.bytes().size() % sizeof(BoxCorners) != 0)
    throw nb::value_error("boxes must be (ends as int64, one per sample; corners as float32 [N, 4])");
  auto boxes = std::make_shared<SampleBoxes>();
  boxes->corners.resize(corners.bytes().size() / sizeof(BoxCorners));
  if (!boxes->corners.empty())
    std::memcpy(boxes->corners.data(), corners.bytes().data(), boxes->corners.size() * sizeof(BoxCorners));
  boxes->first.assign(1, 0);
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t end;
    std::memcpy(&end, ends.bytes().data() + 8 * i, 8);
    if (end < boxes->first.back() || end > boxes->corners.size())
      throw nb::value_error("the ends of the samples' boxes must ascend, up to the number of boxes");
    boxes->first.push_back(static_cast<std::size_t>(end));
  }
  return boxes;
}

FieldRequest make_tensor_request(std::uint32_t tensor_bytes, const nb::dict& columns, std::size_t n) {
  if (tensor_bytes == 0) throw nb::value_error("a tensor must have at least one byte");
  const auto* shard = column<std::uint32_t>(columns, "shard", n);
  const auto* offset = column<std::uint64_t>(columns, "offset", n);
  const auto* length = column<std::uint64_t>(columns, "length", n);
  const auto* checksum = column<std::uint32_t>(columns, "checksum", n);
  FieldRequest request;
  request.tensor_bytes = tensor_bytes;
  request.groups.resize(1);
  std::vector<Rendition>& rows = request.renditions.emplace_back(n);
  for (std::size_t i = 0; i < n; ++i)
    rows[i] = {shard[i], offset[i], length[i], Format::tensor, checksum[i], {1, tensor_bytes, {1, 8, false}}};
  return request;
}

FieldRequest make_request(nb::handle field, std::size_t n) {
  const nb::object made = field[0];
  if (nb::isinstance<nb::int_>(made))
    return make_tensor_request(nb::cast<std::uint32_t>(made), nb::cast<nb::dict>(field[1]), n);
  FieldRequest request;
  request.groups = make_groups(made);
  if (n > UINT32_MAX / request.views()) throw nb::value_error("samples x views of a batch must be < 2^32");
  const nb::object columns = field[1];
  if (nb::isinstance<nb::dict>(columns)) {
    request.renditions.push_back(make_renditions(nb::cast<nb::dict>(columns), n));
  } else {
    for (nb::handle each : columns) request.renditions.push_back(make_renditions(nb::cast<nb::dict>(each), n));
  }
  if (request.renditions.empty() || request.renditions.size() > kMaxRenditions)
    throw nb::value_error("a sample must have 1 to 8 renditions");
  return request;
}

PyBatch submit(const PyEngine& self, nb::sequence fields, nb::handle samples, std::uint64_t seed, std::uint32_t epoch,
               nb::handle boxes) {
  Engine& engine = self.get();
  Buffer view;
  if (!view.acquire(samples, PyBUF_C_CONTIGUOUS) || view.view().itemsize != 8)
    throw nb::value_error("samples must be a contiguous array of 64-bit integers");
  const auto* rows = static_cast<const std::uint64_t*>(view.view().buf);
  const std::size_t n = static_cast<std::size_t>(view.view().len) / 8;
  std::vector<FieldRequest> requests;
  const std::shared_ptr<const SampleBoxes> shared = make_boxes(boxes, n);
  for (nb::handle field : fields) {
    requests.push_back(make_request(field, n));
    requests.back().boxes = shared;
  }
  PyBatch batch;
  {
    std::vector<std::uint64_t> copy(rows, rows + n);
    const WithoutGil released;
    batch.batch = engine.submit(std::move(requests), std::move(copy), seed, epoch);
  }
  if (batch.batch) return batch;
  static_cast<void>(self.get());  // raises if it was closed meanwhile
  PyErr_NoMemory();
  throw nb::python_error();
}

using Array = nb::ndarray<nb::numpy>;

nb::dlpack::dtype array_dtype(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * dtype_bytes(dtype));
  const auto code = dtype == DType::float16 || dtype == DType::float32 ? nb::dlpack::dtype_code::Float
                    : dtype == DType::int16                            ? nb::dlpack::dtype_code::Int
                                                                       : nb::dlpack::dtype_code::UInt;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

// An array in a block, which stays out of the ring as long as the array or a view of it lives.
nb::object make_array(const std::shared_ptr<Block>& block, std::uint8_t* data, const std::vector<std::size_t>& sides,
                      DType dtype) {
  nb::capsule owner(new std::shared_ptr<Block>(block),
                    [](void* p) noexcept { delete static_cast<std::shared_ptr<Block>*>(p); });
  return nb::cast(Array(data, sides.size(), sides.data(), owner, nullptr, array_dtype(dtype)));
}

nb::object take_group(const Batch& batch, std::size_t f, std::size_t g) {
  const std::vector<ViewGroup>& groups = batch.field(f).groups;
  const ViewGroup& group = groups[g];
  const bool has_axis = group.views > 1 || groups.size() > 1;
  const auto& outputs = batch.outputs(f, g);
  const auto& block = batch.block(f, g);
  const auto sides_of = [&](const OutputShape& shape, std::vector<std::size_t> sides) {
    if (batch.field(f).tensor_bytes != 0) {
      sides.push_back(shape.width);
      return sides;
    }
    const OutputAxes axes(group.transform, shape);
    sides.insert(sides.end(), axes.sides.begin(), axes.sides.begin() + static_cast<std::ptrdiff_t>(axes.count));
    return sides;
  };
  if (batch.uniform(f, g)) {
    std::vector<std::size_t> sides{batch.samples()};
    if (has_axis) sides.push_back(group.views);
    return make_array(block, outputs[0].data, sides_of(outputs[0].shape, sides), outputs[0].shape.dtype);
  }
  nb::list samples;
  for (std::size_t i = 0; i < batch.samples(); ++i) {
    nb::list views;
    for (std::size_t v = 0; v < group.views; ++v) {
      const Batch::Output& output = outputs[i * group.views + v];
      views.append(output.data ? make_array(block, output.data, sides_of(output.shape, {}), output.shape.dtype)
                               : nb::none());
    }
    samples.append(has_axis ? nb::object(views) : nb::object(views[0]));
  }
  return samples;
}

// An array or a list of samples; of several groups of views a tuple of these.
nb::object take_field(const Batch& batch, std::size_t f) {
  const std::size_t n = batch.field(f).groups.size();
  if (n == 1) return take_group(batch, f, 0);
  nb::list groups;
  for (std::size_t g = 0; g < n; ++g) groups.append(take_group(batch, f, g));
  return nb::tuple(groups);
}

nb::list take(const PyBatch& self) {
  if (self.batch->cancelled()) raise_error("EngineClosed", "the batch was cancelled");
  if (!self.batch->wait_for(0))
    raise_error("LoaderError", "the batch is not finished: call wait() until it returns True");
  nb::list fields;
  for (std::size_t f = 0; f < self.batch->fields(); ++f) fields.append(take_field(*self.batch, f));
  return fields;
}

nb::list failures(const PyBatch& self) {
  nb::list list;
  for (const Failure& failure : self.batch->failures()) {
    const ErrorText error = describe_status(failure.status, StatusOrigin::dataset);
    list.append(nb::make_tuple(failure.position, failure.field, failure.rendition,
                               failure.error_name.empty() ? error.name : failure.error_name.c_str(),
                               failure.message.empty() ? error.message : failure.message));
  }
  return list;
}

nb::object next_external(const PyEngine& self, double timeout) {
  Engine& engine = self.get();
  PyExternalImage image{self.engine, nullptr};
  {
    const WithoutGil released;
    image.image = engine.next_external(timeout);
  }
  if (image.image && !image.image->ended()) return nb::cast(std::move(image));
  if (engine.closed()) raise_error("EngineClosed", "the engine is closed");
  return nb::none();
}

nb::object external_data(nb::handle self) {
  const Bytes bytes = nb::cast<PyExternalImage&>(self).get().data();
  const std::size_t n = bytes.size();
  return nb::cast(nb::ndarray<nb::numpy, const std::uint8_t>(bytes.data(), 1, &n, self));
}

void finish(PyExternalImage& self, nb::handle pixels) {
  Buffer buffer;
  const Picture picture = borrow_picture(pixels, buffer);
  ExternalImage& image = self.get();
  const WithoutGil released;
  image.finish(picture);
}

nb::dict costs(const Costs& costs) {
  const auto seconds = [](std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
  nb::dict d;
  d["images"] = costs.images;
  d["bytes_read"] = costs.bytes;
  d["read_seconds"] = seconds(costs.read_ns);
  d["decode_seconds"] = seconds(costs.decode_ns);
  d["transform_seconds"] = seconds(costs.transform_ns);
  d["cpu_seconds"] = seconds(costs.cpu_ns);
  return d;
}

nb::dict stats(const PyEngine& self) {
  const EngineStats stats = self.ours().stats();
  nb::dict d = costs(stats.all);
  d["bytes_read"] = stats.bytes_read;
  d["failed_renditions"] = stats.failed_renditions;
  d["queued_images"] = stats.queued_jobs;
  d["active_threads"] = stats.active;
  d["blocks_in_use"] = stats.blocks_in_use;
  nb::dict formats;
  for (std::size_t code = 0; code < kFormats; ++code)
    if (stats.formats[code].images > 0) formats[nb::int_(code)] = costs(stats.formats[code]);
  d["formats"] = formats;
  return d;
}

}  // namespace

void register_loading(nb::module_& module) {
  using nb::arg;
  nb::class_<PyExternalImage>(module, "ExternalImage")
      .def_prop_ro("data", &external_data)
      .def_prop_ro("format",
                   [](const PyExternalImage& self) { return static_cast<int>(self.get().rendition().format); })
      .def_prop_ro("checksum", [](const PyExternalImage& self) { return self.get().rendition().checksum; })
      .def_prop_ro("mask", [](const PyExternalImage& self) { return self.get().transform().mask; })
      .def_prop_ro("rgb", [](const PyExternalImage& self) { return self.get().transform().color != Color::keep; })
      .def_prop_ro("max_pixels", [](const PyExternalImage& self) { return self.get().transform().max_pixels; })
      .def_prop_ro("position", [](const PyExternalImage& self) { return self.get().position(); })
      .def_prop_ro("field", [](const PyExternalImage& self) { return self.get().field(); })
      .def("finish", &finish, arg("image"))
      .def(
          "fail",
          [](PyExternalImage& self, std::string kind, std::string message) {
            ExternalImage& image = self.get();
            const WithoutGil released;
            image.fail(std::move(kind), std::move(message));
          },
          arg("kind"), arg("message"));
  nb::class_<PyBatch>(module, "Batch")
      .def(
          "wait", [](const PyBatch& self, double timeout) { return self.batch->wait_for(timeout); }, arg("timeout"),
          nb::call_guard<WithoutGil>())
      .def("cancel", [](const PyBatch& self) { self.batch->cancel(); })
      .def("take", &take, nb::sig("def take(self) -> list[typing.Any]"))
      .def("failures", &failures, nb::sig("def failures(self) -> list[tuple[int, int, int, str, str]]"));
  nb::class_<PyEngine>(module, "Engine")
      .def(nb::new_(&make_engine), arg("shards"), nb::kw_only(), arg("threads"), arg("direct") = false,
           arg("storage_rate") = 0.0, arg("identity").none() = nb::none(), arg("formats").none() = nb::none())
      .def_prop_ro("max_batch_bytes", [](const PyEngine& self) { return self.engine->limits().n_bytes; })
      .def("submit", &submit, arg("fields"), arg("samples"), nb::kw_only(), arg("seed"), arg("epoch"),
           arg("boxes").none() = nb::none(),
           nb::sig("def submit(self, fields: collections.abc.Sequence[tuple[collections.abc.Sequence[tuple[Transform, "
                   "int]] | int, typing.Any]], "
                   "samples: object, *, seed: int, epoch: int, "
                   "boxes: tuple[object, object] | None = None) -> Batch"))
      .def(
          "run_queued",
          [](const PyEngine& self, double timeout) {
            Engine& engine = self.get();
            const WithoutGil released;
            engine.run_queued(timeout);
          },
          arg("timeout"))
      .def("next_external", &next_external, arg("timeout"),
           nb::sig("def next_external(self, timeout: float) -> ExternalImage | None"))
      .def("stats", &stats, nb::sig("def stats(self) -> dict[str, typing.Any]"))
      .def(
          "set_storage_rate",
          [](const PyEngine& self, double rate) {
            check_rate(rate);
            self.get().set_storage_rate(rate);
          },
          arg("rate"))
      .def(
          "memory",
          [](const PyEngine& self, std::size_t n_bytes) {
            const auto block = self.engine->memory(n_bytes);  // of one that was closed, too: a reader may be at work
            if (!block) throw std::bad_alloc();
            return make_array(block, block->data, {block->size}, DType::uint8);
          },
          arg("n_bytes"), nb::sig("def memory(self, n_bytes: int) -> typing.Any"))
      .def("close", [](const PyEngine& self) {
        if (self.process != platform::process_id()) return;
        const WithoutGil released;
        self.engine->close();
      });
}

}  // namespace headrace::bindings
