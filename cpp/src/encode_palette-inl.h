// SPDX-License-Identifier: Apache-2.0
// The palette kind of tiles in the encoder (spec §6.3). Included inside a target's namespace.

struct PaletteScratch {
  std::uint64_t keys[kMaxColors];
  std::uint64_t slot_key[1024];
  std::uint16_t slot_number[1024];  // number + 1; 0: the slot is free
  std::uint8_t order[256];
  std::uint8_t numbers[kTileHeight * kEncodePitch];
};

// All samples of a pixel in one number, channel 0 on top, so that colors compare as the spec wants.
template <class S>
inline std::uint64_t pixel_key(PlaneSet<S> planes, std::uint32_t channels, std::ptrdiff_t at) {
  std::uint64_t key = 0;
  for (std::uint32_t c = 0; c < channels; ++c) key = key << (8 * sizeof(S)) | planes[c][at];
  return key;
}

// Numbers the colors in order of appearance; returns how many there are, or 0 if they are more than a palette holds.
template <class S>
HR_STAGE std::uint32_t number_colors(PlaneSet<S> planes, std::uint32_t channels, std::uint32_t w, std::uint32_t h,
                                     PaletteScratch& s) {
  std::memset(s.slot_number, 0, sizeof s.slot_number);
  std::uint32_t colors = 0;
  std::uint64_t last_key = 0;
  std::uint8_t last = 0;
  for (std::uint32_t y = 0; y < h; ++y) {
    for (std::uint32_t x = 0; x < w; ++x) {
      const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(y) * kEncodePitch + x;
      const std::uint64_t key = pixel_key(planes, channels, at);
      if (key != last_key || colors == 0) {
        std::size_t slot = (key * 0x9E3779B97F4A7C15U) >> 54;
        while (s.slot_number[slot] != 0 && s.slot_key[slot] != key) slot = (slot + 1) % 1024;
        if (s.slot_number[slot] == 0) {
          if (colors == kMaxColors) return 0;
          s.keys[colors] = key;
          s.slot_key[slot] = key;
          s.slot_number[slot] = static_cast<std::uint16_t>(++colors);
        }
        last_key = key;
        last = static_cast<std::uint8_t>(s.slot_number[slot] - 1);
      }
      s.numbers[at] = last;
    }
  }
  return colors;
}

// Sorts the colors and renumbers the pixels. Shell sort: short, and no library code is pulled in.
inline void sort_colors(std::uint32_t colors, std::uint32_t w, std::uint32_t h, PaletteScratch& s) {
  std::uint8_t by_rank[kMaxColors];
  for (std::uint32_t i = 0; i < colors; ++i) by_rank[i] = static_cast<std::uint8_t>(i);
  constexpr std::uint32_t gaps[] = {57, 23, 10, 4, 1};
  for (const std::uint32_t gap : gaps) {
    for (std::uint32_t i = gap; i < colors; ++i) {
      const std::uint8_t moving = by_rank[i];
      std::uint32_t k = i;
      for (; k >= gap && s.keys[by_rank[k - gap]] > s.keys[moving]; k -= gap) by_rank[k] = by_rank[k - gap];
      by_rank[k] = moving;
    }
  }
  std::uint64_t sorted[kMaxColors];
  for (std::uint32_t i = 0; i < colors; ++i) {
    s.order[by_rank[i]] = static_cast<std::uint8_t>(i);
    sorted[i] = s.keys[by_rank[i]];
  }
  std::memcpy(s.keys, sorted, colors * sizeof sorted[0]);
  for (std::uint32_t y = 0; y < h; ++y)
    for (std::uint32_t x = 0; x < w; ++x) {
      std::uint8_t& n = s.numbers[y * kEncodePitch + x];
      n = s.order[n];
    }
}

inline std::uint8_t predict_number(const std::uint8_t* at, std::uint32_t x, std::uint32_t y) {
  if (y == 0) return x == 0 ? 0 : at[-1];
  if (x == 0) return at[-kEncodePitch];
  return at[-1] == at[-kEncodePitch - 1] ? at[-kEncodePitch] : at[-1];
}

// The tile as a palette, or 0 if it has too many colors.
template <class S>
HR_STAGE std::size_t encode_palette(PlaneSet<S> planes, std::uint32_t channels, std::uint32_t w, std::uint32_t h,
                                    PaletteScratch& s, std::uint8_t* const out) {
  const std::uint32_t colors = number_colors(planes, channels, w, h, s);
  if (colors == 0) return 0;
  sort_colors(colors, w, h, s);
  std::uint8_t* to = out;
  *to++ = kPalette;
  *to++ = static_cast<std::uint8_t>(colors);
  for (std::uint32_t i = 0; i < colors; ++i)
    for (std::uint32_t c = 0; c < channels; ++c, to += sizeof(S))
      store_le(to, static_cast<S>(s.keys[i] >> (8 * sizeof(S) * (channels - 1 - c))));

  const std::uint32_t blocks_x = ceil_div(w, 8), blocks = blocks_x * ceil_div(h, 8);
  std::uint8_t* const flags = to;
  std::memset(flags, 0, ceil_div(blocks, 8));
  to += ceil_div(blocks, 8);
  // Row masks are written in place; sample masks and numbers wait for their sections to begin.
  constexpr std::uint32_t max_samples = kMaxTileWidth * kTileHeight;
  std::uint8_t sample_masks[max_samples / 8];
  std::uint8_t exceptions[max_samples + 8];
  std::uint32_t rows = 0;
  BitWriter numbers(exceptions);
  const unsigned bits = bit_length(colors - 1);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const std::uint32_t x0 = b % blocks_x * 8, y0 = b / blocks_x * 8;
    unsigned row_mask = 0;
    for (std::uint32_t y = y0; y < y0 + 8 && y < h; ++y) {
      unsigned mask = 0;
      for (std::uint32_t x = x0; x < x0 + 8 && x < w; ++x) {
        const std::uint8_t* at = s.numbers + y * kEncodePitch + x;
        if (*at == predict_number(at, x, y)) continue;
        mask |= 1U << (x - x0);
        numbers.put(*at, bits);
      }
      if (mask == 0) continue;
      row_mask |= 1U << (y - y0);
      sample_masks[rows++] = static_cast<std::uint8_t>(mask);
    }
    if (row_mask == 0) continue;
    flags[b / 8] |= static_cast<std::uint8_t>(1U << (b % 8));
    *to++ = static_cast<std::uint8_t>(row_mask);
  }
  std::memcpy(to, sample_masks, rows);
  to += rows;
  const std::size_t number_bytes = numbers.finish();
  std::memcpy(to, exceptions, number_bytes);
  return static_cast<std::size_t>(to - out) + number_bytes;
}
