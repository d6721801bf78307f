// SPDX-License-Identifier: Apache-2.0
// The fuzz target. An input is a file, or "PICT" and a recipe for pixels, followed by a trailer of ten bytes that says
// how the codec is driven: a seed is thus any `.hri` file with ten bytes appended, and mutations of the one rarely
// disturb the other.
//
//   byte 0     what happens to a file first: 0 nothing, 1 its sums are set right, any other: its lengths too
//   byte 1     options: bits 0-3 gap between output rows, 4 upside down, 5 two threads, 6 decode_many, 7 without
//   "scalar" bytes 2-9  region: top, left, height, width, two bytes each, modulo what the image allows
//
// Promises checked: no undefined behaviour, nothing read or written beyond a buffer, every target gives the same status
// and the same pixels, a region is the crop of the whole, and encoding loses nothing and gives the same bytes on every
// target. What is laid out for a device lies within its payload, whatever the table of tiles says.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "canvas.h"
#include "device/fetch.h"
#include "device/tiles.h"
#include "headrace/codec.h"
#include "headrace/targets.h"
#include "picture.h"
#include "seal.h"

namespace headrace::fuzz {
namespace {

constexpr std::size_t kTrailerBytes = 10;
constexpr std::uint32_t kRecipeMark = 0x54434950;  // "PICT"
// Larger outputs find nothing more and cost the executions that do.
constexpr std::uint64_t kMaxOutputBytes = std::uint64_t{1} << 15;

// Under the sanitizers plain loops over lanes take ten times as long as all the vectors: most executions can do
// without.
std::span<const char* const> choose_targets(bool without_scalar) {
  const auto all = targets();
  return without_scalar && all.size() > 1 ? all.subspan(1) : all;
}

struct Drive {
  unsigned repair;
  std::size_t gap;
  bool flipped;
  unsigned threads;
  bool many;
  std::span<const char* const> targets;
  std::uint32_t top, left, height, width;

  explicit Drive(const std::uint8_t* trailer)
      : repair(trailer[0]),
        gap(trailer[1] & 15),
        flipped(trailer[1] & 16),
        threads(trailer[1] & 32 ? 2 : 1),
        many(trailer[1] & 64),
        targets(choose_targets(trailer[1] & 128)),
        top(load_le(trailer + 2, 2)),
        left(load_le(trailer + 4, 2)),
        height(load_le(trailer + 6, 2)),
        width(load_le(trailer + 8, 2)) {}

  Region region(const ImageHeader& header) const {
    Region region;
    region.top = top % header.height;
    region.left = left % header.width;
    region.height = 1 + height % (header.height - region.top);
    region.width = 1 + width % (header.width - region.left);
    return region;
  }
};

struct Decoded {
  Code code;
  Canvas canvas;
};

Decoded decode_region(Bytes file, const ImageHeader& header, Region region, const Drive& drive, std::uint8_t poison) {
  Decoded decoded{Code::ok, Canvas(region.height, std::size_t{region.width} * header.pixel_bytes(), drive.gap,
                                   drive.flipped, poison)};
  if (drive.many) {
    DecodeJob job{file, header, region, decoded.canvas.origin(), decoded.canvas.row_stride(), {}};
    decode_many({&job, 1}, drive.threads);
    decoded.code = job.status.code;
  } else {
    decoded.code =
        decode(file, header, region, decoded.canvas.origin(), decoded.canvas.row_stride(), drive.threads).code;
  }
  return decoded;
}

// Lay a region out for a device. `sound`: every tile of the file decodes. `lie` goes to some place of the table.
void check_device(Bytes file, const Drive& drive, bool sound, std::int64_t lie) {
  device::Wanted wanted;
  const std::int64_t asked[] = {drive.top, drive.left, drive.height, drive.width};
  Status opened = device::open_region(file, file.size(), asked, kMaxOutputBytes, wanted);
  if (opened.code == Code::bad_argument) {  // not within the image
    const Region region = drive.region(wanted.header);
    const std::int64_t inside[] = {region.top, region.left, region.height, region.width};
    opened = device::open_region(file, file.size(), inside, kMaxOutputBytes, wanted);
  }
  if (!opened) return require(!sound || opened.code == Code::too_large, "a sound file has a sound head", "any");
  std::vector<std::int64_t> cells(device::kTileRows * wanted.tiles());
  const device::Table table{cells.data(), wanted.tiles()};
  std::int64_t payload_bytes = 0;
  device::list_tiles(wanted, 0, table, 0, payload_bytes);
  std::vector<std::int32_t> ranks, own, chains;
  std::int64_t column[device::kImageRows];
  device::list_image(wanted, 0, {column, 1}, ranks);
  require(ranks.size() == wanted.header.rank_count, "all ranks are listed", "any");
  std::vector<std::uint8_t> payload(static_cast<std::size_t>(payload_bytes));
  device::Stored image{file, file.size()};
  const device::Fetched fetched = device::fetch_tiles({&image, 1}, table, payload, drive.threads);
  require(fetched.status || (!sound && fetched.status.code == Code::corrupt), "tiles are fetched, or corrupt", "any");
  device::lay_out_scratch(table);
  for (std::uint8_t kind = 2; kind <= 4; ++kind) device::list_chains(table, kind, own, chains);
  cells[(drive.top + drive.width) % cells.size()] = lie;
  const Code code = device::fetch_tiles({&image, 1}, table, payload, drive.threads).status.code;
  require(code == Code::ok || code == Code::corrupt || code == Code::bad_argument, "a table that lies is refused",
          "any");
}

// Decode the whole and a region on every target. Returns the whole if the file is sound.
std::optional<Canvas> check_decode(Bytes file, const Drive& drive) {
  ImageHeader header;
  const Status parsed = parse_header(file, header);
  if (!parsed) {
    require(parsed.code == Code::corrupt || parsed.code == Code::unsupported, "a bad header has a bad file's status",
            "any");
    return std::nullopt;
  }
  if (std::uint64_t{header.width} * header.height * header.pixel_bytes() > kMaxOutputBytes) return std::nullopt;

  const Region everything{0, 0, header.height, header.width}, region = drive.region(header);
  std::optional<Decoded> first_whole, first_part;
  std::uint8_t poison = 0xCD;  // differs between targets, so that a sample that none of them writes shows
  for (const char* target : drive.targets) {
    require(use_target(target), "a listed target can be forced", target);
    Decoded whole = decode_region(file, header, everything, drive, poison);
    Decoded part = decode_region(file, header, region, drive, poison);
    require(whole.code == Code::ok || whole.code == Code::corrupt, "a bad tile is corrupt", target);
    require(whole.canvas.gaps_untouched() && part.canvas.gaps_untouched(), "gaps between rows stay untouched", target);
    if (whole.code == Code::ok) {
      require(part.code == Code::ok, "a region of a sound image decodes", target);
      require(is_crop(part.canvas, whole.canvas, region.top, std::size_t{region.left} * header.pixel_bytes()),
              "a region is the crop of the whole", target);
    }
    if (first_whole) {
      require(whole.code == first_whole->code && part.code == first_part->code, "targets agree on the status", target);
      require(whole.code != Code::ok || is_crop(whole.canvas, first_whole->canvas, 0, 0), "targets agree on the pixels",
              target);
      require(part.code != Code::ok || is_crop(part.canvas, first_part->canvas, 0, 0), "targets agree on a region",
              target);
    } else {
      first_whole.emplace(std::move(whole));
      first_part.emplace(std::move(part));
    }
    poison ^= 0xFF;
  }
  if (first_whole->code != Code::ok) return std::nullopt;
  return std::move(first_whole->canvas);
}

Heap encode_picture(const Picture& picture, const char* target, unsigned threads) {
  Encoded encoded;
  const Status status = encode(picture.pixels(), picture.mode(), picture.metadata(), threads, encoded);
  require(static_cast<bool>(status), "every picture can be encoded", target);
  Heap file(encoded.size());
  encoded.write(file.data());
  return file;
}

void check_round_trip(Bytes recipe, const Drive& drive) {
  const Picture picture(recipe);
  std::optional<Heap> file;
  for (const char* target : drive.targets) {
    require(use_target(target), "a listed target can be forced", target);
    Heap again = encode_picture(picture, target, drive.threads);
    require(!file || same(file->bytes(), again.bytes()), "targets encode to the same bytes", target);
    file.emplace(std::move(again));
  }
  ImageHeader header;
  require(static_cast<bool>(parse_header(file->bytes(), header)), "what was encoded parses", "any");
  require(same(header.metadata, picture.metadata()), "metadata survives", "any");
  const std::optional<Canvas> decoded = check_decode(file->bytes(), drive);
  require(decoded.has_value(), "what was encoded decodes", "any");
  for (std::size_t y = 0; y < decoded->rows(); ++y)
    require(same(decoded->row(y), picture.row(y).bytes()), "no sample is lost", "any");
}

void check_sum(Bytes bytes, std::size_t cut) {
  require(crc32c(bytes) == crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))), "a sum can be continued", "any");
}

// As a number: libFuzzer watches memcmp, would learn the mark, and spend its time on round trips, which are slow.
bool is_recipe(Bytes body) { return body.size() >= 4 && load_le(body.data(), 4) == kRecipeMark; }

void run(Bytes input) {
  if (input.size() < kTrailerBytes) return;
  const Bytes body = input.first(input.size() - kTrailerBytes);
  const Drive drive(body.data() + body.size());
  if (is_recipe(body)) return check_round_trip(body.subspan(4), drive);
  std::vector<std::uint8_t> bytes(body.begin(), body.end());
  if (drive.repair != 0) seal(bytes, drive.repair != 1);
  const Heap file{Bytes(bytes)};
  check_sum(file.bytes(), bytes.empty() ? 0 : drive.top % bytes.size());
  const bool sound = check_decode(file.bytes(), drive).has_value();
  constexpr std::int64_t kLies[] = {0, 1, -1, 1 << 16, INT64_MAX, INT64_MIN};
  check_device(file.bytes(), drive, sound, kLies[drive.left % std::size(kLies)]);
}

}  // namespace
}  // namespace headrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  headrace::fuzz::run({data, size});
  return 0;
}
