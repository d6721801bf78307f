// SPDX-License-Identifier: Apache-2.0
// From the bytes of a packed or coded tile to residuals in natural order (spec §6.4, §6.5). Included inside a target's
// namespace.
//
// Everything that could lead out of bounds is settled before the loops over samples: population counts say how many
// numbers a unary section holds, classes and widths say how many bytes follow. Only the extra bits are counted while
// they are read, once a block.

struct Cursor {
  const std::uint8_t* at;
  const std::uint8_t* end;

  std::size_t left() const { return static_cast<std::size_t>(end - at); }
  // Null if fewer than n bytes are left.
  const std::uint8_t* take(std::size_t n) {
    if (left() < n) return nullptr;
    const std::uint8_t* p = at;
    at += n;
    return p;
  }
};

inline std::size_t count_ones(const std::uint8_t* p, std::size_t n) {
  std::size_t ones = 0, i = 0;
  for (; i + 8 <= n; i += 8) ones += static_cast<std::size_t>(__builtin_popcountll(load_le<std::uint64_t>(p + i)));
  for (; i < n; ++i) ones += kOnes.count[p[i]];
  return ones;
}

// Does a section of n bytes hold exactly `numbers` numbers and end with the last of them?
HR_STAGE bool valid_unary(const std::uint8_t* p, std::size_t n, std::size_t numbers) {
  if (numbers == 0) return n == 0;
  return n > 0 && p[n - 1] != 0 && count_ones(p, n) == numbers;
}

// Numbers from positions of ones; at[-1] belongs to the number before.
inline U8 numbers_at(const std::uint8_t* at) { return sub(sub(load(at), load(at - 1)), set_all(std::uint8_t{1})); }

// What vectors may read and write past the end of an array of bytes.
inline constexpr std::size_t kSlack = 128;

template <class V>
inline V undo_zigzag(V z) {
  return bit_xor(shift_right(z, 1), odd_mask(z));
}

// Thirty-two values z = (h << s) + raw, as residuals in four rows of eight.
inline void put_half_block(std::uint8_t* to, std::ptrdiff_t pitch, U8 h, const std::uint8_t* raw, unsigned half,
                           unsigned s) {
  const U8 z = add(shift_left(h, s), unpack(raw + half * 4 * s, s));
  store_rows(to, pitch, undo_zigzag(z));
}
inline void put_half_block(std::uint16_t* to, std::ptrdiff_t pitch, U8 h, const std::uint8_t* raw, unsigned half,
                           unsigned s) {
  U16 low;
  if (s <= 8) {
    low = widen(unpack(raw + half * 4 * s, s));
  } else {
    const U16 high = widen(unpack(raw + 64 + half * 4 * (s - 8), s - 8));
    low = add(shift_left(high, 8), widen(load(raw + 32 * half)));
  }
  store_rows(to, pitch, undo_zigzag(add(shift_left(widen(h), s), low)));
}

// Where the numbers of 32 samples are escapes, the samples come from elsewhere. Rare. False if there are none left.
inline bool put_escapes(std::uint8_t*, std::ptrdiff_t, U8, Cursor&) { return true; }
inline bool put_escapes(std::uint16_t* to, std::ptrdiff_t pitch, U8 numbers, Cursor& escapes) {
  const U8 escape = set_all(std::uint8_t{kEscape});
  const U8 found = equal(max(numbers, escape), numbers);
  if (!any(found)) return true;
  std::uint8_t mask[32];
  store(mask, found);
  for (int i = 0; i < 32; ++i) {
    if (mask[i] == 0) continue;
    const std::uint8_t* p = escapes.take(2);
    if (!p) return false;
    const std::uint32_t z = load_le<std::uint16_t>(p);
    to[(i / 8) * pitch + i % 8] = static_cast<std::uint16_t>((z >> 1) ^ (0U - (z & 1)));
  }
  return true;
}

// The first sample of a tile is predicted as the middle, row 0 from the left, column 0 from above.
template <class S>
HR_STAGE void finish_edges(S* plane, std::ptrdiff_t pitch, std::uint32_t w, std::uint32_t h) {
  plane[0] = static_cast<S>(plane[0] + (S{1} << (8 * sizeof(S) - 1)));
  sum_along(plane, w);
  S x = plane[0];
  for (std::uint32_t r = 1; r < h; ++r) plane[r * pitch] = x = static_cast<S>(x + plane[r * pitch]);
}

// Numbers of a small unary section (widths or classes), undone zigzag, to `to`. `positions_at` is scratch.
HR_STAGE void signed_numbers(const std::uint8_t* section, std::size_t bytes, std::size_t numbers,
                             std::uint8_t* positions_at, std::uint8_t* to) {
  positions_at[-1] = 0xFF;
  positions(section, bytes, positions_at);
  for (std::size_t i = 0; i < numbers; i += 32) store(to + i, undo_zigzag(numbers_at(positions_at + i)));
}

// Classes from their differences, in place; false if one is out of range.
HR_STAGE bool sum_classes(std::uint8_t* c, std::uint32_t blocks_x, std::uint32_t blocks_y, std::uint32_t classes) {
  std::uint32_t largest = 0;
  for (std::uint32_t y = 0; y < blocks_y; ++y) {
    std::uint8_t* row = c + y * blocks_x;
    const std::uint8_t* above = y == 0 ? row : row - blocks_x;
    std::uint32_t left = y == 0 ? kFirstClass : above[0];
    for (std::uint32_t x = 0; x < blocks_x; ++x) {
      const std::uint32_t p = y == 0 || x == 0 ? left : (left + above[x] + 1) >> 1;
      left = (p + row[x]) & 0xFF;
      row[x] = static_cast<std::uint8_t>(left);
      largest = left > largest ? left : largest;
    }
  }
  return largest < classes;
}

// Widths from their differences, in place; false if one is out of range. Adds up their sum.
HR_STAGE bool sum_widths(std::uint8_t* b, std::uint32_t groups_x, std::uint32_t groups_y, std::uint32_t bits,
                         std::size_t& sum) {
  std::uint8_t left = kFirstWidth;
  for (std::uint32_t x = 0; x < groups_x; ++x) b[x] = left = static_cast<std::uint8_t>(left + b[x]);
  U8 largest = set_all(std::uint8_t{0});
  std::uint32_t largest_left = 0;
  for (std::uint32_t y = 0; y < groups_y; ++y) {
    std::uint8_t* row = b + std::size_t{y} * groups_x;
    const std::uint8_t* above = row - (y == 0 ? 0 : groups_x);
    std::uint32_t x = 0;
    for (; x + 32 <= groups_x; x += 32) {
      const U8 v = y == 0 ? load(row + x) : add(load(row + x), load(above + x));
      store(row + x, v);
      largest = max(largest, v);
      sum += sum_lanes(v);
    }
    for (; x < groups_x; ++x) {
      if (y > 0) row[x] = static_cast<std::uint8_t>(row[x] + above[x]);
      largest_left = row[x] > largest_left ? row[x] : largest_left;
      sum += row[x];
    }
  }
  const U8 limit = set_all(static_cast<std::uint8_t>(bits));
  return largest_left <= bits && !any(sub(max(largest, limit), limit));
}

// The groups of one plane; advances `from` by exactly the sum of 2 * widths.
template <class S>
HR_STAGE const std::uint8_t* expand_groups(const std::uint8_t* from, const std::uint8_t* widths, std::uint32_t groups_x,
                                           std::uint32_t groups_y, S* plane, std::ptrdiff_t pitch, const Ahead& ahead,
                                           std::uint32_t ahead_step) {
  for (std::uint32_t y = 0; y < groups_y; ++y, widths += groups_x, plane += 4 * pitch) {
    ahead.fetch(ahead_step++);
    std::uint32_t x = 0;
    if constexpr (sizeof(S) == 1) {
      for (; x < groups_x; x += 4) {
        // Groups past the row's end have width 0 and fall into the padding.
        std::uint32_t four = load_le<std::uint32_t>(widths + x);
        if (groups_x - x < 4) four &= (1U << (8 * (groups_x - x))) - 1;
        from = unpack_groups(from, four, plane + 4 * x, pitch);
      }
    } else {
      for (; x < groups_x; ++x) {
        unpack_group(from, widths[x], plane + 4 * x, pitch);
        from += 2 * widths[x];
      }
    }
  }
  return from;
}

// The blocks of one plane. `at` is the first number's position; `raw`, `escapes` and `extra_at` advance. False if the
// escapes or extra bits run out.
template <class S>
HR_STAGE bool expand_blocks(const std::uint8_t* classes, std::uint32_t blocks_x, std::uint32_t blocks_y,
                            const std::uint8_t* at, const std::uint8_t*& raw, const std::uint8_t* extra,
                            std::uint64_t& extra_at, std::uint64_t extra_end, Cursor& escapes, S* plane,
                            std::ptrdiff_t pitch, const Ahead& ahead, std::uint32_t ahead_step) {
#if defined(HR_OWN_EXPAND_BLOCKS)
  if constexpr (sizeof(S) == 1)
    return expand_byte_blocks(classes, blocks_x, blocks_y, at, raw, extra, extra_at, extra_end, plane, pitch, ahead,
                              ahead_step);
#endif
  constexpr auto& table = class_table<8 * sizeof(S)>();
  const U8 fifteen = set_all(std::uint8_t{15});
  for (std::uint32_t y = 0; y < blocks_y; ++y, plane += 8 * pitch) {
    ahead.fetch(ahead_step++);
    for (std::uint32_t x = 0; x < blocks_x; ++x) {
      const std::uint8_t c = *classes++;
      S* to = plane + 8 * x;
      if (c == 0) {
        const Vector<S> zero = set_all(S{0});
        store_rows(to, pitch, zero);
        store_rows(to + 4 * pitch, pitch, zero);
        continue;
      }
      const BlockClass& k = table[c];
      const unsigned s = k.raw_bits;
      U8 h0 = numbers_at(at), h1 = numbers_at(at + 32);
      const U8 q0 = h0, q1 = h1;
      if (kTakesFlagsCheaply || k.code != kPlain) {
        if (extra_at > extra_end) return false;
        const CodeTable& code = kCodeTables[k.code];
        const U8 i0 = min(h0, fifteen), e0 = lookup(code.extra.data(), i0);
        if (k.code == kPairs) {
          const U8 first = take_bits(e0, extra, extra_at);
          zip(first, sub(h0, first), h0, h1);
        } else {
          const U8 i1 = min(h1, fifteen), e1 = lookup(code.extra.data(), i1);
          h0 = add(add(h0, take_flags(e0, extra, extra_at)), lookup(code.adjust.data(), i0));
          h1 = add(add(h1, take_flags(e1, extra, extra_at)), lookup(code.adjust.data(), i1));
        }
      }
      put_half_block(to, pitch, h0, raw, 0, s);
      put_half_block(to + 4 * pitch, pitch, h1, raw, 1, s);
      if (sizeof(S) == 2 && k.numbers == 64 &&
          !(put_escapes(to, pitch, q0, escapes) && put_escapes(to + 4 * pitch, pitch, q1, escapes)))
        return false;
      at += k.numbers;
      raw += 8 * s;
    }
  }
  return true;
}
