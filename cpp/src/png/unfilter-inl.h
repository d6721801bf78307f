// SPDX-License-Identifier: Apache-2.0
// Undo PNG filters. Compiled once per SIMD target, in the vector extensions of GCC and clang.
//
// Average and Paeth predict a pixel from the pixel at its left, so one row is a chain of dependent steps: about 8
// cycles per pixel, whatever the vector width. Rows are therefore done in bands: each row of a band is some lanes of a
// vector, and each row is kLag pixels behind the row above it. What a row needs of the row above is then already in a
// register, from kLag steps ago. A lag of 1 would suffice; with 2 the shift between rows is not part of the chain.
//
//   step t:   row 0   . . . . x        x: the pixels of one step
//             row 1   . . x            .: done before
//             row 2   x
//
// The triangles at both ends of a band are done one pixel at a time. So is the last pixel of each row, because a step
// stores `Lanes` bytes per pixel, which may be one or two more than a pixel has.
//
// All filters of a band run as Paeth: with b = c = 0 it gives a (Sub), with a = c = 0 it gives b (Up), and with all
// three zero it gives 0 (None). Only Average needs an instruction of its own.

namespace png {

constexpr std::size_t kLag = 2;

template <class T, int N>
struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * N)));
};
template <class T, int N>
using Vector = typename VectorOf<T, N>::type;

template <int Bytes>
using Unit = std::conditional_t<
    Bytes == 1, std::uint8_t,
    std::conditional_t<Bytes == 2, std::uint16_t, std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;

template <int Bytes>
inline Unit<Bytes> load_unit(const std::uint8_t* from) noexcept {
  Unit<Bytes> unit;
  std::memcpy(&unit, from, Bytes);
  return unit;
}

// Some rows that are filtered, and where they go.
struct Band {
  const std::uint8_t* filtered;
  std::size_t filtered_stride;
  const std::uint8_t* above;
  std::uint8_t* out;
  std::ptrdiff_t out_stride;

  std::uint8_t filter(int row) const noexcept { return filtered[static_cast<std::size_t>(row) * filtered_stride]; }
  const std::uint8_t* in_row(int row) const noexcept {
    return filtered + static_cast<std::size_t>(row) * filtered_stride + 1;
  }
  std::uint8_t* out_row(int row) const noexcept { return out + row * out_stride; }
  const std::uint8_t* above_row(int row) const noexcept { return row == 0 ? above : out_row(row - 1); }
};

// With the comparisons that stb_image found to be the same as the specification's, ties included.
inline int paeth(int a, int b, int c) noexcept {
  const int threshold = 3 * c - (a + b);
  const int low = a < b ? a : b, high = a < b ? b : a;
  const int middle = high <= threshold ? low : c;
  return threshold <= low ? high : middle;
}

// Pixels [begin, end) of a row, byte by byte.
inline void unfilter_plainly(const Band& band, int row, std::size_t pixel_bytes, std::size_t begin,
                             std::size_t end) noexcept {
  const std::uint8_t filter = band.filter(row);
  const std::uint8_t* in = band.in_row(row);
  const std::uint8_t* above = band.above_row(row);
  std::uint8_t* out = band.out_row(row);
  for (std::size_t i = begin * pixel_bytes; i < end * pixel_bytes; ++i) {
    const bool first = i < pixel_bytes;
    const int a = first ? 0 : out[i - pixel_bytes], b = above[i], c = first ? 0 : above[i - pixel_bytes];
    const int predicted = filter == kPngSub       ? a
                          : filter == kPngUp      ? b
                          : filter == kPngAverage ? (a + b) >> 1
                          : filter == kPngPaeth   ? paeth(a, b, c)
                                                  : 0;
    out[i] = static_cast<std::uint8_t>(in[i] + predicted);
  }
}

// Rows one above the other as lanes: lane r * Lanes + k is byte k of a pixel of row r.
template <int Rows, int Lanes>
struct Columns {
  static constexpr int kLanes = Rows * Lanes;
  using Words = Vector<std::int16_t, kLanes>;
  using Octets = Vector<std::uint8_t, kLanes>;
  using Units = Vector<Unit<Lanes>, Rows>;

  // By reference: the ABI of vectors that a target does not have is not stable.
  static inline void widen(const Units& units, Words& words) noexcept {
    words = __builtin_convertvector(reinterpret_cast<Octets>(units), Words);
  }
  static inline void narrow(const Words& words, Units& units) noexcept {
    units = reinterpret_cast<Units>(__builtin_convertvector(words, Octets));
  }
  // What each row has above it: the first row that of `top`, the others that of the row before.
  template <std::size_t... I>
  static inline void below(const Words& rows, const Words& top, Words& above, std::index_sequence<I...>) noexcept {
    above = __builtin_shufflevector(
        rows, top, (static_cast<int>(I) < Lanes ? kLanes + static_cast<int>(I) : static_cast<int>(I) - Lanes)...);
  }
};

template <int Rows, int Lanes, int PixelBytes, bool HasAverage>
HR_STAGE void unfilter_band(const Band& band, std::size_t n_bytes) noexcept {
  using Lane = Columns<Rows, Lanes>;
  using Words = typename Lane::Words;
  using Units = typename Lane::Units;
  constexpr std::size_t kFirst = Rows == 1 ? 0 : kLag * (Rows - 1);  // pixels of the first row before the first step
  const std::size_t width = n_bytes / PixelBytes;
  if (width < kFirst + 2) {
    for (int r = 0; r < Rows; ++r) unfilter_plainly(band, r, PixelBytes, 0, width);
    return;
  }
  const std::size_t steps = width - 1 - kFirst;
  const auto begin = [](int r) { return kFirst - kLag * static_cast<std::size_t>(r); };
  for (int r = 0; r < Rows; ++r) unfilter_plainly(band, r, PixelBytes, 0, begin(r));

  Words use_a{}, use_b{}, use_c{}, average{};
  for (int r = 0; r < Rows; ++r) {
    const std::uint8_t filter = band.filter(r);
    for (int k = r * Lanes; k < (r + 1) * Lanes; ++k) {
      use_a[k] = filter == kPngSub || filter == kPngPaeth ? -1 : 0;
      use_b[k] = filter == kPngUp || filter == kPngPaeth ? -1 : 0;
      use_c[k] = filter == kPngPaeth ? -1 : 0;
      average[k] = filter == kPngAverage ? -1 : 0;
    }
  }
  // The pixels `back` before the first step; zero where that is left of the image.
  const auto before = [&](int r, const std::uint8_t* row, std::size_t back) {
    return begin(r) < back ? Unit<Lanes>{0} : load_unit<Lanes>(row + (begin(r) - back) * PixelBytes);
  };
  Units one{}, two{}, corner{};
  const std::uint8_t* in[Rows];
  std::uint8_t* out[Rows];
  for (int r = 0; r < Rows; ++r) {
    one[r] = before(r, band.out_row(r), 1);
    two[r] = before(r, band.out_row(r), 2);
    corner[r] = before(r, band.above_row(r), 1);
    in[r] = band.in_row(r) + begin(r) * PixelBytes;
    out[r] = band.out_row(r) + begin(r) * PixelBytes;
  }
  Words last, older, c;  // what the last step and the one before gave; what lies above and left
  Lane::widen(one, last);
  Lane::widen(two, older);
  Lane::widen(corner, c);
  const std::uint8_t* above = band.above + kFirst * PixelBytes;
  for (std::size_t t = 0; t < steps; ++t) {
    const std::size_t at = t * PixelBytes;
    Units stored{}, top{};
    for (int r = 0; r < Rows; ++r) stored[r] = load_unit<Lanes>(in[r] + at);
    top[0] = load_unit<Lanes>(above + at);
    Words x, top_words, b;
    Lane::widen(stored, x);
    Lane::widen(top, top_words);
    Lane::below(older, top_words, b, std::make_index_sequence<Lane::kLanes>());
    const Words pa = last & use_a, pb = b & use_b, pc = c & use_c;
    const Words threshold = (pc * 3 - pb) - pa;
    const Words low = pa < pb ? pa : pb, high = pa < pb ? pb : pa;
    const Words middle = high <= threshold ? low : pc;
    Words predicted = threshold <= low ? high : middle;
    if constexpr (HasAverage) predicted = average != 0 ? (last + b) >> 1 : predicted;
    const Words pixels = (predicted + x) & 255;
    Units units;
    Lane::narrow(pixels, units);
    for (int r = 0; r < Rows; ++r) {
      const Unit<Lanes> unit = units[r];
      std::memcpy(out[r] + at, &unit, Lanes);
    }
    older = last;
    last = pixels;
    c = b;
  }
  for (int r = 0; r < Rows; ++r) unfilter_plainly(band, r, PixelBytes, begin(r) + steps, width);
}

template <int Lanes, int PixelBytes>
HR_STAGE void unfilter_sub(const Band& band, std::size_t n_bytes) noexcept {
  const std::uint8_t* in = band.in_row(0);
  std::uint8_t* out = band.out_row(0);
  constexpr int kUnits = 16 / Lanes;
  using Octets = Vector<std::uint8_t, 16>;
  using Units = Vector<Unit<Lanes>, kUnits>;
  Octets sum{};
  std::size_t at = 0;
  for (; at + Lanes <= n_bytes; at += PixelBytes) {
    Units stored{};
    stored[0] = load_unit<Lanes>(in + at);
    sum += reinterpret_cast<Octets>(stored);
    const Unit<Lanes> unit = reinterpret_cast<Units>(sum)[0];
    std::memcpy(out + at, &unit, Lanes);
  }
  unfilter_plainly(band, 0, PixelBytes, at / PixelBytes, n_bytes / PixelBytes);
}

HR_STAGE void unfilter_up(const std::uint8_t* __restrict in, const std::uint8_t* __restrict above,
                          std::uint8_t* __restrict out, std::size_t n_bytes) noexcept {
  for (std::size_t i = 0; i < n_bytes; ++i) out[i] = static_cast<std::uint8_t>(in[i] + above[i]);
}

template <int Lanes, int PixelBytes>
inline void unfilter_row(const Band& band, std::size_t n_bytes) noexcept {
  switch (band.filter(0)) {
    case kPngNone:
      std::memcpy(band.out, band.in_row(0), n_bytes);
      break;
    case kPngSub:
      unfilter_sub<Lanes, PixelBytes>(band, n_bytes);
      break;
    case kPngUp:
      unfilter_up(band.in_row(0), band.above, band.out, n_bytes);
      break;
    case kPngAverage:
      if constexpr (PixelBytes < 3)
        unfilter_plainly(band, 0, PixelBytes, 0, n_bytes / PixelBytes);
      else
        unfilter_band<1, Lanes, PixelBytes, true>(band, n_bytes);
      break;
    default:
      if constexpr (PixelBytes < 3)
        unfilter_plainly(band, 0, PixelBytes, 0, n_bytes / PixelBytes);
      else
        unfilter_band<1, Lanes, PixelBytes, false>(band, n_bytes);
  }
}

template <int Rows, int Lanes, int PixelBytes>
inline void unfilter_pixels(const UnfilterRows& job) noexcept {
  Band band{job.filtered, job.filtered_stride, job.above, job.out, job.out_stride};
  for (std::uint32_t left = job.count; left > 0;) {
    int slow = 0, averages = 0;  // rows of the next band whose pixels depend on one another, beyond a sum
    if (left >= Rows) {
      for (int r = 0; r < Rows; ++r) {
        averages += band.filter(r) == kPngAverage;
        slow += band.filter(r) == kPngAverage || band.filter(r) == kPngPaeth;
      }
    }
    int done = 1;
    if (slow < 2)
      unfilter_row<Lanes, PixelBytes>(band, job.n_bytes);
    else if (averages > 0)
      unfilter_band<Rows, Lanes, PixelBytes, true>(band, job.n_bytes), done = Rows;
    else
      unfilter_band<Rows, Lanes, PixelBytes, false>(band, job.n_bytes), done = Rows;
    left -= static_cast<std::uint32_t>(done);
    band.above = band.out_row(done - 1);
    band.out = band.out_row(done);
    band.filtered += static_cast<std::size_t>(done) * band.filtered_stride;
  }
}

}  // namespace png

inline void unfilter_rows(const UnfilterRows& job) noexcept {
  switch (job.pixel_bytes) {
    case 1:
      return png::unfilter_pixels<8, 1, 1>(job);
    case 2:
      return png::unfilter_pixels<4, 2, 2>(job);
    case 3:
      return png::unfilter_pixels<4, 4, 3>(job);
    case 4:
      return png::unfilter_pixels<4, 4, 4>(job);
    case 6:
      return png::unfilter_pixels<2, 8, 6>(job);
    default:
      return png::unfilter_pixels<2, 8, 8>(job);
  }
}
