// SPDX-License-Identifier: Apache-2.0
// Unaligned little-endian loads and stores.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

static_assert(std::endian::native == std::endian::little, "the core is written for little-endian machines");

namespace headrace {

template <class T>
inline T load_le(const void* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
inline void store_le(void* to, T value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

inline constexpr std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) noexcept { return (a + b - 1) / b; }

}  // namespace headrace
