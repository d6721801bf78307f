// SPDX-License-Identifier: Apache-2.0
// Checks batches of the loading engine: pixels of every format, failures of single samples, cancellation and the end.
//
//   engine
#include "loading/engine.h"

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "stored.h"
#include "checks.h"

namespace headrace::tests {
namespace {

constexpr double kLong = 30;  // seconds; a test that waits as long as this has failed

// Serves the external formats until the engine closes, by the stand-in for their decoders.
class Decoders {
 public:
  explicit Decoders(Engine& engine)
      : thread_([&engine] {
          while (!engine.closed()) {
            const auto image = engine.next_external(0.05);
            if (!image || image->ended()) continue;
            Decoded decoded;
            if (decode_raw(image->data(), options_of(image->transform(), image->rendition()), decoded))
              image->finish(decoded.picture());
            else
              image->fail("CorruptImage", "it does not decode");
          }
        }) {}
  ~Decoders() { thread_.join(); }

 private:
  std::thread thread_;
};

Transform as_stored() {
  Transform transform;
  transform.mask = true;
  transform.color = Color::keep;
  transform.layout = Layout::hwc;
  return transform;
}

FieldRequest one_field(std::vector<Rendition> rows) {
  FieldRequest field;
  field.groups.resize(1);
  field.groups[0].transform = as_stored();
  field.renditions.push_back(std::move(rows));
  return field;
}

std::vector<std::uint64_t> numbers(std::size_t n) {
  std::vector<std::uint64_t> rows(n);
  for (std::size_t i = 0; i < n; ++i) rows[i] = i;
  return rows;
}

std::shared_ptr<Batch> submit(Engine& engine, const std::vector<Rendition>& rows) {
  return engine.submit({one_field(rows)}, numbers(rows.size()), 1, 0);
}

struct Fixture {
  ShardFile file;
  std::vector<Image> images;
  std::vector<Rendition> rows;

  Fixture(const std::vector<Format>& formats, std::uint32_t side) {
    Random random(7);
    for (const Format format : formats) {
      const std::uint32_t height = side == 0 ? 1 + random.below(90) : side;
      images.push_back(make_image(Content::smooth, height, 40, {3, 8, false}, random));
      rows.push_back(file.add(store(format, images.back())));
    }
  }
  bool holds(const Batch& batch, std::size_t i) const {
    const Batch::Output& output = batch.outputs(0)[i];
    return output.data && output.shape.bytes() == images[i].bytes.size() &&
           std::memcmp(output.data, images[i].bytes.data(), images[i].bytes.size()) == 0;
  }
};

const std::vector<Format> kLossless = {Format::hri_fast, Format::raw, Format::webp, Format::hri_dense,
                                       Format::webp,     Format::png, Format::raw,  Format::hri_fast};

void check_pixels(Checks& checks) {
  for (const std::uint32_t side : {33U, 0U}) {
    const Fixture fixture(kLossless, side);
    for (const unsigned threads : {1U, 3U}) {
      Engine engine({fixture.file.shard()}, threads, false, 0);
      {
        const Decoders decoders(engine);
        for (int round = 0; round < 3; ++round) {
          const auto batch = submit(engine, fixture.rows);
          checks.expect(batch && batch->wait_for(kLong) && batch->failures().empty(), "a batch of all formats loads");
          checks.expect(batch->uniform(0) == (side != 0), "images of one size lie back to back");
          for (std::size_t i = 0; i < fixture.rows.size(); ++i)
            checks.expect(fixture.holds(*batch, i), "image " + std::to_string(i) + " has its pixels");
        }
        engine.close();
      }  // threads, the decoders' too, let go of a batch after its end
      checks.expect(engine.stats().queued_jobs == 0 && engine.stats().blocks_in_use == 0, "nothing is left behind");
    }
  }
}

void check_failures(Checks& checks) {
  const Fixture fixture(kLossless, 33);
  Engine engine({fixture.file.shard(), {fixture.file.path() + ".missing", 4096}, {fixture.file.path(), 1U << 30}}, 2,
                false, 0);
  const Decoders decoders(engine);
  const auto expect_one = [&](std::size_t at, Code code, const char* what, auto change) {
    std::vector<Rendition> rows = fixture.rows;
    change(rows[at]);
    const auto batch = submit(engine, rows);
    if (!checks.expect(batch && batch->wait_for(kLong), std::string(what) + ": the batch ends")) return;
    const auto failures = batch->failures();
    checks.expect(failures.size() == 1 && failures[0].position == at && failures[0].status.code == code, what);
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (i != at) checks.expect(fixture.holds(*batch, i), std::string(what) + ": the others are intact");
  };
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {  // .hri, raw, and an external one
    expect_one(at, Code::corrupt, "a shard that there is not", [](Rendition& r) { r.shard = 9; });
    expect_one(at, Code::unreadable, "a shard that is missing", [](Rendition& r) { r.shard = 1, r.offset = 0; });
    expect_one(at, Code::unreadable, "a shard that was cut short",
               [](Rendition& r) { r.shard = 2, r.offset = 1 << 29; });
    expect_one(at, Code::corrupt, "an offset beyond the end", [](Rendition& r) { r.offset = ~std::uint64_t{0}; });
    expect_one(at, Code::corrupt, "a length beyond the end", [](Rendition& r) { r.length = ~std::uint64_t{0}; });
    expect_one(at, Code::corrupt, "no length", [](Rendition& r) { r.length = 0; });
    expect_one(at, Code::corrupt, "another image's bytes", [&](Rendition& r) { r.offset += 64; });
  }
  engine.close();
}

void check_cancelled(Checks& checks) {
  const Fixture fixture(kLossless, 33);
  Engine engine({fixture.file.shard()}, 1, false, 0);
  // No decoder runs: a batch of external images waits for one.
  const auto waiting = submit(engine, {fixture.rows[2]});
  checks.expect(waiting && !waiting->wait_for(0.05), "an external image waits for its decoder");
  waiting->cancel();
  const auto next = submit(engine, {fixture.rows[0]});
  checks.expect(next && next->wait_for(kLong) && fixture.holds(*next, 0), "other batches go on");
  engine.close();
  checks.expect(waiting->wait_for(kLong), "a cancelled batch has ended when the engine has");
}

void check_close(Checks& checks) {
  const Fixture fixture(kLossless, 33);
  std::vector<std::shared_ptr<Batch>> batches;
  std::shared_ptr<Block> kept;
  {
    Engine engine({fixture.file.shard()}, 2, false, 0);
    const auto loaded = submit(engine, {fixture.rows[0], fixture.rows[1]});
    checks.expect(loaded && loaded->wait_for(kLong), "a batch loads");
    kept = loaded->block(0);
    for (int i = 0; i < 40; ++i) batches.push_back(submit(engine, fixture.rows));
    bool woken = false;
    std::thread waiter([&] { woken = batches.back()->wait_for(kLong); });
    std::thread decoder([&] {
      while (!engine.closed()) static_cast<void>(engine.next_external(kLong));  // dropped: a decoder that ends
    });
    std::thread closer([&] { engine.close(); });
    engine.close();
    closer.join();
    waiter.join();
    decoder.join();
    checks.expect(woken, "whoever waits is woken by the end");
    checks.expect(!submit(engine, fixture.rows), "a closed engine takes nothing");
    checks.expect(!engine.next_external(kLong), "a closed engine has nothing for decoders");
    checks.expect(engine.stats().all.images >= 2, "a closed engine still reports what it did");
  }
  for (const auto& batch : batches) checks.expect(batch && batch->wait_for(0), "all batches have ended");
  std::memset(kept->data, 0, kept->size);
  checks.expect(kept.use_count() == 1, "a batch's memory outlives the engine");
}

void check_dropped(Checks& checks) {
  const Fixture fixture(kLossless, 33);
  Engine engine({fixture.file.shard()}, 1, false, 0);
  const auto batch = submit(engine, {fixture.rows[2], fixture.rows[4]});
  for (int i = 0; i < 2; ++i) static_cast<void>(engine.next_external(kLong));  // taken, and dropped
  checks.expect(batch->wait_for(kLong) && batch->failures().size() == 2, "an image that its decoder drops has failed");
  checks.expect(!engine.next_external(0.01), "there is nothing more to decode");
}

int run() {
  Checks checks;
  check_pixels(checks);
  check_failures(checks);
  check_cancelled(checks);
  check_close(checks);
  check_dropped(checks);
  return checks.report();
}

}  // namespace
}  // namespace headrace::tests

int main() { return headrace::tests::run(); }
