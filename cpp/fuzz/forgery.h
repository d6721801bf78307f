// SPDX-License-Identifier: Apache-2.0
// Index rows and transforms from a fuzzer's bytes: mostly true ones, so that a run gets as far as the lie reaches.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "loading/batch.h"
#include "picture.h"

namespace headrace::fuzz {

// A number in place of `truth`: next to it, with one bit flipped, of those at which sums and products wrap, or any.
inline std::uint64_t forge(Reader& reader, std::uint64_t truth) {
  constexpr std::uint64_t kEdges[] = {
      0,          1,          255,        256,         65535,      65536,      (1 << 24) - 1,
      1 << 24,    0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,  1ULL << 32, 1ULL << 47, (1ULL << 62),
      1ULL << 63, ~0ULL,      ~0ULL - 63, ~0ULL - 4095};
  switch (reader.byte() % 6) {
    case 0:
      return truth + reader.byte() - 128;
    case 1:
      return truth ^ (1ULL << reader.byte() % 64);
    case 2:
      return kEdges[reader.byte() % std::size(kEdges)];
    case 3:
      return kEdges[reader.byte() % std::size(kEdges)] - truth;
    case 4:
      return truth * reader.byte();
    default: {
      std::uint64_t value = 0;
      for (int i = 0; i < 8; ++i) value = value << 8 | reader.byte();
      return value >> reader.byte() % 64;
    }
  }
}

// Forge some columns of an index row, within the types that the columns have. True if none was.
inline bool forge_row(Reader& reader, Rendition& r) {
  // A row of lies fails at the first one: most have one.
  std::uint32_t columns = 0;
  const std::uint32_t choice = reader.byte();
  if (choice < 112) columns = 1U << choice % 9;
  if (choice >= 112 && choice < 144) columns = reader.pair();
  if (columns & 1) r.shard = static_cast<std::uint32_t>(forge(reader, r.shard));
  if (columns & 2) r.offset = forge(reader, r.offset);
  if (columns & 4) r.length = forge(reader, r.length);
  if (columns & 8) r.format = static_cast<Format>(static_cast<std::uint8_t>(forge(reader, std::uint64_t(r.format))));
  if (columns & 16) r.checksum = static_cast<std::uint32_t>(forge(reader, r.checksum));
  if (columns & 32) r.shape.height = static_cast<std::uint32_t>(forge(reader, r.shape.height));
  if (columns & 64) r.shape.width = static_cast<std::uint32_t>(forge(reader, r.shape.width));
  if (columns & 128) r.shape.type.channels = static_cast<std::uint8_t>(forge(reader, r.shape.type.channels));
  if (columns & 256) {
    const auto dtype = static_cast<std::uint8_t>(forge(reader, 1));
    r.shape.type.depth = dtype == 0 ? 0 : dtype == 1 ? 8 : 16;
    r.shape.type.is_signed = dtype == 3;
    r.shape.has_color = may_have_color(r.shape.type.channels) && dtype > 3;
  }
  return (columns & 511) == 0;
}

inline Op make_op(Reader& reader) {
  const auto side = [&] { return static_cast<double>(1 + reader.byte() % 80); };
  const auto choice = [&](std::uint32_t n) { return static_cast<double>(reader.byte() % n); };
  const auto share = [&] { return reader.byte() / 255.0; };
  const double levels[] = {0, 7, 255};
  switch (reader.byte() % 9) {
    case 0:
      return {OpKind::resize, {choice(2), side(), side(), choice(4), choice(2)}};
    case 1:
      return {OpKind::center_crop, {side(), side()}};
    case 2:
      return {OpKind::random_crop, {side(), side(), choice(2), levels[reader.byte() % 3], choice(3)}};
    case 3:
      return {OpKind::random_resized_crop, {side(), side(), 0.05, 1, 0.75, 4.0 / 3, choice(4), choice(2)}};
    case 4:
      return {OpKind::horizontal_flip, {share()}};
    case 5:
      return {OpKind::vertical_flip, {share()}};
    case 6:
      return {OpKind::pad, {choice(9), choice(9), choice(9), choice(9), levels[reader.byte() % 3], choice(3)}};
    case 7:
      return {OpKind::color_jitter, {0.5, 1.5, 0.5, 1.5, 0.5, 1.5, -0.1, 0.1}};
    default:
      return {OpKind::grayscale, {1, choice(2) == 0 ? 1.0 : 3.0}};
  }
}

inline Transform make_transform(Reader& reader) {
  Transform transform;
  const std::uint32_t first = reader.byte(), n = first % 4, options = reader.byte(), dtype = reader.byte();
  // Large images take most of the time and little of the code: one program in 64 may make them.
  if (first < 252) transform.max_pixels = 1 << 16;
  for (std::uint32_t i = 0; i < n; ++i) transform.ops.push_back(make_op(reader));
  if (!check_ops(transform.ops)) transform.ops.clear();
  transform.layout = options & 1 ? Layout::hwc : Layout::chw;
  transform.mask = (options & 12) == 12;
  if (transform.mask)
    transform.color = Color::keep;
  else
    transform.color = options & 2 ? Color::rgb : options & 4 ? Color::automatic : Color::keep;
  transform.approximate_jpeg = options & 16;
  if (dtype % 8 < 5) transform.dtype = static_cast<DType>(dtype % 8);
  if ((options & 96) == 96) {
    transform.dtype = DType::float32;
    transform.mean.assign(options & 128 ? 1 : 3, 0.5);
    transform.std.assign(transform.mean.size(), 0.25);
  }
  return transform;
}

}  // namespace headrace::fuzz
