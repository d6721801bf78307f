// SPDX-License-Identifier: Apache-2.0
// From decoded planes to interleaved samples of the output (spec §5.4, §4). Included inside a target's namespace.

// The part of a tile that the region wants: rows and columns relative to the tile, and where its first pixel goes.
struct Window {
  std::uint32_t top, bottom, left, right;
  std::uint8_t* out;
  std::ptrdiff_t row_stride;

  bool empty() const { return top >= bottom || left >= right; }
};

inline Window make_window(const DecodeTiles& job, std::uint32_t x, std::uint32_t y, std::uint32_t w, std::uint32_t h) {
  const Region& g = job.region;
  const std::uint32_t top = g.top > y ? g.top : y, left = g.left > x ? g.left : x;
  const std::uint32_t bottom = g.top + g.height < y + h ? g.top + g.height : y + h;
  const std::uint32_t right = g.left + g.width < x + w ? g.left + g.width : x + w;
  Window v{top - y, bottom - y, left - x, right - x, nullptr, job.row_stride};
  if (top < bottom && left < right)
    v.out = job.out + static_cast<std::ptrdiff_t>(top - g.top) * job.row_stride +
            std::size_t{left - g.left} * job.header->pixel_bytes();
  return v;
}

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

inline U8 undo_colour(U8 x, unsigned code, U8 previous, U8 before) {
  const U8 mid = set_all(std::uint8_t{128});
  if (code == 1) return sub(add(x, previous), mid);
  if (code == 2) return sub(add(x, avg(previous, before)), mid);
  return x;
}

// Rows of RGB or RGBA bytes. Code0, code2 and code3 are the colour codes of their channels.
template <int C>
inline void emit_bytes(const std::uint8_t* const* channel, std::ptrdiff_t pitch, const std::uint8_t* codes,
                       const Window& v) {
  const unsigned code0 = codes[0], code2 = codes[2], code3 = C == 4 ? codes[3] : 0;
  for (std::uint32_t y = v.top; y < v.bottom; ++y) {
    std::uint8_t* out = v.out + static_cast<std::ptrdiff_t>(y - v.top) * v.row_stride;
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(y) * pitch;
    for (std::uint32_t x = v.left; x < v.right; x += 32, out += 32 * C) {
      const U8 g = load(channel[1] + row + x);
      const U8 r = undo_colour(load(channel[0] + row + x), code0, g, g);
      const U8 b = undo_colour(load(channel[2] + row + x), code2, g, r);
      U8 a = b;
      if constexpr (C == 4) a = undo_colour(load(channel[3] + row + x), code3, b, g);
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
}

template <class S>
inline void undo_colour_rows(S* plane, const S* previous, const S* before, unsigned code, std::ptrdiff_t pitch,
                             const Window& v) {
  constexpr S mid = static_cast<S>(S{1} << (8 * sizeof(S) - 1));
  for (std::uint32_t y = v.top; y < v.bottom; ++y) {
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(y) * pitch;
    if (code == 1) {
      for (std::uint32_t x = v.left; x < v.right; ++x)
        plane[row + x] = static_cast<S>(plane[row + x] + previous[row + x] - mid);
    } else {
      for (std::uint32_t x = v.left; x < v.right; ++x) {
        const unsigned ref = (unsigned{previous[row + x]} + before[row + x] + 1) >> 1;
        plane[row + x] = static_cast<S>(plane[row + x] + ref - mid);
      }
    }
  }
}

template <class S, class T>
inline void interleave_row(const S* const* channel, std::ptrdiff_t at, std::uint32_t channels, std::uint32_t n,
                           const SampleMap& map, std::uint8_t* out) {
  for (std::uint32_t c = 0; c < channels; ++c) {
    const S* from = channel[c] + at;
    std::uint8_t* to = out + c * sizeof(T);
    const std::size_t step = std::size_t{channels} * sizeof(T);
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

// `channel[c]` is column 0 of row 0 of the tile's plane for channel c; the planes may be changed.
template <class S>
inline void emit(S* const* channel, std::ptrdiff_t pitch, std::uint32_t channels, const std::uint8_t* codes,
                 const SampleMap& map, const Window& v) {
  if (v.empty()) return;
  if constexpr (sizeof(S) == 1) {
    if (map.identity() && channels == 3) return emit_bytes<3>(channel, pitch, codes, v);
    if (map.identity() && channels == 4) return emit_bytes<4>(channel, pitch, codes, v);
  }
  for (std::uint32_t p = 1; p < channels; ++p) {
    const std::uint32_t c = coded_channel(p, channels);
    if (codes[c] == 0) continue;
    const S* previous = c == 0 ? channel[1] : channel[c - 1];
    undo_colour_rows(channel[c], previous, c >= 2 ? channel[c - 2] : previous, codes[c], pitch, v);
  }
  const std::uint32_t n = v.right - v.left;
  for (std::uint32_t y = v.top; y < v.bottom; ++y) {
    std::uint8_t* out = v.out + static_cast<std::ptrdiff_t>(y - v.top) * v.row_stride;
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(y) * pitch + v.left;
    if (channels == 1 && map.identity())
      std::memcpy(out, channel[0] + at, n * sizeof(S));
    else if (map.bytes == 1)
      interleave_row<S, std::uint8_t>(channel, at, channels, n, map, out);
    else
      interleave_row<S, std::uint16_t>(channel, at, channels, n, map, out);
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

// Pixels by colour number; `colours` holds pixels in output form, `pixel_bytes` apart.
inline void emit_palette(const std::uint8_t* numbers, std::ptrdiff_t pitch, const std::uint8_t* colours,
                         std::uint32_t pixel_bytes, const Window& v) {
  for (std::uint32_t y = v.top; y < v.bottom; ++y) {
    std::uint8_t* out = v.out + static_cast<std::ptrdiff_t>(y - v.top) * v.row_stride;
    const std::uint8_t* from = numbers + static_cast<std::ptrdiff_t>(y) * pitch;
    if (pixel_bytes == 1) {
      for (std::uint32_t x = v.left; x < v.right; ++x) *out++ = colours[from[x]];
    } else if (pixel_bytes == 2) {
      for (std::uint32_t x = v.left; x < v.right; ++x, out += 2) std::memcpy(out, colours + 2 * from[x], 2);
    } else if (pixel_bytes == 3) {
      // Four bytes at a time; the last pixel must not touch what follows it.
      for (std::uint32_t x = v.left; x + 1 < v.right; ++x, out += 3) std::memcpy(out, colours + 3 * from[x], 4);
      std::memcpy(out, colours + 3 * from[v.right - 1], 3);
    } else if (pixel_bytes == 4) {
      for (std::uint32_t x = v.left; x < v.right; ++x, out += 4) std::memcpy(out, colours + 4 * from[x], 4);
    } else {
      for (std::uint32_t x = v.left; x < v.right; ++x, out += pixel_bytes)
        std::memcpy(out, colours + std::size_t{pixel_bytes} * from[x], pixel_bytes);
    }
  }
}
