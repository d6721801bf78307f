// SPDX-License-Identifier: Apache-2.0
// The vector operations that the kernels are written in, as plain loops over 32 lanes. Included inside a target's
// namespace. Compilers turn most of these loops into whatever vectors the baseline of the machine has.

template <class S>
struct Lanes {
  S v[32];
};
using U8 = Lanes<std::uint8_t>;
using U16 = Lanes<std::uint16_t>;

template <class S, class F>
inline Lanes<S> each(F f) {
  Lanes<S> r;
  for (int i = 0; i < 32; ++i) r.v[i] = static_cast<S>(f(i));
  return r;
}

template <class S>
inline Lanes<S> load(const S* p) {
  Lanes<S> r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
template <class S>
inline void store(S* p, const Lanes<S>& a) {
  std::memcpy(p, a.v, sizeof a.v);
}
template <class S>
inline Lanes<S> set_all(S x) {
  return each<S>([&](int) { return x; });
}
template <class S>
inline Lanes<S> add(const Lanes<S>& a, const Lanes<S>& b) {
  return each<S>([&](int i) { return a.v[i] + b.v[i]; });
}
template <class S>
inline Lanes<S> sub(const Lanes<S>& a, const Lanes<S>& b) {
  return each<S>([&](int i) { return a.v[i] - b.v[i]; });
}
template <class S>
inline Lanes<S> min(const Lanes<S>& a, const Lanes<S>& b) {
  return each<S>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
template <class S>
inline Lanes<S> max(const Lanes<S>& a, const Lanes<S>& b) {
  return each<S>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
template <class S>
inline Lanes<S> avg(const Lanes<S>& a, const Lanes<S>& b) {
  return each<S>([&](int i) { return (unsigned{a.v[i]} + b.v[i] + 1) >> 1; });
}
template <class S>
inline Lanes<S> bit_and(const Lanes<S>& a, const Lanes<S>& b) {
  return each<S>([&](int i) { return a.v[i] & b.v[i]; });
}
template <class S>
inline Lanes<S> bit_xor(const Lanes<S>& a, const Lanes<S>& b) {
  return each<S>([&](int i) { return a.v[i] ^ b.v[i]; });
}
template <class S>
inline Lanes<S> equal(const Lanes<S>& a, const Lanes<S>& b) {
  return each<S>([&](int i) { return a.v[i] == b.v[i] ? -1 : 0; });
}
template <class S>
inline Lanes<S> select(const Lanes<S>& mask, const Lanes<S>& yes, const Lanes<S>& no) {
  return each<S>([&](int i) { return (yes.v[i] & mask.v[i]) | (no.v[i] & ~mask.v[i]); });
}
template <class S>
inline Lanes<S> shift_left(const Lanes<S>& a, unsigned n) {
  return each<S>([&](int i) { return unsigned{a.v[i]} << n; });
}
template <class S>
inline Lanes<S> shift_right(const Lanes<S>& a, unsigned n) {
  return each<S>([&](int i) { return unsigned{a.v[i]} >> n; });
}
// -1 for odd lanes, 0 for even ones.
template <class S>
inline Lanes<S> odd_mask(const Lanes<S>& a) {
  return each<S>([&](int i) { return 0U - (a.v[i] & 1U); });
}
// Lane r gets lane r - 1; lane 0 gets 0.
template <class S>
inline Lanes<S> from_lane_above(const Lanes<S>& a) {
  Lanes<S> r;
  r.v[0] = 0;
  std::memcpy(r.v + 1, a.v, 31 * sizeof(S));
  return r;
}
inline bool any(const U8& a) {
  unsigned all = 0;
  for (int i = 0; i < 32; ++i) all |= a.v[i];
  return all != 0;
}
inline std::uint32_t sum_lanes(const U8& a) {
  std::uint32_t sum = 0;
  for (int i = 0; i < 32; ++i) sum += a.v[i];
  return sum;
}
inline U8 lookup(const std::uint8_t* table, const U8& index) {
  return each<std::uint8_t>([&](int i) { return table[index.v[i] & 15]; });
}
inline void zip(const U8& a, const U8& b, U8& first, U8& second) {
  U8 x, y;
  for (int i = 0; i < 16; ++i) {
    x.v[2 * i] = a.v[i];
    x.v[2 * i + 1] = b.v[i];
    y.v[2 * i] = a.v[i + 16];
    y.v[2 * i + 1] = b.v[i + 16];
  }
  first = x;
  second = y;
}
inline U16 widen(const U8& a) {
  return each<std::uint16_t>([&](int i) { return a.v[i]; });
}
inline U16 widen_signed(const U8& a) {
  return each<std::uint16_t>([&](int i) { return static_cast<std::int8_t>(a.v[i]); });
}

// Each of n samples becomes the sum of all up to it. May also change the samples up to the next multiple of 16.
template <class S>
inline void sum_along(S* p, std::uint32_t n) {
  for (std::uint32_t i = 1; i < n; ++i) p[i] = static_cast<S>(p[i] + p[i - 1]);
}

// Four rows of eight samples, `pitch` samples apart.
template <class S>
inline void store_rows(S* p, std::ptrdiff_t pitch, const Lanes<S>& a) {
  for (int y = 0; y < 4; ++y) std::memcpy(p + y * pitch, a.v + 8 * y, 8 * sizeof(S));
}

// Sixteen steps of the wave: step k has in lane r the sample of row r at column k - skew * r, relative to `p`.
template <class S>
inline void gather_steps(const S* p, std::ptrdiff_t row, Lanes<S>* steps) {
  for (int r = 0; r < 32; ++r)
    for (int k = 0; k < 16; ++k) steps[k].v[r] = p[r * row + k];
}
template <class S>
inline void scatter_steps(const Lanes<S>* steps, S* p, std::ptrdiff_t row) {
  for (int r = 0; r < 32; ++r)
    for (int k = 0; k < 16; ++k) p[r * row + k] = steps[k].v[r];
}

// Eight samples of `bits` <= 8 bits each, one a byte.
inline std::uint64_t spread(const std::uint8_t* from, unsigned bits) {
  const std::uint64_t word = load_le<std::uint64_t>(from);
  std::uint64_t r = 0;
  for (unsigned i = 0; i < 8; ++i) r |= ((word >> (i * bits)) & kOnes.low_bits[bits]) << (8 * i);
  return r;
}
// Thirty-two samples of `bits` <= 8 bits. Reads up to 16 bytes past their end.
inline U8 unpack(const std::uint8_t* from, unsigned bits) {
  U8 r;
  for (unsigned g = 0; g < 4; ++g) store_le(r.v + 8 * g, spread(from + g * bits, bits));
  return r;
}
inline std::int32_t sign_extend(std::uint32_t x, unsigned bits) {
  const std::uint32_t sign = bits == 0 ? 0 : 1U << (bits - 1);
  return static_cast<std::int32_t>((x ^ sign) - sign);
}
// Four groups of 4x4 signed samples, side by side: four rows of sixteen. `widths` has a byte for each group. Returns
// the end of the groups.
inline const std::uint8_t* unpack_groups(const std::uint8_t* from, std::uint32_t widths, std::uint8_t* to,
                                         std::ptrdiff_t pitch) {
  for (int g = 0; g < 4; ++g, widths >>= 8) {
    const unsigned bits = widths & 0xFF;
    std::uint8_t s[16];
    store_le(s, spread(from, bits));
    store_le(s + 8, spread(from + bits, bits));
    for (int i = 0; i < 16; ++i)
      to[(i / 4) * pitch + 4 * g + i % 4] = static_cast<std::uint8_t>(sign_extend(s[i], bits));
    from += 2 * bits;
  }
  return from;
}
inline void unpack_group(const std::uint8_t* from, unsigned bits, std::uint16_t* to, std::ptrdiff_t pitch) {
  std::uint8_t low[16], s[16];
  const unsigned top = bits > 8 ? bits - 8 : bits;
  if (bits > 8) {
    std::memcpy(low, from, 16);
    from += 16;
  }
  store_le(s, spread(from, top));
  store_le(s + 8, spread(from + top, top));
  for (int i = 0; i < 16; ++i) {
    const std::int32_t x = sign_extend(s[i], top);
    to[(i / 4) * pitch + i % 4] = static_cast<std::uint16_t>(bits > 8 ? x * 256 + low[i] : x);
  }
}

// The positions, modulo 256, of the one bits of n bytes. Writes up to 8 bytes past the last.
HR_STAGE void positions(const std::uint8_t* from, std::size_t n, std::uint8_t* to) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t base = (i % 32) * 0x0808080808080808U;
    store_le(to, load_le<std::uint64_t>(kOnes.position[from[i]]) | base);
    to += kOnes.count[from[i]];
  }
}

// The next extra[lane] <= 4 bits for each lane from a bit string; advances `at`. Reads up to 8 bytes past the last bit.
inline U8 take_bits(const U8& extra, const std::uint8_t* bits, std::uint64_t& at) {
  U8 r;
  for (int g = 0; g < 4; ++g) {
    std::uint64_t word = load_le<std::uint64_t>(bits + (at >> 3)) >> (at & 7);
    for (int i = 8 * g; i < 8 * g + 8; ++i) {
      r.v[i] = static_cast<std::uint8_t>(word & kOnes.low_bits[extra.v[i]]);
      word >>= extra.v[i];
      at += extra.v[i];
    }
  }
  return r;
}

// The same where no lane takes more than one bit.
inline constexpr bool kTakesFlagsCheaply = false;
inline U8 take_flags(const U8& extra, const std::uint8_t* bits, std::uint64_t& at) {
  return take_bits(extra, bits, at);
}

// Thirty-two pixels of three or four interleaved bytes.
inline void store_interleaved3(std::uint8_t* p, const U8& r, const U8& g, const U8& b) {
  for (int i = 0; i < 32; ++i) {
    p[3 * i] = r.v[i];
    p[3 * i + 1] = g.v[i];
    p[3 * i + 2] = b.v[i];
  }
}
inline void store_interleaved4(std::uint8_t* p, const U8& r, const U8& g, const U8& b, const U8& a) {
  for (int i = 0; i < 32; ++i) {
    p[4 * i] = r.v[i];
    p[4 * i + 1] = g.v[i];
    p[4 * i + 2] = b.v[i];
    p[4 * i + 3] = a.v[i];
  }
}
