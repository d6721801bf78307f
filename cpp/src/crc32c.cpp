// SPDX-License-Identifier: Apache-2.0
// CRC-32C. The hardware instruction takes 3 cycles to answer but one can start each cycle: three neighbouring stretches
// are summed side by side, and the first two are then carried over the bytes that followed them with a table.
#include <array>

#include "bytes.h"
#include "headrace/codec.h"
#include "kernels.h"

#if defined(HEADRACE_X86)
#include <immintrin.h>

#include "platform/cpu.h"
#elif defined(__aarch64__)
#include <arm_acle.h>

#include "platform/platform.h"
#endif

namespace headrace {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Castagnoli, reflected

using Update = std::uint32_t (*)(std::uint32_t, const std::uint8_t*, std::size_t) noexcept;
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

constexpr std::size_t kAhead = 2048;   // bytes that are asked for before they are needed
constexpr std::size_t kStretch = 256;  // bytes that each of the three side-by-side sums covers

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

__attribute__((target("sse4.2,crc32"))) std::uint32_t update_sse42(std::uint32_t crc, const std::uint8_t* p,
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

// x^e modulo the polynomial, as the upper half of a bit-reflected 64-bit factor. A carry-less product of reflected
// numbers comes out multiplied by x, hence e - 1.
constexpr std::uint64_t power(unsigned e) {
  std::uint32_t c = 0x80000000;  // x^0, reflected
  for (unsigned i = 0; i < e - 1; ++i) c = (c & 1) ? (c >> 1) ^ kPolynomial : c >> 1;
  return std::uint64_t{c} << 32;
}

// 128 bits carried over `Bits` further bits of the message: the first 64 of them lie 64 higher.
template <unsigned Bits>
__attribute__((target("avx512f,vpclmulqdq"))) inline __m512i fold(__m512i a, __m512i next) noexcept {
  constexpr long long near = static_cast<long long>(power(Bits)), far = static_cast<long long>(power(Bits + 64));
  const __m512i k = _mm512_set_epi64(near, far, near, far, near, far, near, far);
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00), _mm512_clmulepi64_epi128(a, k, 0x11), next,
                                   0x96);
}

// Folds 256 bytes a turn by carry-less products; what is left of them is a short message with the same sum.
__attribute__((target("avx512f,avx512vl,vpclmulqdq,sse4.2,crc32"))) std::uint32_t update_vpclmul(
    std::uint32_t crc, const std::uint8_t* p, std::size_t n) noexcept {
  if (n < 512) return update_sse42(crc, p, n);
  __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  __m512i b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
  for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
    a = fold<2048>(a, _mm512_loadu_si512(p));
    b = fold<2048>(b, _mm512_loadu_si512(p + 64));
    c = fold<2048>(c, _mm512_loadu_si512(p + 128));
    d = fold<2048>(d, _mm512_loadu_si512(p + 192));
  }
  alignas(64) std::uint8_t rest[64];
  _mm512_store_si512(rest, fold<512>(fold<512>(fold<512>(a, b), c), d));
  return update_sse42(update_sse42(0, rest, 64), p, n);
}

Update with_instruction() noexcept { return platform::cpu_features().sse42 ? update_sse42 : update_portable; }

Update with_products() noexcept {
  const platform::CpuFeatures& cpu = platform::cpu_features();
  return cpu.sse42 && cpu.vpclmul ? update_vpclmul : with_instruction();
}

#elif defined(__aarch64__)

__attribute__((target("+crc"))) std::uint32_t update_arm(std::uint32_t crc, const std::uint8_t* p,
                                                         std::size_t n) noexcept {
  for (; n >= 8; p += 8, n -= 8) crc = __crc32cd(crc, load_le<std::uint64_t>(p));
  for (; n > 0; --n) crc = __crc32cb(crc, *p++);
  return crc;
}

Update with_instruction() noexcept { return platform::has_arm_crc32() ? update_arm : update_portable; }
Update with_products() noexcept { return with_instruction(); }

#else

Update with_instruction() noexcept { return update_portable; }
Update with_products() noexcept { return update_portable; }

#endif

}  // namespace

std::uint32_t crc32c(Bytes bytes, std::uint32_t seed) noexcept {
  static const Update updates[] = {update_portable, with_instruction(), with_products()};
  return ~updates[kernels().checksums](~seed, bytes.data(), bytes.size());
}

}  // namespace headrace
