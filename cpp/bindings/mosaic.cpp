// SPDX-License-Identifier: Apache-2.0
// Mosaics: the draws of a batch, and the canvases of its samples.
#include "transform/mosaic.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "decoder_lease.h"
#include "errors.h"
#include "gil.h"
#include "loading/canvas.h"
#include "transform.h"

namespace headrace::bindings {
namespace {

constexpr std::size_t kMaxThreads = 64;

template <class T>
T* items(nb::handle array, Buffer& buffer, int flags, std::size_t n) {
  if (!buffer.acquire(array, flags | PyBUF_C_CONTIGUOUS) || buffer.view().itemsize != sizeof(T) ||
      buffer.bytes().size() != n * sizeof(T))
    throw nb::value_error("the arrays must be contiguous, with the documented dtypes and shapes");
  return static_cast<T*>(buffer.view().buf);
}

void draw_mosaics(const Transform& transform, nb::handle rows, std::uint64_t n, nb::handle happens,
                  nb::handle positions, std::uint64_t seed, std::uint32_t epoch) {
  if (transform.ops.empty() || transform.ops[0].kind != OpKind::mosaic)
    throw nb::value_error("the transform must begin with a mosaic");
  if (n < 1 || n > UINT32_MAX) throw nb::value_error("n must be in [1, 2^32)");
  constexpr std::size_t kPartners = kMosaicTiles - 1;
  Buffer keys, flags, found;
  if (!flags.acquire(happens, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS)) throw nb::python_error();
  const std::size_t count = flags.bytes().size();
  flags = Buffer();
  const auto* sample = items<std::uint64_t>(rows, keys, 0, count);
  auto* flag = items<std::uint8_t>(happens, flags, PyBUF_WRITABLE, count);
  auto* position = items<std::int64_t>(positions, found, PyBUF_WRITABLE, kPartners * count);
  for (std::size_t i = 0; i < count; ++i) {
    const DrawKey key{seed, epoch, sample[i], 0};
    flag[i] = draw_mosaic(transform.ops[0], key, 0).happens;
    const auto partners = draw_partners(key, 0, static_cast<std::uint32_t>(n));
    for (std::size_t k = 0; k < kPartners; ++k) position[kPartners * i + k] = partners[k];
  }
}

// The canvas of one sample: where its tiles are, and where the result goes.
struct CanvasJob {
  std::vector<Buffer> buffers;
  std::vector<Picture> tiles;
  DrawKey key;
  OutputShape expected;
  std::uint8_t* out = nullptr;
  Status status;
  double seconds = 0;
};

void run_jobs(const Transform& transform, std::vector<CanvasJob>& jobs, unsigned threads) noexcept {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    DecoderLease tools;
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      CanvasJob& job = jobs[i];
      const auto started = std::chrono::steady_clock::now();
      job.status = transform_canvas(transform, job.tiles, job.key, job.expected, job.out, tools->workspace);
      job.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    }
  };
  std::vector<std::thread> others;
  const std::size_t helpers = std::min<std::size_t>({threads, jobs.size(), kMaxThreads});
  try {
    others.reserve(helpers);
    for (std::size_t k = 1; k < helpers; ++k) others.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads: this one does the rest
  } catch (const std::bad_alloc&) {
  }
  work();
  for (std::thread& each : others) each.join();
}

// Returns (number of the sample, error class, message) for each that failed, and the busy seconds of all threads.
nb::tuple transform_canvases(const Transform& transform, nb::handle tiles, nb::handle rows, nb::handle out,
                             std::uint64_t seed, std::uint32_t epoch, unsigned threads) {
  std::vector<CanvasJob> jobs(nb::len(tiles));
  Buffer keys;
  const auto* samples = items<std::uint64_t>(rows, keys, 0, jobs.size());
  if (nb::len(out) != jobs.size()) throw nb::value_error("there must be one array for each sample");
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    CanvasJob& job = jobs[i];
    job.key = {seed, epoch, samples[i], 0};
    const nb::object parts = tiles[i], target = out[i];
    if (nb::len(parts) == 0) throw nb::value_error("a mosaic must have tiles");
    job.buffers.resize(nb::len(parts) + 1);
    for (std::size_t k = 0; k < nb::len(parts); ++k) {
      const nb::object part = parts[k];
      job.tiles.push_back(borrow_picture(part, job.buffers[k]));
    }
    const Picture& first = job.tiles[0];
    if (Status s = output_shape(transform, {first.height, first.width, first.type}, job.key, job.expected); !s)
      raise_status(s);
    Buffer& buffer = job.buffers.back();
    if (!buffer.acquire(target, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS)) throw nb::python_error();
    if (buffer.bytes().size() != job.expected.bytes()) throw nb::value_error("an output has another size");
    job.out = static_cast<std::uint8_t*>(buffer.view().buf);
  }
  {
    const WithoutGil released;
    run_jobs(transform, jobs, threads);
  }
  nb::list failed;
  double seconds = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    seconds += jobs[i].seconds;
    if (!jobs[i].status) {
      const ErrorText error = describe_status(jobs[i].status, StatusOrigin::dataset);
      failed.append(nb::make_tuple(i, error.name, error.message));
    }
  }
  return nb::make_tuple(failed, seconds);
}

}  // namespace

void register_mosaic(nb::module_& module) {
  using nb::arg;
  module.def("draw_mosaics", &draw_mosaics, arg("transform"), arg("rows"), arg("n"), arg("happens"), arg("positions"),
             nb::kw_only(), arg("seed"), arg("epoch"),
             nb::sig("def draw_mosaics(transform: Transform, rows: object, n: int, happens: object, "
                     "positions: object, *, seed: int, epoch: int) -> None"));
  module.def("transform_canvases", &transform_canvases, arg("transform"), arg("tiles"), arg("rows"), arg("out"),
             nb::kw_only(), arg("seed"), arg("epoch"), arg("threads"),
             nb::sig("def transform_canvases(transform: Transform, tiles: collections.abc.Sequence[typing.Any], "
                     "rows: object, out: collections.abc.Sequence[typing.Any], *, seed: int, epoch: int, "
                     "threads: int) -> tuple[list[tuple[int, str, str]], float]"));
}

}  // namespace headrace::bindings
