// SPDX-License-Identifier: Apache-2.0
// One run of tiles, from bytes to pixels (spec §6). Included inside a target's namespace.
//
// Tiles of the kinds packed and coded are expanded side by side into planes as wide as the run, predicted in one wave
// and written out; the other kinds stand alone and end the run's current wave.

inline constexpr std::ptrdiff_t kPitch = kGroupColumns + kRightPad;
inline constexpr std::size_t kPlaneSamples = kLeftPad + 32 * kPitch + kRightPad;
inline constexpr std::size_t kPlaneGroups = kMaxTileWidth / 4 * 8;

// The part of a thread's memory that has the same size for all images.
struct DecodeScratch {
  ColumnTable<1> inner1;
  ColumnTable<2> inner2;
  std::uint8_t codes[kGroupColumns / 32][kMaxChannels];  // color codes of each tile of the run, by channel
};

inline std::size_t round_up(std::size_t n) { return (n + 63) / 64 * 64; }

template <class S>
class RunDecoder {
 public:
  static std::size_t scratch_bytes(const ImageHeader& h) {
    return round_up(sizeof(DecodeScratch)) + h.channels * (sizeof(PredictorMasks<2>) + sizeof(PredictorMasks<1>)) +
           round_up(h.channels * kPlaneSamples * sizeof(S)) + round_up(h.channels * kPlaneGroups + kSlack) +
           round_up(positions_bytes(h)) + round_up(tile_bytes(h) + kOverread) +
           round_up(kMaxColors * h.pixel_bytes() + kSlack) + 256;
  }

  explicit RunDecoder(const DecodeTiles& job)
      : job_(job), header_(*job.header), map_(sample_map(job)), upcoming_(next_bytes(job)) {
    std::uint8_t* p = job.scratch;
    const auto carve = [&p](std::size_t n) {
      std::uint8_t* at = p;
      p += round_up(n);
      return at;
    };
    fixed_ = reinterpret_cast<DecodeScratch*>(carve(sizeof(DecodeScratch)));
    masks2_ = reinterpret_cast<PredictorMasks<2>*>(carve(header_.channels * sizeof(PredictorMasks<2>)));
    masks1_ = reinterpret_cast<PredictorMasks<1>*>(carve(header_.channels * sizeof(PredictorMasks<1>)));
    planes_ = reinterpret_cast<S*>(carve(header_.channels * kPlaneSamples * sizeof(S)));
    grids_ = carve(header_.channels * kPlaneGroups + kSlack);
    positions_ = carve(positions_bytes(header_)) + kSlack / 2;
    tail_ = carve(tile_bytes(header_) + kOverread);
    colors_ = carve(kMaxColors * header_.pixel_bytes() + kSlack);
    fixed_->inner1.fill(0, kGroupColumns, 0xFF);
    fixed_->inner2.fill(0, kGroupColumns, 0xFF);
    for (std::uint32_t c = 0; c < kGroupColumns; c += header_.tile_width) {
      fixed_->inner1.set(c, 0);
      fixed_->inner2.set(c, 0);
    }
  }

  const char* run(std::uint32_t& bad) {
    const std::uint8_t* at = job_.first;
    const std::uint8_t* lengths = header_.tile_lengths.data() + 4 * first_tile();
    for (bad = 0; bad < job_.count; ++bad) {
      const std::size_t length = load_le<std::uint32_t>(lengths + 4 * bad);
      const std::uint8_t* bytes = at;
      at += length;
      if (static_cast<std::size_t>(job_.file_end - at) < kOverread) {
        std::memcpy(tail_, bytes, length);
        bytes = tail_;
      }
      if (const char* what = tile(bad, {bytes + 1, bytes + length}, bytes[0])) return what;
    }
    flush();
    return nullptr;
  }

 private:
  // As many bytes as this run has, dealt out over the steps of its waves.
  static Upcoming next_bytes(const DecodeTiles& job) {
    const std::ptrdiff_t n = job.end - job.first, left = job.file_end - job.end;
    const std::size_t steps = std::size_t{ceil_div(job.header->channels, 3)} * job.count * job.header->tile_width / 16;
    return {job.end, job.end + (n < left ? n : left), steps};
  }
  static std::size_t tile_bytes(const ImageHeader& h) {
    return 1 + std::size_t{h.tile_width} * kTileHeight * h.channels * sizeof(S);
  }
  // The numbers of one plane's unary section, or those of all planes' widths.
  static std::size_t positions_bytes(const ImageHeader& h) {
    const std::size_t samples = std::size_t{kMaxTileWidth} * kTileHeight, groups = h.channels * kPlaneGroups;
    return (samples > groups ? samples : groups) + 2 * kSlack;
  }
  std::uint64_t first_tile() const { return std::uint64_t{job_.tile_y} * header_.tiles_x + job_.tile_x; }
  S* plane(std::uint32_t p, std::uint32_t column) { return planes_ + p * kPlaneSamples + kLeftPad + column; }
  std::uint32_t tile_columns(std::uint32_t i) const {
    const std::uint32_t x = (job_.tile_x + i) * header_.tile_width;
    return header_.width - x < header_.tile_width ? header_.width - x : header_.tile_width;
  }
  std::uint32_t rows() const {
    const std::uint32_t y = job_.tile_y * kTileHeight;
    return header_.height - y < kTileHeight ? header_.height - y : kTileHeight;
  }
  std::uint32_t wave_column(std::uint32_t i) const { return (i - wave_first_) * header_.tile_width; }
  Window window(std::uint32_t i) const {
    return make_window(job_, (job_.tile_x + i) * header_.tile_width, job_.tile_y * kTileHeight, tile_columns(i),
                       rows());
  }
  std::uint32_t value(const std::uint8_t* p) const {
    if constexpr (sizeof(S) == 1)
      return *p;
    else
      return load_le<std::uint16_t>(p);
  }

  const char* tile(std::uint32_t i, Cursor in, std::uint8_t kind) {
    if (kind == kPacked || kind == kCoded) {
      if ((kind == kCoded) != (header_.mode == Mode::dense)) return "the kind of a tile does not belong to the mode";
      if (pending_ == 0) wave_first_ = i;
      ++pending_;
      return kind == kPacked ? packed(i, in) : coded(i, in);
    }
    flush();
    if (kind == kConstant) return constant(i, in);
    if (kind == kRaw) return raw(i, in);
    if (kind == kPalette) return palette(i, in);
    return "the kind of a tile is unknown";
  }

  const char* constant(std::uint32_t i, Cursor in) {
    const std::uint8_t* p = in.take(header_.channels * sizeof(S));
    if (!p || in.left() != 0) return "a constant tile does not have its length";
    for (std::uint32_t c = 0; c < header_.channels; ++c) map_.put(colors_ + c * map_.bytes, value(p + c * sizeof(S)));
    emit_constant(colors_, header_.pixel_bytes(), window(i));
    return nullptr;
  }

  const char* raw(std::uint32_t i, Cursor in) {
    const std::size_t row_bytes = std::size_t{tile_columns(i)} * header_.channels * sizeof(S);
    const std::uint8_t* p = in.take(row_bytes * rows());
    if (!p || in.left() != 0) return "a raw tile does not have its length";
    const Window v = window(i);
    const std::size_t n = std::size_t{v.right - v.left} * header_.channels;
    for (std::uint32_t y = v.top; y < v.bottom; ++y) {
      const std::uint8_t* from = p + y * row_bytes + std::size_t{v.left} * header_.channels * sizeof(S);
      std::uint8_t* out = v.out + static_cast<std::ptrdiff_t>(y - v.top) * v.row_stride;
      if (map_.identity()) {
        std::memcpy(out, from, n * sizeof(S));
      } else {
        for (std::size_t k = 0; k < n; ++k) map_.put(out + k * map_.bytes, value(from + k * sizeof(S)));
      }
    }
    return nullptr;
  }

  const char* palette(std::uint32_t i, Cursor in);
  const char* packed(std::uint32_t i, Cursor in);
  const char* coded(std::uint32_t i, Cursor in);
  const char* color(std::uint32_t i, Cursor& in);
  void flush();
  template <int P>
  void wave_planes(std::uint32_t first_plane, std::uint32_t columns);

  const DecodeTiles& job_;
  const ImageHeader& header_;
  const SampleMap map_;
  DecodeScratch* fixed_;
  PredictorMasks<2>* masks2_;
  PredictorMasks<1>* masks1_;
  S* planes_;
  std::uint8_t* grids_;      // widths or classes of all planes
  std::uint8_t* positions_;  // the byte before it stands for bit -1
  std::uint8_t* tail_;
  std::uint8_t* colors_;          // of a palette, in output form
  std::uint32_t wave_first_ = 0;  // first tile of the run that waits for its wave
  std::uint32_t pending_ = 0;     // how many do
  bool all_med_avg_ = true;
  Upcoming upcoming_;
};

template <class S>
const char* RunDecoder<S>::color(std::uint32_t i, Cursor& in) {
  const std::uint32_t channels = header_.channels;
  const std::uint8_t* p = in.take(ceil_div(channels, 4));
  if (!p) return "a tile is cut short";
  std::uint8_t* codes = fixed_->codes[i];
  for (std::uint32_t c = 0; c < ceil_div(channels, 4) * 4; ++c) {
    const std::uint8_t code = (p[c / 4] >> (2 * (c % 4))) & 3;
    const std::uint32_t highest = c >= channels || c == coded_channel(0, channels) ? 0 : c == 0 ? 1 : 2;
    if (code > highest) return "a color code is out of range";
    if (c < channels) codes[c] = code;
  }
  return nullptr;
}

template <class S>
const char* RunDecoder<S>::packed(std::uint32_t i, Cursor in) {
  if (const char* what = color(i, in)) return what;
  const std::uint32_t w = tile_columns(i), h = rows(), channels = header_.channels;
  const std::uint32_t groups_x = ceil_div(w, 4), groups_y = ceil_div(h, 4), groups = groups_x * groups_y;
  const std::uint8_t* predictors = in.take(ceil_div(channels, 2));
  const std::uint8_t* length = in.take(2);
  if (!predictors || !length) return "a tile is cut short";
  const std::size_t width_bytes = load_le<std::uint16_t>(length);
  const std::uint8_t* widths_at = in.take(width_bytes);
  if (!widths_at || !valid_unary(widths_at, width_bytes, std::size_t{groups} * channels))
    return "the widths of a tile are not valid";
  const std::uint32_t column = wave_column(i);
  std::uint8_t* grid = grids_;
  signed_numbers(widths_at, width_bytes, std::size_t{groups} * channels, positions_, grid);
  std::size_t payload = 0;
  for (std::uint32_t p = 0; p < channels; ++p) {
    std::uint8_t* b = grid + std::size_t{p} * groups;
    if (!sum_widths(b, groups_x, groups_y, 8 * sizeof(S), payload)) return "a width is out of range";
  }
  if (2 * payload != in.left()) return "the samples of a tile do not have their length";
  const Ahead ahead(window(i), header_.pixel_bytes(), channels * groups_y);
  for (std::uint32_t p = 0; p < channels; ++p) {
    const unsigned predictor = (predictors[p / 2] >> (4 * (p % 2))) & 15;
    if (predictor > kMedAvg) return "a predictor is out of range";
    all_med_avg_ = all_med_avg_ && predictor == kMedAvg;
    masks1_[p].fill(column, w, predictor);
    in.at = expand_groups(in.at, grid + std::size_t{p} * groups, groups_x, groups_y, plane(p, column), kPitch, ahead,
                          p * groups_y);
    finish_edges(plane(p, column), kPitch, w, h);
  }
  if (channels % 2 == 1 && predictors[channels / 2] >> 4 != 0) return "unused bits are not 0";
  return nullptr;
}

template <class S>
const char* RunDecoder<S>::coded(std::uint32_t i, Cursor in) {
  if (const char* what = color(i, in)) return what;
  const std::uint32_t w = tile_columns(i), h = rows(), channels = header_.channels;
  const std::uint32_t blocks_x = ceil_div(w, 8), blocks_y = ceil_div(h, 8), blocks = blocks_x * blocks_y;
  const std::uint32_t strips = ceil_div(w, kStrip), strip_bytes = ceil_div(strips, 2);
  const std::uint8_t* predictors = in.take(std::size_t{channels} * strip_bytes);
  const std::uint8_t* lengths = in.take(2 + 2 * std::size_t{channels} + (sizeof(S) == 2 ? 2 : 0));
  if (!predictors || !lengths) return "a tile is cut short";
  const std::size_t class_bytes = load_le<std::uint16_t>(lengths);
  const std::uint8_t* classes_at = in.take(class_bytes);
  if (!classes_at || !valid_unary(classes_at, class_bytes, std::size_t{blocks} * channels))
    return "the classes of a tile are not valid";
  std::uint8_t* grid = grids_;
  signed_numbers(classes_at, class_bytes, std::size_t{blocks} * channels, positions_, grid);

  constexpr auto& table = class_table<8 * sizeof(S)>();
  constexpr std::uint32_t classes = sizeof(S) == 1 ? kClasses8 : kClasses16;
  std::size_t raw_bytes = 0;
  std::size_t numbers[kMaxChannels];
  for (std::uint32_t p = 0; p < channels; ++p) {
    std::uint8_t* c = grid + std::size_t{p} * blocks;
    if (!sum_classes(c, blocks_x, blocks_y, classes)) return "a class is out of range";
    numbers[p] = 0;
    for (std::uint32_t k = 0; k < blocks; ++k) {
      numbers[p] += table[c[k]].numbers;
      raw_bytes += 8 * std::size_t{table[c[k]].raw_bits};
    }
  }
  const std::uint8_t* raw_at = in.take(raw_bytes);
  if (!raw_at) return "the raw bits of a tile are cut short";
  const std::uint8_t* unary[kMaxChannels];
  for (std::uint32_t p = 0; p < channels; ++p) {
    const std::size_t n = load_le<std::uint16_t>(lengths + 2 + 2 * p);
    unary[p] = in.take(n);
    if (!unary[p] || !valid_unary(unary[p], n, numbers[p])) return "a unary section of a tile is not valid";
  }
  Cursor escapes{in.at, in.at};
  if constexpr (sizeof(S) == 2) {
    const std::size_t n = 2 * std::size_t{load_le<std::uint16_t>(lengths + 2 + 2 * channels)};
    if (!in.take(n)) return "the escapes of a tile are cut short";
    escapes.end = in.at;
  }
  const std::uint8_t* extra = in.at;
  const std::uint64_t extra_end = 8 * std::uint64_t{in.left()};
  std::uint64_t extra_at = 0;

  const std::uint32_t column = wave_column(i);
  const Ahead ahead(window(i), header_.pixel_bytes(), channels * blocks_y);
  for (std::uint32_t p = 0; p < channels; ++p) {
    const std::uint8_t* ids = predictors + p * strip_bytes;
    for (std::uint32_t s = 0; s < 2 * strip_bytes; ++s) {
      const unsigned id = (ids[s / 2] >> (4 * (s % 2))) & 15;
      if (id >= kPredictors || (s >= strips && id != 0)) return "a predictor is out of range";
      if (s < strips) masks2_[p].fill(column + s * kStrip, kStrip, id);
    }
    masks2_[p].north_east.set(column + w - 1, 0);
    positions_[-1] = 0xFF;
    positions(unary[p], load_le<std::uint16_t>(lengths + 2 + 2 * p), positions_);
    if (!expand_blocks(grid + std::size_t{p} * blocks, blocks_x, blocks_y, positions_, raw_at, extra, extra_at,
                       extra_end, escapes, plane(p, column), kPitch, ahead, p * blocks_y))
      return "the escapes or extra bits of a tile run out";
    finish_edges(plane(p, column), kPitch, w, h);
  }
  if (escapes.left() != 0) return "the escapes of a tile do not have their number";
  if (extra_at > extra_end || extra_end - extra_at >= 8 ||
      (extra_end != extra_at && extra[extra_at / 8] >> (extra_at % 8) != 0))
    return "the extra bits of a tile do not have their length";
  return nullptr;
}

template <class S>
const char* RunDecoder<S>::palette(std::uint32_t i, Cursor in) {
  const std::uint32_t w = tile_columns(i), h = rows(), channels = header_.channels;
  const std::uint32_t blocks_x = ceil_div(w, 8), blocks = blocks_x * ceil_div(h, 8);
  const std::uint8_t* count = in.take(1);
  if (!count || *count < 2) return "a palette has fewer than two colors";
  const std::uint32_t colors = *count;
  const std::uint8_t* entries = in.take(std::size_t{colors} * channels * sizeof(S));
  const std::uint8_t* flags = in.take(ceil_div(blocks, 8));
  if (!entries || !flags) return "a palette tile is cut short";
  for (std::uint32_t k = 0; k < colors; ++k) {
    const std::uint8_t* e = entries + std::size_t{k} * channels * sizeof(S);
    int order = k == 0 ? 1 : 0;  // of this color against the one before
    for (std::uint32_t c = 0; c < channels; ++c) {
      const std::uint32_t v = value(e + c * sizeof(S));
      if (order == 0) {
        const std::uint32_t u = value(e + c * sizeof(S) - channels * sizeof(S));
        order = v > u ? 1 : v < u ? -1 : 0;
      }
      map_.put(colors_ + (std::size_t{k} * channels + c) * map_.bytes, v);
    }
    if (order <= 0) return "the colors of a palette are not strictly ascending";
  }
  if (blocks % 8 != 0 && flags[blocks / 8] >> (blocks % 8) != 0) return "unused bits are not 0";
  const std::size_t block_count = count_ones(flags, ceil_div(blocks, 8));
  const std::uint8_t* row_masks = in.take(block_count);
  if (!row_masks) return "a palette tile is cut short";
  const std::size_t row_count = count_ones(row_masks, block_count);
  const std::uint8_t* sample_masks = in.take(row_count);
  if (!sample_masks) return "a palette tile is cut short";
  const std::size_t exceptions = count_ones(sample_masks, row_count);
  const unsigned bits = 32U - static_cast<unsigned>(__builtin_clz(colors - 1));
  const std::size_t number_bytes = (exceptions * bits + 7) / 8;
  const std::uint8_t* numbers = in.take(number_bytes);
  if (!numbers || in.left() != 0) return "a palette tile does not have its length";
  if (exceptions * bits % 8 != 0 && numbers[number_bytes - 1] >> (exceptions * bits % 8) != 0)
    return "unused bits are not 0";

  std::uint8_t* to = reinterpret_cast<std::uint8_t*>(planes_) + kLeftPad;
  for (std::uint32_t y = 0; y < (h + 7) / 8 * 8; ++y)
    std::memset(to + static_cast<std::ptrdiff_t>(y) * kPitch, 0, blocks_x * 8);
  std::size_t at = 0;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    if (((flags[b / 8] >> (b % 8)) & 1) == 0) continue;
    unsigned row_mask = *row_masks++;
    if (row_mask == 0) return "a block of a palette tile has no exceptions";
    for (; row_mask != 0; row_mask &= row_mask - 1) {
      const std::uint32_t y = b / blocks_x * 8 + static_cast<std::uint32_t>(__builtin_ctz(row_mask));
      unsigned mask = *sample_masks++;
      if (mask == 0) return "a row of a palette tile has no exceptions";
      for (; mask != 0; mask &= mask - 1) {
        const std::uint32_t x = b % blocks_x * 8 + static_cast<std::uint32_t>(__builtin_ctz(mask));
        const std::uint32_t number = (load_le<std::uint32_t>(numbers + (at >> 3)) >> (at & 7)) & ((1U << bits) - 1);
        at += bits;
        if (number >= colors || x >= w || y >= h) return "an exception of a palette tile is out of range";
        to[static_cast<std::ptrdiff_t>(y) * kPitch + x] = static_cast<std::uint8_t>(number + 1);
      }
    }
  }
  // Row 0 and column 0 have simple predictions; made explicit, they need no care in the wave.
  std::uint8_t last = 1;
  for (std::uint32_t x = 0; x < w; ++x) to[x] = last = to[x] ? to[x] : last;
  last = to[0];
  for (std::uint32_t y = 1; y < h; ++y) {
    std::uint8_t& e = to[static_cast<std::ptrdiff_t>(y) * kPitch];
    e = last = e ? e : last;
  }
  palette_wave(to, kPitch, w, h);
  emit_palette(to, kPitch, colors_, colors, header_.pixel_bytes(), window(i));
  return nullptr;
}

template <class S>
template <int P>
void RunDecoder<S>::wave_planes(std::uint32_t first_plane, std::uint32_t columns) {
  S* planes[P];
  const PredictorMasks<1>* masks1[P];
  const PredictorMasks<2>* masks2[P];
  for (int p = 0; p < P; ++p) {
    planes[p] = plane(first_plane + p, 0);
    masks1[p] = masks1_ + first_plane + p;
    masks2[p] = masks2_ + first_plane + p;
  }
  if (header_.mode == Mode::dense)
    wave<S, P, 2, false>(planes, kPitch, columns, rows(), fixed_->inner2, masks2, upcoming_);
  else if (all_med_avg_)
    wave<S, P, 1, true>(planes, kPitch, columns, rows(), fixed_->inner1, masks1, upcoming_);
  else
    wave<S, P, 1, false>(planes, kPitch, columns, rows(), fixed_->inner1, masks1, upcoming_);
}

// Predict the tiles that wait, all planes in one wave of up to three, and write them out.
template <class S>
void RunDecoder<S>::flush() {
  if (pending_ == 0) return;
  const std::uint32_t last = wave_first_ + pending_ - 1, channels = header_.channels;
  const std::uint32_t columns = wave_column(last) + tile_columns(last);
  std::uint32_t p = 0;
  for (; p + 3 <= channels; p += 3) wave_planes<3>(p, columns);
  if (channels - p == 2) wave_planes<2>(p, columns);
  if (channels - p == 1) wave_planes<1>(p, columns);
  EmitTile<S> tiles[kGroupColumns / 32];
  for (std::uint32_t i = 0; i < pending_; ++i) {
    for (std::uint32_t k = 0; k < channels; ++k)
      tiles[i].channel[coded_channel(k, channels)] = plane(k, wave_column(wave_first_ + i));
    tiles[i].codes = fixed_->codes[wave_first_ + i];
    tiles[i].window = window(wave_first_ + i);
  }
  emit(tiles, pending_, kPitch, channels, map_);
  pending_ = 0;
  all_med_avg_ = true;
}

template <class S>
const char* decode_run(const DecodeTiles& job, std::uint32_t& bad) {
  return RunDecoder<S>(job).run(bad);
}

inline std::size_t decode_scratch_bytes(const ImageHeader& header) noexcept {
  return header.coded_bits == 8 ? RunDecoder<std::uint8_t>::scratch_bytes(header)
                                : RunDecoder<std::uint16_t>::scratch_bytes(header);
}

inline const char* decode_tiles(const DecodeTiles& job, std::uint32_t& bad) noexcept {
  return job.header->coded_bits == 8 ? decode_run<std::uint8_t>(job, bad) : decode_run<std::uint16_t>(job, bad);
}
