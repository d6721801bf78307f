// SPDX-License-Identifier: Apache-2.0
// Checks draws and programs: published numbers of Philox, our exp and log, and that the passes of a program do to a
// picture what its operations do one by one. A digest of many programs shows that all machines make the same ones.
//
//   program [seed]
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "images.h"
#include "plain_operations.h"
#include "checks.h"
#include "transform/draws.h"
#include "transform/trigonometry.h"

namespace headrace::tests {
namespace {

// Of the programs that check_digest makes. It changes with the meaning of a recipe, and with nothing else.
constexpr std::uint64_t kDigest = 0x8B19C1DB10830A9A;

// The known answers that come with Random123, for counters and keys of zeros, of ones, and of digits of pi.
void check_draws(Checks& checks) {
  using Words = std::array<std::uint32_t, 4>;
  checks.expect(draw({}, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, "Philox of zeros");
  checks.expect(draw({~0ULL, ~0U, 0xffffffffffff, 0xffff}, 0xffff, 0xffff) ==
                    Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                "Philox of ones");
  checks.expect(draw({0x299f31d0a4093822, 0x13198a2e, 0x08d3243f6a88, 0x85a3}, 0x0370, 0x7344) ==
                    Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
                "Philox of pi");
}

void check_functions(Random& random, Checks& checks) {
  double worst_log = 0, worst_exp = 0;
  for (int k = 0; k < 200000; ++k) {
    const double x = std::ldexp(1 + random.below(1U << 31) * 0x1p-31, static_cast<int>(random.below(41)) - 20);
    const long double log = std::log(static_cast<long double>(x));
    if (x != 1) worst_log = std::max(worst_log, static_cast<double>(std::fabs((logarithm(x) - log) / log)));
    const double y = (random.below(1U << 31) * 0x1p-30 - 1) * 20;
    const long double exp = std::exp(static_cast<long double>(y));
    worst_exp = std::max(worst_exp, static_cast<double>(std::fabs((exponential(y) - exp) / exp)));
  }
  checks.expect(worst_log < 1e-15, "logarithm is off by " + std::to_string(worst_log * 1e16) + "e-16");
  checks.expect(worst_exp < 1e-15, "exponential is off by " + std::to_string(worst_exp * 1e16) + "e-16");
  double worst_turn = 0;
  for (int k = 0; k < 200000; ++k) {
    const double turns = (random.below(1U << 31) * 0x1p-30 - 1) * 3;
    const long double angle = turns * 6.283185307179586476925L;
    const Turned found = turned(turns);
    worst_turn = std::max({worst_turn, static_cast<double>(std::fabs(found.cosine - std::cos(angle))),
                           static_cast<double>(std::fabs(found.sine - std::sin(angle)))});
  }
  checks.expect(worst_turn < 1e-15, "sine or cosine is off by " + std::to_string(worst_turn * 1e16) + "e-16");
  checks.expect(turned(0.25).cosine == 0 && turned(-0.25).sine == -1 && turned(1.5).cosine == -1, "quarter turns");
  checks.expect(logarithm(1) == 0 && exponential(0) == 1, "log 1 and exp 0");
  for (const double x : {0.0, 0.49, 0.5, 0.51, 1.5, 2.5, 3.5, 4.0, 1e9 + 0.5})
    checks.expect(round_half_even(x) == std::nearbyint(x), "rounding of " + std::to_string(x));
}

double one_of(Random& random, std::initializer_list<double> values) {
  return values.begin()[random.below(static_cast<std::uint32_t>(values.size()))];
}

Op random_op(Random& random) {
  const auto side = [&] { return 1.0 + random.below(24); };
  const auto border = [&] { return static_cast<double>(random.below(3)); };
  const auto width = [&] { return static_cast<double>(random.below(2) * random.below(9)); };
  const auto fill = [&] { return one_of(random, {0, 0, 7}); };
  const auto chance = [&] { return one_of(random, {0, 0.5, 0.5, 1}); };
  const auto kind = static_cast<OpKind>(random.below(9));
  switch (kind) {
    case OpKind::resize:
      return {kind, {chance() < 1 ? 1.0 : 0.0, side(), side(), 0, 1}};
    case OpKind::center_crop:
      return {kind, {side(), side()}};
    case OpKind::random_crop:
      return {kind, {side(), side(), one_of(random, {0, 1, 1}), fill(), border()}};
    case OpKind::random_resized_crop:
      return {kind,
              {side(), side(), one_of(random, {0.08, 0.3, 1}), one_of(random, {1, 1.5}), one_of(random, {0.75, 0.1}),
               one_of(random, {0.8, 4.0 / 3, 10}), 0, 1}};
    case OpKind::pad:
      return {kind, {width(), width(), width(), width(), fill(), border()}};
    case OpKind::color_jitter: {
      const double contrast = one_of(random, {1, 1.4}), hue = one_of(random, {0, 0.1});
      return {kind, {0.6, 1.4, 1, contrast, 1, 1, -hue, hue}};
    }
    case OpKind::grayscale:
      return {kind, {chance(), 3}};
    default:
      return {kind, {chance()}};
  }
}

void add_random_ops(Random& random, unsigned depth, unsigned highest, std::vector<Op>& ops);

// A control operation and its body. Weights are whole, so that their sums are exact.
void add_control(Random& random, unsigned depth, std::vector<Op>& ops) {
  const auto kind = static_cast<OpKind>(static_cast<unsigned>(OpKind::apply) + random.below(3));
  const std::size_t at = ops.size();
  ops.push_back({kind, {one_of(random, {0, 0.5, 0.5, 1})}});
  const std::uint32_t branches = kind == OpKind::apply ? 0 : 1 + random.below(7);
  if (branches == 0) add_random_ops(random, depth + 1, 4, ops);
  for (std::uint32_t k = 0; k < branches; ++k) {
    const std::size_t branch = ops.size();
    ops.push_back({OpKind::branch, {static_cast<double>(k == 0 ? 1 : random.below(3))}});
    add_random_ops(random, depth + 1, 3, ops);
    ops[branch].parameters[1] = static_cast<double>(ops.size() - branch - 1);
  }
  ops[at].parameters[kind == OpKind::apply ? 1 : 0] = static_cast<double>(ops.size() - at - 1);
}

void add_random_ops(Random& random, unsigned depth, unsigned highest, std::vector<Op>& ops) {
  for (unsigned left = random.below(highest); left > 0; --left) {
    if (depth < 3 && random.below(8) == 0)
      add_control(random, depth, ops);
    else
      ops.push_back(random_op(random));
  }
}

DrawKey random_key(Random& random) {
  return {random.next(), static_cast<std::uint32_t>(random.next()), random.next() >> 16,
          static_cast<std::uint16_t>(random.next())};
}

bool holds(const Axis& a, std::uint32_t input) {
  const bool sound = a.input == input && a.size >= 1 && a.resized >= 1 && a.canvas >= 1 && a.start <= a.input &&
                     a.size <= a.input - a.start;
  return sound && (a.resized != a.size || a.has_border() || (a.offset == 0 && a.canvas == a.size));
}

bool invariants_hold(const Program& program, std::uint32_t height, std::uint32_t width) {
  for (std::uint32_t k = 0; k < program.pass_count; ++k) {
    const Pass& pass = program.passes[k];
    if (!holds(pass.rows, height) || !holds(pass.columns, width)) return false;
    height = pass.rows.canvas;
    width = pass.columns.canvas;
  }
  return program.pass_count >= 1 && program.pass_count <= kMaxPasses;
}

void check_composition(Random& random, Checks& checks) {
  unsigned done = 0, refused = 0, passes = 0, operations = 0;
  for (int round = 0; round < 60000; ++round) {
    const std::uint32_t height = 1 + random.below(20), width = 1 + random.below(20);
    std::vector<Op> ops;
    add_random_ops(random, 0, 9, ops);
    const DrawKey key = random_key(random);
    const std::string what = "round " + std::to_string(round);
    if (!checks.expect(static_cast<bool>(check_ops(ops)), what + ": operations are refused")) continue;

    Plain expected = make_plain(height, width);
    const bool possible = apply_operations(ops, key, expected);
    Program program;
    const Status status = make_program(ops, height, width, key, program);
    const bool made = static_cast<bool>(status);
    if (!made && program.pass_count == kMaxPasses) continue;  // an order with many passes
    checks.expect(made == possible, what + (possible ? ": no program" : ": a crop larger than the image"));
    refused += !made;
    if (!made || !possible) continue;
    ++done;
    passes += program.pass_count;
    operations += static_cast<unsigned>(ops.size());
    checks.expect(invariants_hold(program, height, width), what + ": an invariant does not hold");
    checks.expect(apply_program(program, make_plain(height, width)) == expected, what + ": another picture");
  }
  std::printf("%u lists, %.2f operations and %.2f passes each; %u refused\n", done, operations * 1.0 / done,
              passes * 1.0 / done, refused);
}

// How few passes the lists of everyday take: what the speed of the loader rests on.
void check_passes(Checks& checks) {
  const Op crop{OpKind::random_resized_crop, {224, 224, 0.08, 1, 3.0 / 4, 4.0 / 3, 2, 1}},
      flip{OpKind::horizontal_flip, {0.5}}, jitter{OpKind::color_jitter, {0.6, 1.4, 0.6, 1.4, 0.6, 1.4, -0.1, 0.1}},
      gray{OpKind::grayscale, {0.2, 3}}, resize{OpKind::resize, {0, 256, 0, 2, 1}},
      center{OpKind::center_crop, {224, 224}}, pad{OpKind::pad, {4, 4, 4, 4, 0, 0}},
      part{OpKind::random_crop, {32, 32, 0, 0, 0}};
  const auto passes = [](std::vector<Op> ops, std::uint32_t height, std::uint32_t width) {
    Program program;
    std::uint32_t highest = 0;
    for (std::uint64_t sample = 0; sample < 100; ++sample) {
      if (!make_program(ops, height, width, {1, 2, sample, 0}, program)) return ~0U;
      highest = std::max(highest, program.pass_count);
    }
    return highest;
  };
  checks.expect(passes({}, 480, 640) == 1, "nothing takes one pass");
  checks.expect(passes({crop, flip, jitter, gray}, 480, 640) == 1, "training takes one pass");
  checks.expect(passes({flip, crop, jitter}, 480, 640) == 1, "a flip before takes one pass");
  checks.expect(passes({resize, center}, 480, 640) == 1, "evaluation takes one pass");
  checks.expect(passes({pad, part, flip}, 32, 32) == 1, "small images take one pass");
  checks.expect(passes({jitter, crop}, 480, 640) == 2, "colors before a crop take two passes");
}

void check_refusals(Checks& checks) {
  const double nan = std::nan("");
  const Op wrong[] = {{OpKind::resize, {1, 0, 5, 2, 1}},
                      {OpKind::resize, {2, 5, 5, 2, 1}},
                      {OpKind::resize, {1, 5.5, 5, 2, 1}},
                      {OpKind::resize, {1, 5, 5, 4, 1}},
                      {OpKind::center_crop, {65536, 5}},
                      {OpKind::center_crop, {nan, 5}},
                      {OpKind::random_crop, {5, 5, 0.5, 0, 0}},
                      {OpKind::random_crop, {5, 5, 0, nan, 0}},
                      {OpKind::random_crop, {5, 5, 0, 0, 3}},
                      {OpKind::pad, {-1, 0, 0, 0, 0, 0}},
                      {OpKind::horizontal_flip, {1.01}},
                      {OpKind::vertical_flip, {-0.01}},
                      {OpKind::grayscale, {0.5, 1}},
                      {OpKind::grayscale, {1, 2}},
                      {OpKind::color_jitter, {1.4, 0.6, 1, 1, 1, 1, 0, 0}},
                      {OpKind::color_jitter, {1, 1, 1, 1, 1, 1, -0.6, 0}},
                      {OpKind::random_resized_crop, {5, 5, 0, 1, 1, 1, 2, 1}},
                      {OpKind::random_resized_crop, {5, 5, 0.1, 1, 0, 1, 2, 1}},
                      {OpKind::affine, {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, pack_fill({})}},
                      {OpKind::affine, {0, 0, 0, 2, 0, 0, 1, 1, 0, 0, 0, 0, 0, pack_fill({})}},
                      {OpKind::affine, {0, 0, 0, 0, 0, 0, 1, 1, 0, 90, 0, 0, 0, pack_fill({})}},
                      {OpKind::affine, {0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, pack_fill({})}},
                      {OpKind::affine, {0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 64, pack_fill({})}},
                      {OpKind::affine, {0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, nan, pack_fill({})}},
                      {OpKind::affine, {0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, nan}},
                      {OpKind::affine, {0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 32, pack_fill({}), nan, 0}},
                      {OpKind::affine_level, {7, 0, 0, 1, 0, 1, 0, 0, 1, 0, pack_fill({})}},
                      {OpKind::affine_level, {0, 3, 0, 1, 0, 1, 0, 0, 1, 0, pack_fill({})}},
                      {OpKind::affine_level, {0, 0, 0, nan, 0, 1, 0, 0, 1, 0, pack_fill({})}},
                      {OpKind::affine_level, {0, 0, 0, 1, 0, 1, 2, 0, 1, 0, pack_fill({})}},
                      {OpKind::perspective, {0.5, 1.1, 0, pack_fill({})}},
                      {OpKind::perspective, {0.5, 0.5, 4, pack_fill({})}},
                      {OpKind::scale_jitter, {5, 5, 0, 1, 2, 1}},
                      {OpKind::shortest_size, {0, 2, 1, 13}},
                      {OpKind::shortest_size, {0, 2, 1, 2, 5, 0}},
                      {OpKind::letterbox, {5, 5, 2, 0, 0, 2, 1}},
                      {OpKind::zoom_out, {0.5, 0.9, 2, 0}},
                      {static_cast<OpKind>(255), {}}};
  for (const Op& op : wrong)
    checks.expect(check_ops(std::span(&op, 1)).code == Code::bad_argument,
                  "wrong parameters of operation " + std::to_string(static_cast<int>(op.kind)));
  const Op flip{OpKind::horizontal_flip, {0.5}}, gray{OpKind::grayscale, {1, 1}}, branch{OpKind::branch, {1, 1}};
  const std::vector<std::vector<Op>> nested = {
      {{OpKind::apply, {0.5, 2}}, flip},                           // beyond the end
      {{OpKind::apply, {0.5, 1}}, {OpKind::apply, {1, 1}}, flip},  // beyond the parent
      {{OpKind::apply, {0.5, -1}}, flip},                          // no length
      {{OpKind::apply, {0.5, 0.5}}, flip},                         // no length
      {{OpKind::apply, {1.5, 1}}, flip},                           // no probability
      {{OpKind::apply, {0.5, 1}}, gray},                           // channels would be random
      {{OpKind::choice, {2}}, branch, gray},                       // channels would be random
      {{OpKind::choice, {1}}, flip},                               // not a branch
      {{OpKind::order, {3}}, branch, flip, flip},                  // not a branch
      {{OpKind::choice, {0}}},                                     // no branch
      {{OpKind::order, {0}}},                                      // no branch
      {{OpKind::choice, {1}}, {OpKind::branch, {0, 0}}},           // no weight
      {{OpKind::choice, {1}}, {OpKind::branch, {-1, 0}}},          // a negative weight
      {{OpKind::branch, {1, 0}}},                                  // alone
      {{OpKind::apply, {1, 1}}, {OpKind::branch, {1, 0}}},         // of no choice
  };
  for (const auto& ops : nested)
    checks.expect(check_ops(ops).code == Code::bad_argument, "nesting " + std::to_string(&ops - nested.data()));
  std::vector<Op> deep;
  for (int k = 8; k > 0; --k) deep.push_back({OpKind::apply, {1, static_cast<double>(k)}});
  deep.push_back(flip);
  checks.expect(static_cast<bool>(check_ops(deep)), "8 levels");
  deep.insert(deep.begin(), {OpKind::apply, {1, 9}});
  checks.expect(!check_ops(deep), "9 levels");

  const std::vector<Op> many(kMaxOps + 1, Op{OpKind::horizontal_flip, {0.5}});
  checks.expect(!check_ops(many) && check_ops(std::span(many).first(kMaxOps)), "one operation too many");

  Program program;
  checks.expect(!make_program({}, 0, 5, {}, program) && !make_program({}, 5, 1U << 24, {}, program), "sizes");
  std::vector<Op> alternating;
  for (int k = 0; k < 16; ++k) {
    alternating.push_back({OpKind::pad, {1, 1, 1, 1, 0, 0}});
    alternating.push_back({OpKind::grayscale, {1, 3}});
  }
  checks.expect(static_cast<bool>(make_program(alternating, 5, 5, {}, program)) && program.pass_count == kMaxPasses,
                "16 passes");
  alternating.back() = {OpKind::pad, {1, 1, 1, 1, 1, 0}};
  alternating[30] = {OpKind::pad, {1, 1, 1, 1, 2, 0}};
  checks.expect(make_program(alternating, 5, 5, {}, program).code == Code::bad_argument, "17 passes");
}

void check_digest(Checks& checks) {
  std::uint64_t digest = 0xCBF29CE484222325U;
  const auto add = [&digest](auto... values) {
    ((digest = (digest ^ static_cast<std::uint64_t>(values)) * 0x100000001B3U), ...);
  };
  Random random(2026);
  for (int round = 0; round < 20000; ++round) {
    std::vector<Op> ops(1 + random.below(6));
    for (Op& op : ops) op = random_op(random);
    const std::uint32_t height = 1 + random.below(3000), width = 1 + random.below(3000);
    Program program;
    if (!make_program(ops, height, width, random_key(random), program)) continue;
    for (std::uint32_t k = 0; k < program.pass_count; ++k) {
      const Pass& pass = program.passes[k];
      for (const Axis& a : {pass.rows, pass.columns})
        add(a.input, a.start, a.size, a.resized, a.offset, a.canvas, a.flipped);
      for (std::uint32_t c = 0; c < pass.color_count; ++c)
        add(pass.colors[c].kind, std::bit_cast<std::uint64_t>(pass.colors[c].value));
    }
  }
  char found[80];
  std::snprintf(found, sizeof found, "programs have the digest 0x%016llX", static_cast<unsigned long long>(digest));
  checks.expect(digest == kDigest, found);
}

int run(int argc, char** argv) {
  Random random(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1);
  Checks checks;
  check_draws(checks);
  check_functions(random, checks);
  check_composition(random, checks);
  check_passes(checks);
  check_refusals(checks);
  check_digest(checks);
  return checks.report();
}

}  // namespace
}  // namespace headrace::tests

int main(int argc, char** argv) { return headrace::tests::run(argc, argv); }
