// SPDX-License-Identifier: Apache-2.0
#include "runs.h"

#include <new>

#include "bytes.h"

namespace headrace {

std::unique_ptr<std::uint16_t[]> rank_values(const ImageHeader& header) noexcept {
  std::unique_ptr<std::uint16_t[]> values(new (std::nothrow) std::uint16_t[header.rank_count]);
  if (!values) return values;
  const std::uint16_t flip = header.is_signed ? 0x8000 : 0;
  if (header.ranks[0] == 0) {
    for (std::uint32_t i = 0; i < header.rank_count; ++i) {
      const std::uint8_t* p = &header.ranks[5 + std::size_t{i} * header.sample_bytes()];
      values[i] = header.depth == 8 ? *p : static_cast<std::uint16_t>(load_le<std::uint16_t>(p) ^ flip);
    }
  } else {
    const std::uint32_t first = load_le<std::uint16_t>(&header.ranks[1]);
    std::uint32_t rank = 0;
    for (std::uint32_t k = 0; k < 8 * (header.ranks.size() - 3); ++k)
      if ((header.ranks[3 + k / 8] >> (k % 8)) & 1) values[rank++] = static_cast<std::uint16_t>((first + k) ^ flip);
  }
  return values;
}

Status decode_run(const Kernels& k, DecodeTiles& job, std::uint64_t offset) noexcept {
  const ImageHeader& h = *job.header;
  const std::uint64_t first = std::uint64_t{job.tile_y} * h.tiles_x + job.tile_x;
  const auto length = [&](std::uint64_t i) { return load_le<std::uint32_t>(&h.tile_lengths[4 * (first + i)]); };
  const auto fail = [&](const char* what, std::uint32_t bad) {
    std::uint64_t at = offset;
    for (std::uint32_t i = 0; i < bad; ++i) at += length(i);
    return Status{Code::corrupt, what, at, static_cast<std::int64_t>(first + bad)};
  };
  const std::uint8_t* at = job.first;
  for (std::uint32_t i = 0; i < job.count; ++i) {
    if (crc32c({at, length(i)}) != load_le<std::uint32_t>(&h.tile_sums[4 * (first + i)]))
      return fail("the checksum of a tile does not match", i);
    at += length(i);
  }
  job.end = at;
  std::uint32_t bad = 0;
  if (const char* what = k.decode_tiles(job, bad)) return fail(what, bad);
  return {};
}

}  // namespace headrace
