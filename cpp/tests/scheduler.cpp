// SPDX-License-Identifier: Apache-2.0
// Checks who does what next: cores are handed to the earliest work, batches end in their order, and a job whose
// rendition fails is claimed again from another one, by the core or by a external decoder.
//
//   claims
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "loading/cores.h"
#include "loading/engine.h"
#include "stored.h"
#include "checks.h"

namespace headrace::tests {
namespace {

constexpr double kLong = 30;  // seconds; a test that waits as long as this has failed

void check_cores(Checks& checks) {
  Mutex mutex;
  MutexLock lock(mutex);
  Cores cores(2);
  cores.take();
  checks.expect(cores.free(), "one of two cores is free");
  cores.take();
  checks.expect(!cores.free() && cores.busy() == 2, "both are busy");
  cores.allow_one_more(true);
  checks.expect(cores.free(), "while reads wait one more is let in");
  cores.allow_one_more(false);

  std::vector<std::uint64_t> served;
  std::vector<std::thread> threads;
  for (const std::uint64_t order : {30U, 10U, 20U})
    threads.emplace_back([&, order] {
      MutexLock own(mutex);
      if (cores.wait(own, order)) served.push_back(order);
    });
  const auto wait_until = [&](auto holds) {
    while (!holds()) {
      lock.native().unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock.native().lock();
    }
  };
  wait_until([&] { return cores.waiting() == 3; });
  checks.expect(!cores.give_back(), "a core that is handed over does not come free");
  wait_until([&] { return served.size() == 1; });
  checks.expect(served[0] == 10, "the earliest work is served first");
  checks.expect(!cores.give_back() && cores.busy() == 2, "cores that change hands stay busy");
  wait_until([&] { return served.size() == 2; });
  checks.expect(served[1] == 20, "the next one is served next");
  cores.close();
  lock.native().unlock();
  for (auto& thread : threads) thread.join();
  lock.native().lock();
  checks.expect(served.size() == 2 && cores.waiting() == 0, "whoever waits at the end gets no core");
  checks.expect(!cores.wait(lock, 0), "after the end nobody waits");
}

// A sample with these renditions, all of one image.
struct Fixture {
  ShardFile file;
  Image image;
  std::vector<std::vector<Rendition>> renditions;

  explicit Fixture(const std::vector<Format>& formats) : image(make()) {
    for (const Format format : formats) renditions.push_back({file.add(store(format, image))});
  }
  static Image make() {
    Random random(3);
    return make_image(Content::textures, 33, 40, {3, 8, false}, random);
  }
  std::shared_ptr<Batch> submit(Engine& engine, std::size_t samples = 1) const {
    FieldRequest field;
    field.groups.resize(1);
    field.groups[0].transform.mask = true;
    field.groups[0].transform.color = Color::keep;
    field.groups[0].transform.layout = Layout::hwc;
    std::vector<std::uint64_t> rows(samples, 5);
    for (const auto& each : renditions) field.renditions.emplace_back(samples, each[0]);
    return engine.submit({std::move(field)}, std::move(rows), 1, 0);
  }
  bool loaded(const Batch& batch) const {
    const auto& outputs = batch.outputs(0);
    for (const Batch::Output& output : outputs)
      if (!output.data || std::memcmp(output.data, image.bytes.data(), image.bytes.size()) != 0) return false;
    return batch.failures().empty();
  }
  // Make one rendition undecodable.
  void damage(std::size_t rendition) { file.write(renditions[rendition][0].offset, File{0, 0, 0, 0}); }
};

void finish(ExternalImage& image) {
  Decoded decoded;
  if (decode_raw(image.data(), options_of(image.transform(), image.rendition()), decoded))
    image.finish(decoded.picture());
  else
    image.fail("CorruptImage", "it does not decode");
}

void check_order(Checks& checks) {
  const Fixture fixture({Format::hri_fast});
  for (const unsigned threads : {1U, 4U}) {
    Engine engine({fixture.file.shard()}, threads, false, 0);
    std::vector<std::shared_ptr<Batch>> batches;
    for (int i = 0; i < 20; ++i) batches.push_back(fixture.submit(engine, 40));
    checks.expect(batches.back()->wait_for(kLong), "the last batch ends");
    // Threads may still be at the jobs that they took from the one before.
    for (std::size_t i = 0; i + 2 < batches.size(); ++i)
      checks.expect(threads > 1 || batches[i]->wait_for(0), "earlier batches end earlier");
    for (const auto& batch : batches) checks.expect(batch->wait_for(kLong) && fixture.loaded(*batch), "all load");
  }
}

void check_other_rendition(Checks& checks) {
  for (std::size_t damaged = 0; damaged < 3; ++damaged) {
    Fixture fixture({Format::hri_fast, Format::raw, Format::hri_dense});
    fixture.damage(damaged);
    Engine engine({fixture.file.shard()}, 2, false, 0);
    for (int round = 0; round < 20; ++round) {
      const auto batch = fixture.submit(engine, 5);
      checks.expect(batch->wait_for(kLong) && fixture.loaded(*batch), "a sample loads from a rendition that is intact");
    }
  }
  Fixture fixture({Format::hri_fast, Format::raw});
  fixture.damage(0);
  fixture.damage(1);
  Engine engine({fixture.file.shard()}, 2, false, 0);
  const auto batch = fixture.submit(engine, 3);
  checks.expect(batch->wait_for(kLong) && batch->failures().size() == 3, "without an intact one a sample fails, once");
  checks.expect(engine.stats().failed_renditions == 3, "the renditions tried before are counted");
}

void check_external_renditions(Checks& checks) {
  for (const bool core_damaged : {true, false}) {
    Fixture fixture({Format::webp, Format::hri_fast});
    fixture.damage(core_damaged ? 1 : 0);
    Engine engine({fixture.file.shard()}, 2, false, 0);
    std::thread decoder([&engine] {
      while (!engine.closed())
        if (const auto image = engine.next_external(0.05); image && !image->ended()) finish(*image);
    });
    for (int round = 0; round < 20; ++round) {
      const auto batch = fixture.submit(engine, 7);
      checks.expect(batch->wait_for(kLong) && fixture.loaded(*batch),
                    core_damaged ? "a decoder takes over from the core" : "the core takes over from a decoder");
    }
    engine.close();
    decoder.join();
  }
}

int run() {
  Checks checks;
  check_cores(checks);
  check_order(checks);
  check_other_rendition(checks);
  check_external_renditions(checks);
  return checks.report();
}

}  // namespace
}  // namespace headrace::tests

int main() { return headrace::tests::run(); }
