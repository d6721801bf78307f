// SPDX-License-Identifier: Apache-2.0
// CRC-32C. The hardware instruction takes 3 cycles to answer but one can start each cycle: three neighbouring stretches are
// summed side by side, and the first two are then carried over the bytes that followed them with a table.
#include <array>

#include "bytes.h"
#include "headrace/codec.h"

#if defined(HEADRACE_X86)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace headrace {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Castagnoli, reflected
constexpr std::size_t kAhead = 2048;               // bytes that are asked for before they are needed
constexpr std::size_t kStretch = 256;              // bytes that each of the three side-by-side sums covers

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Table make_slices() {
  Table t{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) ? (c >> 1) ^ kPolynomial : c >> 1;
    t[0][i] = c;
  }
  for (std::uint32_t i = 0; i < 256; ++i)
    for (std::size_t s = 1; s < 8; ++s) t[s][i] = (t[s - 1][i] >> 8) ^ t[0][t[s - 1][i] & 0xFF];
  return t;
}
constexpr Table kSlices = make_slices();

std::uint32_t update_portable(std::uint32_t crc, const std::uint8_t* p, std::size_t n) noexcept {
  for (; n >= 8; p += 8, n -= 8) {
    const std::uint64_t w = load_le<std::uint64_t>(p) ^ crc;
    crc = 0;
    for (std::size_t s = 0; s < 8; ++s) crc ^= kSlices[7 - s][(w >> (8 * s)) & 0xFF];
  }
  for (; n > 0; --n) crc = (crc >> 8) ^ kSlices[0][(crc ^ *p++) & 0xFF];
  return crc;
}

#if defined(HEADRACE_X86)

// kCarry[i][b]: the sum that byte b at position i of a CRC register becomes after kStretch zero bytes.
constexpr std::array<std::array<std::uint32_t, 256>, 4> make_carry() {
  std::array<std::array<std::uint32_t, 256>, 4> t{};
  std::array<std::uint32_t, 32> bit{};
  for (std::size_t k = 0; k < 32; ++k) {
    std::uint32_t c = std::uint32_t{1} << k;
    for (std::size_t n = 0; n < kStretch; ++n) c = (c >> 8) ^ kSlices[0][c & 0xFF];
    bit[k] = c;
  }
  for (std::size_t i = 0; i < 4; ++i)
    for (std::uint32_t b = 0; b < 256; ++b)
      for (std::size_t k = 0; k < 8; ++k)
        if ((b >> k) & 1) t[i][b] ^= bit[8 * i + k];
  return t;
}
constexpr auto kCarry = make_carry();

std::uint32_t carry(std::uint32_t c) noexcept {
  return kCarry[0][c & 0xFF] ^ kCarry[1][(c >> 8) & 0xFF] ^ kCarry[2][(c >> 16) & 0xFF] ^ kCarry[3][c >> 24];
}

__attribute__((target("sse4.2"))) std::uint32_t update_sse42(std::uint32_t crc, const std::uint8_t* p,
                                                             std::size_t n) noexcept {
  while (n >= 3 * kStretch) {
    std::uint64_t a = crc, b = 0, c = 0;
    // The sum is the first to touch a file's bytes: ask for the ones after these.
    for (std::size_t i = 0; i < 3 * kStretch; i += 64) __builtin_prefetch(p + kAhead + i);
    for (std::size_t i = 0; i < kStretch; i += 8) {
      a = _mm_crc32_u64(a, load_le<std::uint64_t>(p + i));
      b = _mm_crc32_u64(b, load_le<std::uint64_t>(p + kStretch + i));
      c = _mm_crc32_u64(c, load_le<std::uint64_t>(p + 2 * kStretch + i));
    }
    crc = carry(carry(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b)) ^ static_cast<std::uint32_t>(c);
    p += 3 * kStretch;
    n -= 3 * kStretch;
  }
  std::uint64_t a = crc;
  for (; n >= 8; p += 8, n -= 8) a = _mm_crc32_u64(a, load_le<std::uint64_t>(p));
  crc = static_cast<std::uint32_t>(a);
  for (; n > 0; --n) crc = _mm_crc32_u8(crc, *p++);
  return crc;
}

bool has_hardware() noexcept { return __builtin_cpu_supports("sse4.2"); }
std::uint32_t update_hardware(std::uint32_t crc, const std::uint8_t* p, std::size_t n) noexcept {
  return update_sse42(crc, p, n);
}

#elif defined(__aarch64__) && defined(__linux__)

bool has_hardware() noexcept { return (getauxval(AT_HWCAP) & (1UL << 7)) != 0; }  // HWCAP_CRC32

__attribute__((target("arch=armv8-a+crc"))) std::uint32_t update_hardware(std::uint32_t crc, const std::uint8_t* p,
                                                                          std::size_t n) noexcept {
  for (; n >= 8; p += 8, n -= 8) crc = __builtin_aarch64_crc32cx(crc, load_le<std::uint64_t>(p));
  for (; n > 0; --n) crc = __builtin_aarch64_crc32cb(crc, *p++);
  return crc;
}

#else

bool has_hardware() noexcept { return false; }
std::uint32_t update_hardware(std::uint32_t crc, const std::uint8_t* p, std::size_t n) noexcept {
  return update_portable(crc, p, n);
}

#endif

}  // namespace

std::uint32_t crc32c(Bytes bytes, std::uint32_t seed) noexcept {
  static const bool hardware = has_hardware();
  const std::uint32_t crc = ~seed;
  return ~(hardware ? update_hardware(crc, bytes.data(), bytes.size())
                    : update_portable(crc, bytes.data(), bytes.size()));
}

}  // namespace headrace
