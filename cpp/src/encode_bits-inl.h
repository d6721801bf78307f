// SPDX-License-Identifier: Apache-2.0
// Widths, classes and the bit strings of packed and coded tiles. Included inside a target's namespace.

// Appends numbers to a unary section in a buffer of the caller's, which has eight bytes of slack. Invariant: `word_`
// holds the `fill_` <= 64 bits that are not stored yet.
class UnaryWriter {
 public:
  explicit UnaryWriter(std::uint8_t* to) : begin_(to), to_(to) {}

  void put(std::uint32_t q) {
    fill_ += q;
    while (fill_ > 63) {
      store_le(to_, word_);
      to_ += 8;
      word_ = 0;
      fill_ -= 64;
    }
    word_ |= std::uint64_t{1} << fill_;
    ++fill_;
  }

  // Eight numbers at once, one a byte. The chain from one number to the next is a sum of bytes, done for all by one
  // product.
  void put8(std::uint64_t q8) {
    const std::uint64_t sums = q8 * 0x0101010101010101U;  // exact while no number exceeds 15
    const unsigned total = static_cast<unsigned>(sums >> 56) + 8;
    if ((q8 & 0xF0F0F0F0F0F0F0F0U) != 0 || total > 64) {
      for (int i = 0; i < 8; ++i, q8 >>= 8) put(q8 & 0xFF);
      return;
    }
    const std::uint64_t at = sums + 0x0706050403020100U;
    std::uint64_t ones = 0;
    for (int i = 0; i < 8; ++i) ones |= std::uint64_t{1} << ((at >> (8 * i)) & 63);
    if (fill_ == 64) {
      store_le(to_, word_);
      to_ += 8;
      word_ = 0;
      fill_ = 0;
    }
    word_ |= ones << fill_;
    if (fill_ + total > 64) {
      store_le(to_, word_);
      to_ += 8;
      word_ = ones >> (64 - fill_);
      fill_ += total - 64;
    } else {
      fill_ += total;
    }
  }

  // Stores what is left; returns the length in bytes.
  std::size_t finish() {
    store_le(to_, word_);
    return static_cast<std::size_t>(to_ - begin_) + (fill_ + 7) / 8;
  }

 private:
  std::uint8_t* begin_;
  std::uint8_t* to_;
  std::uint64_t word_ = 0;
  std::uint32_t fill_ = 0;
};

// Appends a few bits at a time, likewise. Invariant: `fill_` < 64.
class BitWriter {
 public:
  explicit BitWriter(std::uint8_t* to) : begin_(to), to_(to) {}

  // `n` <= 32 bits of `bits`, which has no others set.
  void put(std::uint32_t bits, unsigned n) {
    word_ |= std::uint64_t{bits} << fill_;
    fill_ += n;
    if (fill_ >= 64) {
      store_le(to_, word_);
      to_ += 8;
      fill_ -= 64;
      word_ = std::uint64_t{bits} >> (n - fill_);
    }
  }

  std::size_t finish() {
    store_le(to_, word_);
    return static_cast<std::size_t>(to_ - begin_) + (fill_ + 7) / 8;
  }

 private:
  std::uint8_t* begin_;
  std::uint8_t* to_;
  std::uint64_t word_ = 0;
  unsigned fill_ = 0;
};

inline std::uint64_t low_bits_mask(unsigned bits) { return kOnes.low_bits[bits] * 0x0101010101010101U; }

// The low `bits` <= 8 bits of eight bytes, back to back.
inline std::uint64_t squeeze(std::uint64_t x, unsigned bits) {
#if defined(__BMI2__)
  return _pext_u64(x, low_bits_mask(bits));
#else
  x &= low_bits_mask(bits);
  x = (x & 0x00FF00FF00FF00FFU) | ((x >> 8) & 0x00FF00FF00FF00FFU) << bits;
  x = (x & 0x0000FFFF0000FFFFU) | ((x >> 16) & 0x0000FFFF0000FFFFU) << (2 * bits);
  return (x & 0x00000000FFFFFFFFU) | (x >> 32) << (4 * bits);
#endif
}

inline unsigned bit_length(std::uint32_t x) { return x == 0 ? 0 : 32U - static_cast<unsigned>(__builtin_clz(x)); }

// The least width of each 4x4 group of residuals: the bit length of its largest zigzag number.
template <class S>
HR_STAGE void group_widths(const S* residuals, std::uint32_t groups_x, std::uint32_t groups_y, std::uint8_t* b) {
  for (std::uint32_t y = 0; y < groups_y; ++y, residuals += 4 * kEncodePitch, b += groups_x) {
    for (std::uint32_t x = 0; x < 4 * groups_x; x += 32) {
      Vector<S> all = set_all(S{0});
      for (int r = 0; r < 4; ++r) all = bit_or(all, do_zigzag(load(residuals + r * kEncodePitch + x)));
      S z[32];
      store(z, all);
      const std::uint32_t n = groups_x - x / 4 < 8 ? groups_x - x / 4 : 8;
      for (std::uint32_t g = 0; g < n; ++g) {
        using Four = std::conditional_t<sizeof(S) == 1, std::uint32_t, std::uint64_t>;
        Four four = load_le<Four>(z + 4 * g);
        four |= four >> (16 * sizeof(S));
        four |= four >> (8 * sizeof(S));
        b[x / 4 + g] = static_cast<std::uint8_t>(bit_length(static_cast<S>(four)));
      }
    }
  }
}

template <class S>
HR_STAGE std::uint8_t* pack_groups(const S* residuals, const std::uint8_t* b, std::uint32_t groups_x,
                                   std::uint32_t groups_y, std::uint8_t* to) {
  for (std::uint32_t y = 0; y < groups_y; ++y, residuals += 4 * kEncodePitch) {
    for (std::uint32_t x = 0; x < groups_x; ++x) {
      const unsigned bits = *b++;
      const S* r = residuals + 4 * x;
      if constexpr (sizeof(S) == 1) {
        const std::uint64_t first = load_le<std::uint32_t>(r) | std::uint64_t{load_le<std::uint32_t>(r + kEncodePitch)}
                                                                    << 32;
        const std::uint64_t second = load_le<std::uint32_t>(r + 2 * kEncodePitch) |
                                     std::uint64_t{load_le<std::uint32_t>(r + 3 * kEncodePitch)} << 32;
        store_le(to, squeeze(first, bits));
        store_le(to + bits, squeeze(second, bits));
        to += 2 * bits;
      } else {
        std::uint8_t low[16], high[16];
        for (int i = 0; i < 16; ++i) {
          const S v = r[(i / 4) * kEncodePitch + i % 4];
          low[i] = static_cast<std::uint8_t>(v);
          high[i] = static_cast<std::uint8_t>(v >> 8);
        }
        const unsigned top = bits > 8 ? bits - 8 : bits;
        if (bits > 8) {
          std::memcpy(to, low, 16);
          to += 16;
        }
        const std::uint8_t* part = bits > 8 ? high : low;
        store_le(to, squeeze(load_le<std::uint64_t>(part), top));
        store_le(to + top, squeeze(load_le<std::uint64_t>(part + 8), top));
        to += 2 * top;
      }
    }
  }
  return to;
}

// Bits that a value h costs in each code, for h below 16; beyond, a bit more for each step.
struct CostTable {
  std::uint8_t cost[kCodes][16];
};
constexpr CostTable make_costs() {
  CostTable t{};
  for (unsigned code = 0; code < kPairs; ++code) {
    unsigned h = 0;
    for (unsigned q = 0; h < 16; ++q) {
      const unsigned e = kCodeTables[code].extra[q];
      for (unsigned k = 0; k < 1U << e && h < 16; ++k) t.cost[code][h++] = static_cast<std::uint8_t>(q + 1 + e);
    }
  }
  for (unsigned q = 0; q < 16; ++q) t.cost[kPairs][q] = static_cast<std::uint8_t>(q + 1 + kCodeTables[kPairs].extra[q]);
  return t;
}
inline constexpr CostTable kCosts = make_costs();

// With escapes. A code spends at most three values on its first numbers more than the plain one: all h >= 15 are
// escapes.
constexpr CostTable make_escape_costs() {
  CostTable t = make_costs();
  for (unsigned code = 0; code < kPairs; ++code)
    for (unsigned h = 0; h < 16; ++h)
      if (h - static_cast<std::uint8_t>(kCodeTables[code].adjust[15]) >= kEscape && h >= kEscape)
        t.cost[code][h] = kEscape + 1 + 16;
  return t;
}
inline constexpr CostTable kEscapeCosts = make_escape_costs();

inline constexpr std::uint32_t kNever = 1U << 30;

// The bits of one block in each class.
HR_STAGE void class_costs(const std::uint8_t* z, std::uint32_t* cost) {
  constexpr auto& table = kClassTable8;
  const U8 a = load(z), b = load(z + 32), fifteen = set_all(std::uint8_t{15});
  const U8 largest = max(a, b);
  cost[0] = any(largest) ? kNever : 0;
  const U8 pairs = pair_sums(a, b);
  cost[1] = any(shift_right(pairs, 4)) ? kNever : sum_lanes(lookup(kCosts.cost[kPairs], pairs));
  unsigned shifted = 0;
  U8 h0 = a, h1 = b;
  for (std::uint32_t c = 2; c < kClasses8 - 1; ++c) {
    const BlockClass& k = table[c];
    if (k.raw_bits != shifted) {
      shifted = k.raw_bits;
      h0 = shift_right(a, shifted);
      h1 = shift_right(b, shifted);
    }
    cost[c] = 64 * shifted;
    if (k.code == kPlain) {
      cost[c] += 64 + sum_lanes(h0, h1);
    } else if (k.code == kHalf) {
      const U8 two = set_all(std::uint8_t{2});
      cost[c] += sum_lanes(max(h0, two), max(h1, two));
    } else {
      const U8 low0 = min(h0, fifteen), low1 = min(h1, fifteen);
      cost[c] += sum_lanes(add(lookup(kCosts.cost[k.code], low0), sub(h0, low0)),
                           add(lookup(kCosts.cost[k.code], low1), sub(h1, low1)));
    }
  }
  cost[kClasses8 - 1] = 64 * 8;
}

// The same for 16 bits, where a number of kEscape or more is an escape.
HR_STAGE void class_costs(const std::uint16_t* z, std::uint32_t* cost) {
  constexpr auto& table = kClassTable16;
  std::uint32_t largest = 0, pairs = 0, largest_pair = 0, total = 0;
  for (int i = 0; i < 64; i += 2) {
    const std::uint32_t sum = std::uint32_t{z[i]} + z[i + 1];
    total += sum < 8192 ? sum : 8192;
    largest = largest > z[i] ? largest : z[i];
    largest = largest > z[i + 1] ? largest : z[i + 1];
    largest_pair = largest_pair > sum ? largest_pair : sum;
    pairs += kCosts.cost[kPairs][sum & 15];
  }
  cost[0] = largest == 0 ? 0 : kNever;
  cost[1] = largest_pair < 16 ? pairs : kNever;
  for (std::uint32_t c = 2; c < kClasses16 - 1; ++c) {
    const BlockClass& k = table[c];
    const unsigned s = k.raw_bits;
    // The best s is near log2 of the mean, or a few below it where outliers make the mean.
    cost[c] = kNever;
    if (s + 5 < bit_length(total / 64) || s > bit_length(total / 64) + 1) continue;
    const std::uint8_t* costs = kEscapeCosts.cost[k.code];
    std::uint32_t sum = 64 * s;
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t h = std::uint32_t{z[i]} >> s;
      sum += costs[h < 15 ? h : 15];
    }
    cost[c] = sum;
  }
  cost[kClasses16 - 1] = 64 * 16;
}

// The cheapest class of each block of 64 values, its own number counted, written to `grid` and as numbers to `out`.
template <class S>
HR_STAGE void choose_classes(const S* z, std::uint32_t blocks_x, std::uint32_t blocks_y, std::uint8_t* grid,
                             UnaryWriter& out) {
  constexpr std::uint32_t classes = sizeof(S) == 1 ? kClasses8 : kClasses16;
  for (std::uint32_t y = 0; y < blocks_y; ++y) {
    for (std::uint32_t x = 0; x < blocks_x; ++x, ++grid) {
      std::uint32_t cost[kClasses16];
      class_costs(z, cost);
      z += 64;
      int p = kFirstClass;
      if (y > 0 && x > 0)
        p = (grid[-1] + grid[-static_cast<std::ptrdiff_t>(blocks_x)] + 1) >> 1;
      else if (x > 0)
        p = grid[-1];
      else if (y > 0)
        p = grid[-static_cast<std::ptrdiff_t>(blocks_x)];
      std::uint32_t best = 0, lowest = ~0U;
      for (std::uint32_t c = 0; c < classes; ++c) {
        const std::uint32_t total = cost[c] + zigzag8(static_cast<int>(c) - p);
        if (total < lowest) {
          lowest = total;
          best = c;
        }
      }
      *grid = static_cast<std::uint8_t>(best);
      out.put(zigzag8(static_cast<int>(best) - p));
    }
  }
}

// The number, the extra bits' value and their count for h < 16 in each code; beyond, a number more for each step.
struct SymbolTable {
  std::uint8_t number[kCodes][16], value[kCodes][16], extra[kCodes][16];
};
constexpr SymbolTable make_symbols() {
  SymbolTable t{};
  for (unsigned code = 0; code < kPairs; ++code) {
    unsigned h = 0;
    for (unsigned q = 0; h < 16; ++q) {
      const std::uint8_t e = kCodeTables[code].extra[q];
      for (unsigned k = 0; k < 1U << e && h < 16; ++k, ++h) {
        t.number[code][h] = static_cast<std::uint8_t>(q);
        t.value[code][h] = static_cast<std::uint8_t>(k);
        t.extra[code][h] = e;
      }
    }
  }
  return t;
}
inline constexpr SymbolTable kSymbols = make_symbols();

// Extra bits of eight numbers: their values and how many bits each has, one a byte.
inline void put_extra8(BitWriter& extra, std::uint64_t values, std::uint64_t counts) {
  if (counts == 0) return;
  std::uint32_t bits = 0;
  unsigned n = 0;
  for (int i = 0; i < 8; ++i, values >>= 8, counts >>= 8) {
    bits |= static_cast<std::uint32_t>(values & 0xFF) << n;
    n += counts & 0xFF;
  }
  extra.put(bits, n);
}

// The 64 values of one block, back to back, in a class that holds them; returns the end of the raw bits.
HR_STAGE std::uint8_t* write_block(const std::uint8_t* z, unsigned cls, std::uint8_t* raw, UnaryWriter& unary,
                                   BitWriter& extra, std::uint8_t*&) {
  const BlockClass& k = kClassTable8[cls];
  const unsigned s = k.raw_bits;
  for (int y = 0; y < 8; ++y) store_le(raw + y * s, squeeze(load_le<std::uint64_t>(z + 8 * y), s));
  if (k.numbers == 0) return raw + 8 * s;
  std::uint8_t numbers[64], values[64], counts[64];
  if (k.code == kPairs) {
    for (int i = 0; i < 32; ++i) {
      numbers[i] = static_cast<std::uint8_t>(z[2 * i] + z[2 * i + 1]);
      values[i] = z[2 * i];
    }
    store(counts, lookup(kCodeTables[kPairs].extra.data(), load(numbers)));
  } else {
    const U8 fifteen = set_all(std::uint8_t{15});
    for (int half = 0; half < 64; half += 32) {
      const U8 h = shift_right(load(z + half), s), low = min(h, fifteen);
      store(numbers + half, add(lookup(kSymbols.number[k.code], low), sub(h, low)));
      store(values + half, lookup(kSymbols.value[k.code], low));
      store(counts + half, lookup(kSymbols.extra[k.code], low));
    }
  }
  for (int i = 0; i < k.numbers; i += 8) {
    unary.put8(load_le<std::uint64_t>(numbers + i));
    if (k.code != kPlain) put_extra8(extra, load_le<std::uint64_t>(values + i), load_le<std::uint64_t>(counts + i));
  }
  return raw + 8 * s;
}

HR_STAGE std::uint8_t* write_block(const std::uint16_t* z, unsigned cls, std::uint8_t* raw, UnaryWriter& unary,
                                   BitWriter& extra, std::uint8_t*& escapes) {
  const BlockClass& k = kClassTable16[cls];
  const unsigned s = k.raw_bits;
  std::uint8_t low[64], high[64];
  for (int i = 0; i < 64; ++i) {
    low[i] = static_cast<std::uint8_t>(z[i]);
    high[i] = static_cast<std::uint8_t>(z[i] >> 8);
  }
  for (int y = 0; y < 8; ++y) {
    if (s <= 8) {
      store_le(raw + y * s, squeeze(load_le<std::uint64_t>(low + 8 * y), s));
    } else {
      std::memcpy(raw + 8 * y, low + 8 * y, 8);
      store_le(raw + 64 + y * (s - 8), squeeze(load_le<std::uint64_t>(high + 8 * y), s - 8));
    }
  }
  if (k.code == kPairs) {
    for (int i = 0; i < 64; i += 2) {
      const std::uint32_t q = std::uint32_t{z[i]} + z[i + 1];
      unary.put(q);
      extra.put(z[i], kCodeTables[kPairs].extra[q]);
    }
  } else if (k.numbers == 64) {
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t h = std::uint32_t{z[i]} >> s, index = h < 15 ? h : 15;
      const std::uint32_t number = kSymbols.number[k.code][index];
      if (number >= kEscape) {
        unary.put(kEscape);
        store_le(escapes, z[i]);
        escapes += 2;
      } else {
        unary.put(number);
        extra.put(kSymbols.value[k.code][index], kSymbols.extra[k.code][index]);
      }
    }
  }
  return raw + 8 * s;
}
