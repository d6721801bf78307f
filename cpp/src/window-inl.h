// SPDX-License-Identifier: Apache-2.0
// Where a tile's pixels go. Included inside a target's namespace.

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

inline void prefetch_for_write(const std::uint8_t* p) {
#if defined(HEADRACE_X86)
  // GCC drops its builtin unless told that the CPU has this instruction; those that do not treat it as a no-op.
  asm volatile("prefetchw %0" : : "m"(*p));
#else
  __builtin_prefetch(p, 1, 3);
#endif
}

// Asks for the cache lines that pixels will be written to, long before they are: an output that is not in the cache
// costs a fifth of a decode in mode fast when its lines are waited for at the end (Ice Lake, kodak). The rows of a tile
// are asked for while it is expanded, dealt out evenly over `steps` calls of fetch.
class Ahead {
 public:
  Ahead(const Window& v, std::uint32_t pixel_bytes, std::uint32_t steps)
      : out_(v.out),
        stride_(v.row_stride),
        row_bytes_(v.empty() ? 0 : std::size_t{v.right - v.left} * pixel_bytes),
        rows_(v.empty() ? 0 : v.bottom - v.top),
        steps_(steps) {}

  void fetch(std::uint32_t step) const {
    const std::uint32_t end = (step + 1) * rows_ / steps_;
    for (std::uint32_t y = step * rows_ / steps_; y < end; ++y)
      for (std::size_t i = 0; i < row_bytes_; i += 64)
        prefetch_for_write(out_ + static_cast<std::ptrdiff_t>(y) * stride_ + i);
  }

 private:
  const std::uint8_t* out_;
  std::ptrdiff_t stride_;
  std::size_t row_bytes_;
  std::uint32_t rows_, steps_;
};

// Asks for the bytes that are decoded next, a little at a time, while others are.
class Upcoming {
 public:
  Upcoming(const std::uint8_t* begin, const std::uint8_t* end, std::size_t steps)
      : at_(begin), end_(end), step_((static_cast<std::size_t>(end - begin) / steps + 64) / 64 * 64) {}

  void fetch() {
    const std::size_t left = static_cast<std::size_t>(end_ - at_), n = left < step_ ? left : step_;
    for (std::size_t i = 0; i < n; i += 64) __builtin_prefetch(at_ + i, 0, 2);
    at_ += n;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
  std::size_t step_;
};
