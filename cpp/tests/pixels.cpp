// SPDX-License-Identifier: Apache-2.0
// Checks what transforms do to pixels: every target gives the same bytes as the scalar one, and those are what a plain
// calculation in doubles gives, within the tolerance that each check names. Needs no Python.
//
//   pixels [seed [cases]]    also prints a digest, which is the same on every machine
#include "pixels.h"

#include <cstdio>
#include <cstdlib>

namespace headrace::tests {
namespace {

int run(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const unsigned cases = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 400;
  std::printf("targets:");
  for (const char* const target : targets()) std::printf(" %s", target);
  std::printf("; seed %llu, %u cases\n", static_cast<unsigned long long>(seed), cases);
  Checks checks;
  Digest digest;
  check_resample(seed, cases, checks, digest);
  check_finish(seed, cases, checks, digest);
  check_colors(seed, cases, checks, digest);
  check_noise(seed, cases, checks, digest);
  check_warps(seed, cases, checks, digest);
  check_steps(seed, cases, checks, digest);
  check_place(seed, cases, checks);
  std::printf("digest %016llx\n", static_cast<unsigned long long>(digest.value));
  return checks.report();
}

}  // namespace
}  // namespace headrace::tests

int main(int argc, char** argv) { return headrace::tests::run(argc, argv); }
