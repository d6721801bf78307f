// SPDX-License-Identifier: Apache-2.0
// From decoded planes to interleaved samples of the output (spec §5.4, §4). Included inside a target's namespace.

// How a coded value becomes a sample: through the list of ranks, by the sign's offset, or as it is.
struct SampleMap {
  const std::uint16_t* values;  // null: no ranks
  std::uint32_t last;           // rank_count - 1
  std::uint16_t flip;           // 0x8000 for signed samples without ranks
  std::uint32_t bytes;          // of a sample

  bool identity() const { return values == nullptr && flip == 0; }
  std::uint16_t operator()(std::uint32_t v) const {
    return values ? values[v < last ? v : last] : static_cast<std::uint16_t>(v ^ flip);
  }
  void put(std::uint8_t* to, std::uint32_t v) const {
    const std::uint16_t x = (*this)(v);
    if (bytes == 1)
      *to = static_cast<std::uint8_t>(x);
    else
      store_le(to, x);
  }
};

inline SampleMap sample_map(const DecodeTiles& job) {
  const ImageHeader& h = *job.header;
  return {job.values, h.rank_count ? h.rank_count - 1 : 0,
          static_cast<std::uint16_t>(h.is_signed && !job.values ? 0x8000 : 0), h.sample_bytes()};
}

inline U8 undo_color(U8 x, unsigned code, U8 previous, U8 before) {
  const U8 mid = set_all(std::uint8_t{128});
  if (code == 1) return sub(add(x, previous), mid);
  if (code == 2) return sub(add(x, avg(previous, before)), mid);
  return x;
}

// A tile whose planes are done: column 0 of row 0 of each channel's plane. The planes may be changed.
template <class S>
struct EmitTile {
  S* channel[kMaxChannels];
  const std::uint8_t* codes;
  Window window;
};

// A row of RGB or RGBA bytes.
template <int C>
inline void emit_bytes(const EmitTile<std::uint8_t>& t, std::ptrdiff_t row, std::uint8_t* out) {
  const Window& v = t.window;
  const unsigned code0 = t.codes[0], code2 = t.codes[2], code3 = C == 4 ? t.codes[3] : 0;
  for (std::uint32_t x = v.left; x < v.right; x += 32, out += 32 * C) {
    const U8 g = load(t.channel[1] + row + x);
    const U8 r = undo_color(load(t.channel[0] + row + x), code0, g, g);
    const U8 b = undo_color(load(t.channel[2] + row + x), code2, g, r);
    U8 a = b;
    if constexpr (C == 4) a = undo_color(load(t.channel[3] + row + x), code3, b, g);
    const auto put = [&](std::uint8_t* to) {
      if constexpr (C == 3)
        store_interleaved3(to, r, g, b);
      else
        store_interleaved4(to, r, g, b, a);
    };
    if (v.right - x >= 32) {
      put(out);
    } else {
      std::uint8_t last[32 * C];
      put(last);
      std::memcpy(out, last, (v.right - x) * C);
    }
  }
}

template <class S>
inline void undo_color_row(const EmitTile<S>& t, std::ptrdiff_t at, std::uint32_t n, std::uint32_t channels) {
  constexpr S mid = static_cast<S>(S{1} << (8 * sizeof(S) - 1));
  for (std::uint32_t p = 1; p < channels; ++p) {
    const std::uint32_t c = coded_channel(p, channels);
    S* plane = t.channel[c] + at;
    const S* previous = t.channel[c == 0 ? 1 : c - 1] + at;
    if (t.codes[c] == 1) {
      for (std::uint32_t x = 0; x < n; ++x) plane[x] = static_cast<S>(plane[x] + previous[x] - mid);
    } else if (t.codes[c] == 2) {
      const S* before = t.channel[c - 2] + at;
      for (std::uint32_t x = 0; x < n; ++x)
        plane[x] = static_cast<S>(plane[x] + ((unsigned{previous[x]} + before[x] + 1) >> 1) - mid);
    }
  }
}

template <class S, class T>
inline void interleave_row(const EmitTile<S>& t, std::ptrdiff_t at, std::uint32_t n, std::uint32_t channels,
                           const SampleMap& map, std::uint8_t* out) {
  const std::size_t step = std::size_t{channels} * sizeof(T);
  for (std::uint32_t c = 0; c < channels; ++c) {
    const S* from = t.channel[c] + at;
    std::uint8_t* to = out + c * sizeof(T);
    if (map.values) {
      for (std::uint32_t x = 0; x < n; ++x, to += step) {
        const std::uint32_t rank = from[x];
        store_le(to, static_cast<T>(map.values[rank < map.last ? rank : map.last]));
      }
    } else {
      for (std::uint32_t x = 0; x < n; ++x, to += step) store_le(to, static_cast<T>(from[x] ^ map.flip));
    }
  }
}

template <class S>
inline void emit_row(const EmitTile<S>& t, std::ptrdiff_t row, std::uint32_t channels, const SampleMap& map,
                     std::uint8_t* out) {
  if constexpr (sizeof(S) == 1) {
    if (map.identity() && channels == 3) return emit_bytes<3>(t, row, out);
    if (map.identity() && channels == 4) return emit_bytes<4>(t, row, out);
  }
  const std::ptrdiff_t at = row + t.window.left;
  const std::uint32_t n = t.window.right - t.window.left;
  undo_color_row(t, at, n, channels);
  if (channels == 1 && map.identity())
    std::memcpy(out, t.channel[0] + at, n * sizeof(S));
  else if (map.bytes == 1)
    interleave_row<S, std::uint8_t>(t, at, n, channels, map, out);
  else
    interleave_row<S, std::uint16_t>(t, at, n, channels, map, out);
}

// Tiles that lie side by side, row by row: the longer the stretches that are written, the better the caches like it.
template <class S>
HR_STAGE void emit(const EmitTile<S>* tiles, std::uint32_t count, std::ptrdiff_t pitch, std::uint32_t channels,
                   const SampleMap& map) {
  for (std::uint32_t y = tiles[0].window.top; y < tiles[0].window.bottom; ++y)
    for (std::uint32_t i = 0; i < count; ++i) {
      const Window& v = tiles[i].window;
      if (v.empty()) continue;
      emit_row(tiles[i], static_cast<std::ptrdiff_t>(y) * pitch, channels, map,
               v.out + static_cast<std::ptrdiff_t>(y - v.top) * v.row_stride);
    }
}

// Fill a window with one pixel, whose samples are in output form.
inline void emit_constant(const std::uint8_t* pixel, std::uint32_t pixel_bytes, const Window& v) {
  if (v.empty()) return;
  const std::size_t row_bytes = std::size_t{v.right - v.left} * pixel_bytes;
  for (std::size_t i = 0; i < row_bytes; i += pixel_bytes) std::memcpy(v.out + i, pixel, pixel_bytes);
  for (std::uint32_t y = v.top + 1; y < v.bottom; ++y)
    std::memcpy(v.out + static_cast<std::ptrdiff_t>(y - v.top) * v.row_stride, v.out, row_bytes);
}

// Thirty-two pixels of one to four bytes, given as vectors of their bytes.
inline void store_pixels(std::uint8_t* to, std::uint32_t pixel_bytes, const U8* bytes) {
  if (pixel_bytes == 1) {
    store(to, bytes[0]);
  } else if (pixel_bytes == 2) {
    U8 first, second;
    zip(bytes[0], bytes[1], first, second);
    store(to, first);
    store(to + 32, second);
  } else if (pixel_bytes == 3) {
    store_interleaved3(to, bytes[0], bytes[1], bytes[2]);
  } else {
    store_interleaved4(to, bytes[0], bytes[1], bytes[2], bytes[3]);
  }
}

// A row of pixels from at most 16 colors of at most 4 bytes: vectors look them up.
inline void emit_few_colors(const std::uint8_t* numbers, std::uint32_t n, const std::uint8_t (*tables)[16],
                            std::uint32_t pixel_bytes, std::uint8_t* out) {
  for (std::uint32_t x = 0; x < n; x += 32, out += 32 * pixel_bytes) {
    U8 bytes[4];
    const U8 number = load(numbers + x);
    for (std::uint32_t k = 0; k < pixel_bytes; ++k) bytes[k] = lookup(tables[k], number);
    if (n - x >= 32) {
      store_pixels(out, pixel_bytes, bytes);
    } else {
      std::uint8_t last[128];
      store_pixels(last, pixel_bytes, bytes);
      std::memcpy(out, last, (n - x) * pixel_bytes);
    }
  }
}

template <std::uint32_t Bytes>
inline void emit_many_colors(const std::uint8_t* numbers, std::uint32_t n, const std::uint8_t* colors,
                             std::uint8_t* out) {
  for (std::uint32_t x = 0; x < n; ++x, out += Bytes) std::memcpy(out, colors + Bytes * numbers[x], Bytes);
}

// Pixels by color number; `colors` holds `count` pixels in output form, `pixel_bytes` apart.
HR_STAGE void emit_palette(const std::uint8_t* numbers, std::ptrdiff_t pitch, const std::uint8_t* colors,
                           std::uint32_t count, std::uint32_t pixel_bytes, const Window& v) {
  if (v.empty()) return;
  std::uint8_t tables[4][16] = {};
  const bool few = count <= 16 && pixel_bytes <= 4;
  for (std::uint32_t i = 0; few && i < count; ++i)
    for (std::uint32_t k = 0; k < pixel_bytes; ++k) tables[k][i] = colors[i * pixel_bytes + k];
  const std::uint32_t n = v.right - v.left;
  for (std::uint32_t y = v.top; y < v.bottom; ++y) {
    std::uint8_t* out = v.out + static_cast<std::ptrdiff_t>(y - v.top) * v.row_stride;
    const std::uint8_t* from = numbers + static_cast<std::ptrdiff_t>(y) * pitch + v.left;
    if (few) {
      emit_few_colors(from, n, tables, pixel_bytes, out);
    } else if (pixel_bytes == 1) {
      emit_many_colors<1>(from, n, colors, out);
    } else if (pixel_bytes == 2) {
      emit_many_colors<2>(from, n, colors, out);
    } else if (pixel_bytes == 3) {
      // Four bytes at a time; the last pixel must not touch what follows it.
      for (std::uint32_t x = 0; x + 1 < n; ++x, out += 3) std::memcpy(out, colors + 3 * from[x], 4);
      std::memcpy(out, colors + 3 * from[n - 1], 3);
    } else if (pixel_bytes == 4) {
      emit_many_colors<4>(from, n, colors, out);
    } else {
      for (std::uint32_t x = 0; x < n; ++x, out += pixel_bytes)
        std::memcpy(out, colors + std::size_t{pixel_bytes} * from[x], pixel_bytes);
    }
  }
}
