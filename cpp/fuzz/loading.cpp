// SPDX-License-Identifier: Apache-2.0
// The fuzz target of the loading engine: batches whose index rows lie, and image files whose bytes were changed under
// checksums that are right. An input is a stream of choices (`Reader`); any bytes are a valid one, and
// what is missing follows from their checksum.
//
// Promises checked: no undefined behaviour, nothing written beyond a batch's memory, every job ends within five
// seconds, a run takes less than 1 GB of memory, samples lie apart from one another, a sample that is reported as
// loaded has the pixels that the same transform gives when it runs alone, and a true sample is loaded whatever its
// neighbours claim.

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "../tests/png_file.h"
#include "../tests/stored.h"
#include "canvas.h"
#include "forgery.h"
#include "loading/engine.h"
#include "seal.h"

// Of AddressSanitizer's runtime; GCC does not install the header that declares them, sanitizer/allocator_interface.h.
extern "C" {
std::size_t __sanitizer_get_allocated_size(const volatile void* memory);
std::size_t __sanitizer_get_current_allocated_bytes();
int __sanitizer_install_malloc_and_free_hooks(void (*after_malloc)(const volatile void*, std::size_t),
                                              void (*before_free)(const volatile void*));
}

namespace headrace::fuzz {
namespace {

using tests::Decoded;
using tests::File;
using tests::ShardFile;
using tests::Stored;

constexpr double kMaxCpuSeconds = 5;  // CPU time: on a busy machine the clock on the wall says little
constexpr double kHangSeconds = 60;
constexpr std::size_t kMaxHeapBytes = std::size_t{1} << 30;
constexpr std::uint64_t kScratchBytes = 1 << 20;
constexpr std::uint64_t kMaxOutputBytes = 64 << 20;
constexpr unsigned kRunsPerEngine = 4096;

void require(bool kept, const char* promise) { fuzz::require(kept, promise, "loading"); }

// What the stand-in for external decoders makes of a file, as some bytes of it say: pixels, other pixels, or nothing.
bool decode_external(Bytes file, const DecodeOptions& options, Decoded& decoded) {
  if (file.empty() || file.back() % 8 == 0) return false;
  return static_cast<bool>(decode_raw(file, options, decoded));
}

void serve(Engine& engine) {
  while (!engine.closed()) {
    const std::unique_ptr<ExternalImage> image = engine.next_external(0.05);
    if (!image || image->ended()) continue;
    const Format format = image->rendition().format;
    require(format == Format::webp || format == Format::jpeg, "only known formats reach a decoder");
    Decoded decoded;
    if (decode_external(image->data(), tests::options_of(image->transform(), image->rendition()), decoded))
      image->finish(decoded.picture());
    else if (image->data().size() % 2 == 0)
      image->fail("CorruptImage", "it does not decode");
    // Else it is dropped, as by a decoder's thread that ends.
  }
}

// Shards, what they hold, and an engine that serves many runs.
class Dataset {
 public:
  Dataset() : images_(tests::make_stored(1)) {
    for (const Stored& image : images_) rows_.push_back(sound_.add(image));
    scratch_.write(kScratchBytes - 1, File{0});
    open();
  }
  ~Dataset() { close(); }

  Engine& engine() { return *engine_; }
  std::size_t images() const { return images_.size(); }
  const Rendition& row(std::size_t image) const { return rows_[image]; }
  Format format(std::size_t image) const { return images_[image].format; }

  void begin_run() {
    used_ = 0;
    if (++runs_ % kRunsPerEngine == 0) reopen();
  }
  void reopen() {
    close();
    open();
  }

  // Store a changed copy of an image: its true row is the scratch shard's.
  Rendition patch(Reader& reader, std::size_t image) {
    File file = images_[image].bytes;
    Rendition row = rows_[image];
    for (std::uint32_t n = 1 + reader.byte() % 4; n > 0; --n) {
      std::uint8_t& byte = file[(reader.pair() | (reader.byte() & 1) << 16) % file.size()];
      byte = static_cast<std::uint8_t>(reader.byte() % 2 == 0 ? byte ^ 1U << reader.byte() % 8 : reader.byte());
    }
    if (reader.byte() % 4 == 0) file.resize(1 + reader.pair() % file.size());
    if (row.format == Format::hri_fast || row.format == Format::hri_dense)
      seal(file, true);
    else if (row.format == Format::png)
      tests::seal_png(file);
    else if (row.format != Format::jpeg)
      tests::seal_raw(file);
    if (used_ + file.size() > kScratchBytes) return row;
    scratch_.write(used_, file);
    row = {1, used_, file.size(), row.format, crc32c(file), row.shape};
    used_ += file.size();
    return row;
  }

  // The bytes that a row names, alone in memory; false if it names none.
  bool read(const Rendition& r, std::unique_ptr<Heap>& file) const {
    const ShardFile* shard = r.shard == 1 ? &scratch_ : r.shard == 3 ? nullptr : &sound_;
    if (!shard || r.shard > 3 || r.length == 0 || r.offset > shard->size() || r.length > shard->size() - r.offset)
      return false;
    file = std::make_unique<Heap>(r.length);
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(shard->path().c_str(), "rb"), std::fclose);
    return stream && std::fseek(stream.get(), static_cast<long>(r.offset), SEEK_SET) == 0 &&
           std::fread(file->data(), 1, r.length, stream.get()) == r.length;
  }

 private:
  void open() {
    // The last two lie: one is shorter than the manifest says, and one is not there.
    std::vector<Shard> shards{
        sound_.shard(), scratch_.shard(), {sound_.path(), std::uint64_t{1} << 62}, {"/none", 4096}};
    engine_ = std::make_unique<Engine>(std::move(shards), 1 + runs_ / kRunsPerEngine % 2, false, 0);
    decoder_ = std::thread([this] { serve(*engine_); });
  }
  void close() {
    engine_->close();
    decoder_.join();
  }

  std::vector<Stored> images_;
  std::vector<Rendition> rows_;
  ShardFile sound_, scratch_;
  std::unique_ptr<Engine> engine_;
  std::thread decoder_;
  std::uint64_t used_ = 0;
  std::uint64_t runs_ = 0;
};

// What one rendition gives by itself, in memory of exactly its size; null if it fails.
std::unique_ptr<Heap> load_alone(const Dataset& dataset, const Transform& transform, const Rendition& r,
                                 const DrawKey& key, OutputShape& shape) {
  static Workspace workspace;
  static Decoder decoder(workspace);
  if (!output_shape(transform, r.shape, key, shape) || shape.bytes() > kMaxOutputBytes) return nullptr;
  std::unique_ptr<Heap> file;
  if (!dataset.read(r, file)) return nullptr;
  auto out = std::make_unique<Heap>(shape.bytes());
  const DecodeOptions options = tests::options_of(transform, r);
  if (core_decodes(r.format)) {
    MemoryBytes bytes(file->bytes());
    ImageShape found;
    if (!decoder.open(r.format, bytes, options, found)) return nullptr;
    if (!transform_image(transform, found, decoder, key, shape, out->data(), workspace)) return nullptr;
    return out;
  }
  Decoded decoded;
  if (!decode_external(file->bytes(), options, decoded)) return nullptr;
  PictureRows rows(decoded.picture());
  return transform_image(transform, decoded.shape, rows, key, shape, out->data(), workspace) ? std::move(out) : nullptr;
}

struct Request {
  std::vector<FieldRequest> fields;
  std::vector<std::uint64_t> rows;
  std::vector<std::vector<bool>> sound;  // [field][sample]: nothing about it was forged
};

Request make_request(Dataset& dataset, Reader& reader) {
  Request request;
  const std::uint32_t samples = 1 + reader.byte() % 6, fields = reader.byte() % 8 == 0 ? 2 : 1;
  for (std::uint32_t i = 0; i < samples; ++i) request.rows.push_back(reader.byte() == 255 ? forge(reader, i) : i);
  for (std::uint32_t f = 0; f < fields; ++f) {
    FieldRequest field;
    field.groups.resize(1);
    field.groups[0].transform = make_transform(reader);
    const std::uint32_t views = reader.byte() % 16, renditions = reader.byte() % 8;
    field.groups[0].views = static_cast<std::uint16_t>(views < 3 ? views + 1 : 1);
    field.renditions.resize(renditions < 3 ? renditions + 1 : 1);
    request.sound.emplace_back(samples, true);
    // Batches whose images are all alike have a layout of their own.
    const bool alike = reader.byte() % 2 == 0;
    const std::size_t first = reader.byte() % dataset.images();
    for (auto& rows : field.renditions)
      for (std::uint32_t i = 0; i < samples; ++i) {
        const std::size_t image = alike ? first : reader.byte() % dataset.images();
        const bool patched = reader.byte() % 8 == 0;
        Rendition row = patched ? dataset.patch(reader, image) : dataset.row(image);
        if (!forge_row(reader, row) || patched) request.sound[f][i] = false;
        rows.push_back(row);
      }
    request.fields.push_back(std::move(field));
  }
  return request;
}

void check_places(const Batch& batch, std::size_t f) {
  const auto& block = batch.block(f);
  std::vector<std::pair<const std::uint8_t*, const std::uint8_t*>> places;
  for (const Batch::Output& output : batch.outputs(f)) {
    if (!output.data) continue;
    require(block && output.data >= block->data && output.data <= block->data + block->size &&
                output.shape.bytes() <= static_cast<std::uint64_t>(block->data + block->size - output.data),
            "a sample lies within its batch's memory");
    places.emplace_back(output.data, output.data + output.shape.bytes());
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i)
    require(places[i - 1].second <= places[i].first, "samples lie apart from one another");
}

void check_pixels(const Dataset& dataset, const Request& request, const Batch& batch, std::size_t f) {
  const FieldRequest& field = batch.field(f);
  std::vector<bool> failed(batch.samples(), false);
  for (const Failure& failure : batch.failures()) {
    require(failure.position < batch.samples() && failure.field < batch.fields(), "a failure names a sample");
    if (failure.field == f) failed[failure.position] = true;
  }
  for (std::size_t i = 0; i < batch.samples(); ++i) {
    bool possible = true;
    for (std::uint16_t view = 0; view < field.groups[0].views; ++view) {
      const Batch::Output& output = batch.outputs(f)[i * field.groups[0].views + view];
      const DrawKey key{7, 3, request.rows[i], view};
      bool agrees = false, loads = false;
      for (const auto& rows : field.renditions) {
        OutputShape shape;
        const auto alone = load_alone(dataset, field.groups[0].transform, rows[i], key, shape);
        if (!alone) continue;
        loads = true;
        agrees |=
            !failed[i] && output.data && shape == output.shape && same(alone->bytes(), {output.data, alone->size()});
      }
      if (!failed[i]) require(agrees, "a loaded sample has the pixels that it has alone");
      possible &= loads;
    }
    // Renditions of other images than the first are no choice.
    if (request.sound[f][i] && possible && field.renditions.size() == 1)
      require(!failed[i], "a true sample is loaded whatever its neighbours claim");
  }
}

// Heap bytes in use, now and at most since begin_heap_count(). Counted through AddressSanitizer: its allocator keeps
// freed memory, so the size of the process says little about one run.
std::atomic<std::size_t> heap_bytes{0}, peak_heap_bytes{0};

void count_allocation(const volatile void* memory, std::size_t) {
  const std::size_t size = __sanitizer_get_allocated_size(memory);
  const std::size_t now = heap_bytes.fetch_add(size) + size;
  std::size_t peak = peak_heap_bytes;
  while (peak < now && !peak_heap_bytes.compare_exchange_weak(peak, now)) {
  }
}

void count_release(const volatile void* memory) {
  if (memory) heap_bytes -= __sanitizer_get_allocated_size(memory);
}

void begin_heap_count() {
  static const bool installed = [] {
    heap_bytes = __sanitizer_get_current_allocated_bytes();
    return __sanitizer_install_malloc_and_free_hooks(count_allocation, count_release) != 0;
  }();
  require(installed, "allocations can be counted");
  peak_heap_bytes = heap_bytes.load();
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void run(Bytes input) {
  static Dataset dataset;
  dataset.begin_run();
  begin_heap_count();
  Reader reader(input, crc32c(input));
  const std::uint32_t choice = reader.byte();
  const Request request = make_request(dataset, reader);
  const double cpu_before = cpu_seconds();
  const auto batch = dataset.engine().submit(request.fields, request.rows, 7, 3);
  if (choice >= 250) {  // given up, in one of two ways
    if (choice == 255) dataset.reopen();
    if (batch) batch->cancel();
    return;
  }
  if (!batch) return;
  require(batch->wait_for(kHangSeconds), "every job ends");
  require(cpu_seconds() - cpu_before < kMaxCpuSeconds, "every job ends within five seconds of CPU time");
  for (std::size_t f = 0; f < batch->fields(); ++f) {
    check_places(*batch, f);
    check_pixels(dataset, request, *batch, f);
  }
  require(peak_heap_bytes < kMaxHeapBytes, "a run takes less than 1 GB of memory");
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  headrace::fuzz::run({data, size});
  return 0;
}
