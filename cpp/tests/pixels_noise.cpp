// SPDX-License-Identifier: Apache-2.0
// Streams of random words against the generator of draws, and normal numbers of all targets against one another.
#include <cmath>

#include "headrace/transform.h"
#include "kernels.h"
#include "pixels.h"

namespace headrace::tests {

void check_noise(std::uint64_t seed, unsigned cases, Checks& checks, Digest& digest) {
  for (unsigned k = 0; k < cases; ++k) {
    Random random(seed * 1000003 + k);
    const std::uint32_t key0 = random.below(1U << 31), key1 = random.below(1U << 31);
    const std::uint64_t first = (std::uint64_t{random.below(3)} << 32) + random.below(1000);
    const std::size_t blocks = 1 + random.below(70);
    std::vector<float> expected;
    for (const char* const target : targets()) {
      use_target(target);
      std::vector<std::uint32_t> words(4 * blocks + 1, 0xABCDEF01U);
      kernels().pixels.random_words(key0, key1, first, blocks, words.data());
      bool same = words.back() == 0xABCDEF01U;
      for (std::size_t b = 0; b < blocks; ++b) {
        // The stream's counter, by way of a draw: its sample has 48 bits.
        const DrawKey key{key0 | std::uint64_t{key1} << 32, 0, first + b, 0};
        const auto block = draw(key, 0, 0);
        for (std::size_t i = 0; i < 4; ++i) same = same && words[4 * b + i] == block[i];
      }
      checks.expect(same, std::string("a stream of ") + target + " is not Philox");
      std::vector<float> numbers(4 * blocks);
      kernels().pixels.normal_numbers(words.data(), numbers.size(), numbers.data());
      if (expected.empty()) expected = numbers;
      checks.expect(std::memcmp(expected.data(), numbers.data(), 4 * numbers.size()) == 0,
                    std::string("normal numbers of ") + target + " differ from the scalar ones");
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const double x = (static_cast<double>(static_cast<std::int32_t>(words[i]) >> 8) + 0.5) / 8388608;
        const double back = std::erf(static_cast<double>(numbers[i]) / std::sqrt(2.0));
        checks.expect(std::abs(back - x) < 1e-6, "a normal number has the probability of its word");
        if (target == targets()[0]) digest.add(static_cast<std::uint8_t>(numbers[i] * 64));
      }
    }
  }
}

}  // namespace headrace::tests
