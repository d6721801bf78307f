// SPDX-License-Identifier: Apache-2.0
// Vector operations that only the encoder needs, as plain loops. Included inside a target's namespace.

template <class S>
inline Lanes<S> bit_or(const Lanes<S>& a, const Lanes<S>& b) {
  return each<S>([&](int i) { return a.v[i] | b.v[i]; });
}
template <class S>
inline Lanes<S> do_zigzag(const Lanes<S>& r) {
  return each<S>([&](int i) { return (unsigned{r.v[i]} << 1) ^ (0U - (unsigned{r.v[i]} >> (8 * sizeof(S) - 1))); });
}
inline std::uint32_t sum_lanes(const U8& a, const U8& b) { return sum_lanes(a) + sum_lanes(b); }
// Sums of neighbours, limited to 255, in any order.
inline U8 pair_sums(const U8& a, const U8& b) {
  return each<std::uint8_t>([&](int i) {
    const std::uint8_t* p = i < 16 ? a.v + 2 * i : b.v + 2 * (i - 16);
    const unsigned sum = unsigned{p[0]} + p[1];
    return sum < 255 ? sum : 255;
  });
}

// Sums of absolute residuals of four blocks of eight columns. Words above 32767 count as 32767.
template <class S>
struct BlockSums {
  std::uint32_t sum[4] = {0, 0, 0, 0};

  void add_absolute(const Lanes<S>& r) {
    for (int i = 0; i < 32; ++i) {
      const S negative = static_cast<S>(0U - r.v[i]);
      const S a = r.v[i] < negative ? r.v[i] : negative;
      sum[i / 8] += a < 32767 ? a : 32767;
    }
  }
  void get(std::uint32_t* four) const { std::memcpy(four, sum, sizeof sum); }
};

// Thirty-two pixels of three bytes, apart.
inline void load_interleaved3(const std::uint8_t* p, U8& r, U8& g, U8& b) {
  for (int i = 0; i < 32; ++i) {
    r.v[i] = p[3 * i];
    g.v[i] = p[3 * i + 1];
    b.v[i] = p[3 * i + 2];
  }
}
