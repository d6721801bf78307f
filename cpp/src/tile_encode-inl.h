// SPDX-License-Identifier: Apache-2.0
// One tile, from pixels to the shortest of the kinds that fit it (spec §6). Included inside a target's namespace.
//
// Every decision is made in integers that all targets compute alike: the bytes do not depend on the target.

inline constexpr std::ptrdiff_t kEncodePitch = kMaxTileWidth + 64;
inline constexpr std::ptrdiff_t kEncodeLeft = 32;  // columns before column 0 that vectors may read
inline constexpr std::size_t kEncodePlane = 33 * kEncodePitch;

#include "encode_planes-inl.h"
#include "encode_bits-inl.h"
#include "encode_palette-inl.h"

template <class S>
class TileEncoder {
 public:
  static std::size_t scratch_bytes(std::uint32_t channels) {
    return round_up(channels * kEncodePlane * sizeof(S)) + 3 * round_up(kEncodePlane * sizeof(S)) +
           round_up(channels * kPlaneGroups + kSlack) + 4 * round_up(stream_bytes(channels)) +
           round_up(sizeof(PaletteScratch));
  }

  explicit TileEncoder(const EncodeTile& job) : job_(job), channels_(job.pixels->channels) {
    std::uint8_t* p = job.scratch;
    const auto carve = [&p](std::size_t n) {
      std::uint8_t* at = p;
      p += round_up(n);
      return at;
    };
    values_ = reinterpret_cast<S*>(carve(channels_ * kEncodePlane * sizeof(S)));
    plane_ = reinterpret_cast<S*>(carve(kEncodePlane * sizeof(S))) + kEncodeLeft;
    residuals_ = reinterpret_cast<S*>(carve(kEncodePlane * sizeof(S))) + kEncodeLeft;
    trial_ = reinterpret_cast<S*>(carve(kEncodePlane * sizeof(S))) + kEncodeLeft;
    grid_ = carve(channels_ * kPlaneGroups + kSlack);
    raw_ = carve(stream_bytes(channels_));
    unary_ = carve(stream_bytes(channels_));
    extra_ = carve(stream_bytes(channels_));
    escapes_ = carve(stream_bytes(channels_));
    palette_ = reinterpret_cast<PaletteScratch*>(carve(sizeof(PaletteScratch)));
  }

  std::size_t run() {
    load_values();
    if (is_constant()) return constant();
    const std::size_t raw_bytes = 1 + std::size_t{job_.w} * job_.h * channels_ * sizeof(S);
    std::size_t best = 0;
    if (channels_ * sizeof(S) <= 8 && has_runs(value_plane(coded_channel(0, channels_)), job_.w, job_.h)) {
      best = encode_palette(value_planes(), channels_, job_.w, job_.h, *palette_, job_.out);
      if (best >= raw_bytes) best = 0;
    }
    std::uint8_t* const other = job_.out + best;
    const std::size_t n = job_.mode == Mode::fast ? packed(other) : coded(other);
    // A palette of many exceptions decodes slowly: it must save an eighth where speed is what counts.
    const std::size_t worth = job_.mode == Mode::fast ? best + best / 8 : best;
    if (n > 0 && n < raw_bytes && (best == 0 || n < worth)) {
      std::memmove(job_.out, other, n);
      return n;
    }
    return best > 0 ? best : raw();
  }

 private:
  static std::size_t stream_bytes(std::uint32_t channels) {
    return 4 * std::size_t{channels} * kMaxTileWidth * kTileHeight * sizeof(S) + kSlack;
  }
  S* value_plane(std::uint32_t c) { return values_ + c * kEncodePlane + kEncodeLeft; }
  PlaneSet<S> value_planes() { return {values_ + kEncodeLeft, kEncodePlane}; }

  void load_values() {
    load_tile(job_, value_planes());
    for (std::uint32_t c = 0; c < channels_; ++c) pad_columns(value_plane(c), job_.w, job_.h);
  }

  bool is_constant() {
    for (std::uint32_t c = 0; c < channels_; ++c) {
      const S* v = value_plane(c);
      for (std::uint32_t y = 0; y < job_.h; ++y)
        for (std::uint32_t x = 0; x < job_.w; ++x)
          if (v[y * kEncodePitch + x] != v[0]) return false;
    }
    return true;
  }

  std::size_t constant() {
    job_.out[0] = kConstant;
    for (std::uint32_t c = 0; c < channels_; ++c) store_le(job_.out + 1 + c * sizeof(S), *value_plane(c));
    return 1 + channels_ * sizeof(S);
  }

  std::size_t raw() {
    std::uint8_t* to = job_.out;
    *to++ = kRaw;
    for (std::uint32_t y = 0; y < job_.h; ++y)
      for (std::uint32_t x = 0; x < job_.w; ++x)
        for (std::uint32_t c = 0; c < channels_; ++c, to += sizeof(S))
          store_le(to, value_plane(c)[y * kEncodePitch + x]);
    return static_cast<std::size_t>(to - job_.out);
  }

  // Writes the color bytes, returns the codes by channel.
  std::uint8_t* color(std::uint8_t* to, std::uint8_t* codes) {
    choose_colors(value_planes(), channels_, job_.w, job_.h, codes);
    for (std::uint32_t i = 0; i < ceil_div(channels_, 4); ++i) {
      *to = 0;
      for (std::uint32_t c = 4 * i; c < channels_ && c < 4 * i + 4; ++c)
        *to |= static_cast<std::uint8_t>(codes[c] << (2 * (c % 4)));
      ++to;
    }
    return to;
  }

  // The plane that channel c is coded as: its values, or the differences to its reference.
  const S* coded_plane(std::uint32_t c, unsigned code) {
    if (code == 0) return value_plane(c);
    const S* previous = value_plane(c == 0 ? 1 : c - 1);
    subtract_reference(value_plane(c), previous, code == 2 ? value_plane(c - 2) : previous, job_.w, job_.h, plane_);
    pad_columns(plane_, job_.w, job_.h);
    return plane_;
  }

  std::size_t packed(std::uint8_t* const out);
  std::size_t coded(std::uint8_t* const out);

  const EncodeTile& job_;
  const std::uint32_t channels_;
  S* values_;     // by channel
  S* plane_;      // the plane at work
  S* residuals_;  // its residuals, as zigzag numbers in a coded tile
  S* trial_;      // residuals on trial, or blocks back to back
  std::uint8_t* grid_;
  std::uint8_t* raw_;
  std::uint8_t* unary_;
  std::uint8_t* extra_;
  std::uint8_t* escapes_;
  PaletteScratch* palette_;
};

template <class S>
std::size_t TileEncoder<S>::packed(std::uint8_t* const out) {
  const std::uint32_t w = job_.w, h = job_.h;
  const std::uint32_t groups_x = ceil_div(w, 4), groups_y = ceil_div(h, 4), groups = groups_x * groups_y;
  std::uint8_t codes[kMaxChannels];
  std::uint8_t* to = out;
  *to++ = kPacked;
  to = color(to, codes);
  std::uint8_t* const predictors = to;
  std::memset(predictors, 0, ceil_div(channels_, 2));
  to += ceil_div(channels_, 2);
  std::uint8_t* payload = raw_;
  UnaryWriter widths(unary_);
  for (std::uint32_t p = 0; p < channels_; ++p) {
    const std::uint32_t c = coded_channel(p, channels_);
    const S* plane = coded_plane(c, codes[c]);
    const unsigned id = choose_packed_predictor(plane, w, h, residuals_, trial_, grid_);
    predictors[p / 2] |= static_cast<std::uint8_t>(id << (4 * (p % 2)));
    std::uint8_t* b = grid_;
    group_widths(residuals_, groups_x, groups_y, b);
    for (std::uint32_t x = 0; x < groups_x; ++x)
      widths.put(zigzag8(b[x] - (x > 0 ? b[x - 1] : static_cast<int>(kFirstWidth))));
    std::uint32_t g = groups_x;
    for (; g + 32 <= groups; g += 32) {
      std::uint8_t numbers[32];
      store(numbers, do_zigzag(sub(load(b + g), load(b + g - groups_x))));
      for (int i = 0; i < 32; i += 8) widths.put8(load_le<std::uint64_t>(numbers + i));
    }
    for (; g < groups; ++g) widths.put(zigzag8(b[g] - b[g - groups_x]));
    payload = pack_groups(residuals_, b, groups_x, groups_y, payload);
  }
  const std::size_t width_bytes = widths.finish();
  if (width_bytes > 0xFFFF) return 0;
  store_le(to, static_cast<std::uint16_t>(width_bytes));
  to += 2;
  std::memcpy(to, unary_, width_bytes);
  to += width_bytes;
  const std::size_t payload_bytes = static_cast<std::size_t>(payload - raw_);
  std::memcpy(to, raw_, payload_bytes);
  return static_cast<std::size_t>(to - out) + payload_bytes;
}

template <class S>
std::size_t TileEncoder<S>::coded(std::uint8_t* const out) {
  const std::uint32_t w = job_.w, h = job_.h;
  const std::uint32_t blocks_x = ceil_div(w, 8), blocks_y = ceil_div(h, 8), blocks = blocks_x * blocks_y;
  const std::uint32_t strips = ceil_div(w, kStrip), strip_bytes = ceil_div(strips, 2);
  std::uint8_t codes[kMaxChannels];
  std::uint8_t* to = out;
  *to++ = kCoded;
  to = color(to, codes);
  std::uint8_t* const predictors = to;
  std::memset(predictors, 0, std::size_t{channels_} * strip_bytes);
  to += std::size_t{channels_} * strip_bytes;
  std::uint8_t* const lengths = to;
  to += 2 + 2 * channels_ + (sizeof(S) == 2 ? 2 : 0);
  std::uint8_t* raw = raw_;
  std::uint8_t* unary_end = unary_;
  std::uint8_t* escapes = escapes_;
  BitWriter extra(extra_);
  UnaryWriter classes(to);
  for (std::uint32_t p = 0; p < channels_; ++p) {
    const std::uint32_t c = coded_channel(p, channels_);
    const S* plane = coded_plane(c, codes[c]);
    std::uint8_t ids[kMaxTileWidth / kStrip];
    choose_predictors(plane, w, h, ids);
    for (std::uint32_t s = 0; s < strips; ++s)
      predictors[p * strip_bytes + s / 2] |= static_cast<std::uint8_t>(ids[s] << (4 * (s % 2)));
    zigzag_residuals(plane, w, h, ids, residuals_);
    gather_blocks(residuals_, blocks_x, blocks_y, trial_);
    choose_classes(trial_, blocks_x, blocks_y, grid_, classes);
    UnaryWriter unary(unary_end);
    for (std::uint32_t b = 0; b < blocks; ++b)
      if (grid_[b] != 0) raw = write_block(trial_ + 64 * b, grid_[b], raw, unary, extra, escapes);
    const std::size_t n = unary.finish();
    if (n > 0xFFFF) return 0;
    store_le(lengths + 2 + 2 * p, static_cast<std::uint16_t>(n));
    unary_end += n;
  }
  const std::size_t class_bytes = classes.finish(), extra_bytes = extra.finish();
  if (class_bytes > 0xFFFF) return 0;
  store_le(lengths, static_cast<std::uint16_t>(class_bytes));
  to += class_bytes;
  const auto append = [&to](const std::uint8_t* from, std::size_t n) {
    std::memcpy(to, from, n);
    to += n;
  };
  append(raw_, static_cast<std::size_t>(raw - raw_));
  append(unary_, static_cast<std::size_t>(unary_end - unary_));
  if constexpr (sizeof(S) == 2) {
    const std::size_t escape_bytes = static_cast<std::size_t>(escapes - escapes_);
    if (escape_bytes / 2 > 0xFFFF) return 0;
    store_le(lengths + 2 + 2 * channels_, static_cast<std::uint16_t>(escape_bytes / 2));
    append(escapes_, escape_bytes);
  }
  append(extra_, extra_bytes);
  return static_cast<std::size_t>(to - out);
}

inline std::size_t encode_scratch_bytes(std::uint32_t channels, std::uint32_t coded_bits) noexcept {
  return coded_bits == 8 ? TileEncoder<std::uint8_t>::scratch_bytes(channels)
                         : TileEncoder<std::uint16_t>::scratch_bytes(channels);
}

inline std::size_t encode_tile(const EncodeTile& job) noexcept {
  return job.coded_bits == 8 ? TileEncoder<std::uint8_t>(job).run() : TileEncoder<std::uint16_t>(job).run();
}
