// SPDX-License-Identifier: Apache-2.0
// Drives the loading engine from many threads at once: submit, cancel, change the rate, fail, decode slowly, close
// early, and hold memory beyond the end. Built with ThreadSanitizer by `make tsan`, where a data race ends it.
//
//   stress [seconds [seed]]
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "loading/engine.h"
#include "stored.h"
#include "checks.h"

namespace headrace::tests {
namespace {

constexpr double kLong = 60;  // seconds; the sanitizer slows everything down tenfold
using Clock = std::chrono::steady_clock;

struct World {
  ShardFile file;
  std::vector<Stored> stored = make_stored(5);
  std::vector<Rendition> rows;

  World() {
    for (const Stored& each : stored) rows.push_back(file.add(each));
  }
};

std::atomic<std::uint64_t> batches{0}, samples{0}, failures{0}, cancelled{0}, external_images{0};
std::atomic<bool> all_ended{true}, all_within{true};

// Mostly true rows, some of several renditions, some that lie.
std::vector<FieldRequest> make_fields(const World& world, Random& random, std::uint32_t n) {
  FieldRequest field;
  field.groups.resize(1);
  field.groups[0].transform.mask = random.below(2) == 0;
  if (field.groups[0].transform.mask) field.groups[0].transform.color = Color::keep;
  field.groups[0].views = static_cast<std::uint16_t>(1 + random.below(2));
  if (random.below(2) == 0) field.groups[0].transform.ops.push_back({OpKind::resize, {1, 20, 20, 2, 1}});
  field.renditions.resize(1 + random.below(3));
  const std::uint32_t image = random.below(static_cast<std::uint32_t>(world.rows.size()));
  for (auto& renditions : field.renditions)
    for (std::uint32_t i = 0; i < n; ++i) {
      const bool same = random.below(2) == 0;
      Rendition row = world.rows[same ? image : random.below(static_cast<std::uint32_t>(world.rows.size()))];
      if (random.below(20) == 0) row.offset += 64;
      if (random.below(20) == 0) row.shard = 1;  // which is missing
      renditions.push_back(row);
    }
  return {std::move(field)};
}

void check(const Batch& batch) {
  for (const Batch::Output& output : batch.outputs(0)) {
    if (!output.data) continue;
    const auto& block = batch.block(0);
    if (output.data < block->data || output.data + output.shape.bytes() > block->data + block->size) all_within = false;
  }
  failures += batch.failures().size();
}

void submit(Engine& engine, const World& world, std::uint64_t seed) {
  Random random(seed);
  std::deque<std::shared_ptr<Batch>> ahead;
  std::deque<std::shared_ptr<Block>> held;
  const auto take = [&] {
    const auto batch = ahead.front();
    ahead.pop_front();
    if (!batch->wait_for(kLong)) all_ended = false;
    if (batch->cancelled()) return;
    check(*batch);
    if (batch->block(0) && random.below(4) == 0) held.push_back(batch->block(0));
    if (held.size() > 4) held.pop_front();
  };
  while (!engine.closed()) {
    const std::uint32_t n = 1 + random.below(12);
    auto batch = engine.submit(make_fields(world, random, n), std::vector<std::uint64_t>(n, seed), seed, 0);
    if (!batch) continue;
    ++batches;
    samples += n;
    if (random.below(10) == 0) batch->cancel(), ++cancelled;
    if (random.below(10) != 0) ahead.push_back(std::move(batch));  // else dropped
    if (ahead.size() > 4) take();
  }
  while (!ahead.empty()) take();
}

void decode(Engine& engine, std::uint64_t seed) {
  Random random(seed);
  while (!engine.closed()) {
    const auto image = engine.next_external(0.02);
    if (!image || image->ended()) continue;
    ++external_images;
    if (random.below(8) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random.below(5)));
    Decoded decoded;
    if (random.below(16) == 0) continue;  // dropped
    if (random.below(16) != 0 && decode_raw(image->data(), options_of(image->transform(), image->rendition()), decoded))
      image->finish(decoded.picture());
    else
      image->fail("CorruptImage", "it does not decode");
  }
}

// One engine's life, of some milliseconds.
void live(const World& world, Random& random) {
  const double rates[] = {0, 0, 0, 2e6};
  Engine engine({world.file.shard(), {world.file.path() + ".missing", 1 << 20}}, 1 + random.below(4),
                random.below(4) == 0, rates[random.below(4)]);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i <= random.below(3); ++i)
    threads.emplace_back([&, seed = random.next()] { submit(engine, world, seed); });
  for (std::uint32_t i = 0; i <= random.below(2); ++i)
    threads.emplace_back([&, seed = random.next()] { decode(engine, seed); });
  threads.emplace_back([&, rate = random.below(8) == 0 ? 5e6 : 0.0] {
    while (!engine.closed()) {
      static_cast<void>(engine.stats());
      engine.set_storage_rate(rate);
      static_cast<void>(engine.memory(1 << 16));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(random.below(300)));
  if (random.below(2) == 0) threads.emplace_back([&engine] { engine.close(); });
  engine.close();
  for (auto& thread : threads) thread.join();
}

int run(double seconds, std::uint64_t seed) {
  const World world;
  Random random(seed);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  unsigned engines = 0;
  do {
    live(world, random);
    ++engines;
  } while (Clock::now() < end);
  std::printf("%u engines, %llu batches, %llu samples, %llu failures, %llu cancelled, %llu decoded elsewhere\n",
              engines, static_cast<unsigned long long>(batches), static_cast<unsigned long long>(samples),
              static_cast<unsigned long long>(failures), static_cast<unsigned long long>(cancelled),
              static_cast<unsigned long long>(external_images));
  Checks checks;
  checks.expect(all_ended, "every batch ends");
  checks.expect(all_within, "samples lie within their batch's memory");
  checks.expect(batches > 0 && external_images > 0, "there was something to do");
  return checks.report();
}

}  // namespace
}  // namespace headrace::tests

int main(int argc, char** argv) {
  return headrace::tests::run(argc > 1 ? std::strtod(argv[1], nullptr) : 1,
                              argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
}
