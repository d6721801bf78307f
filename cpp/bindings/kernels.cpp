// SPDX-License-Identifier: Apache-2.0
// The host's part of decoding on a device, a batch a call and without the GIL: tables of tiles and of views, taps, and
// the bytes themselves. What it is used for is in headrace/kernels and headrace/loader/device.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "buffers.h"
#include "device/fetch.h"
#include "device/tiles.h"
#include "device/views.h"
#include "errors.h"
#include "gil.h"
#include "layout.h"
#include "transform.h"
#include "transform/program.h"
#include "transform/resample_taps.h"

namespace headrace::bindings {
namespace {

constexpr const char* kTileNames[] = {"AT",    "LENGTH", "IMAGE", "NUMBER", "KIND",    "BITS",    "CHANNELS", "HEIGHT",
                                      "WIDTH", "TOP",    "LEFT",  "VALUES", "ENTRIES", "NUMBERS", "SOURCE",   "SUM"};
constexpr const char* kImageNames[] = {"HEIGHT", "WIDTH",    "CHANNELS", "DTYPE",    "RANKS", "RANK_COUNT",
                                       "OUT",    "STRIDE_C", "STRIDE_Y", "STRIDE_X", "FLIP"};
constexpr const char* kViewNames[] = {"method",    "start_y", "start_x", "size_y",   "size_x",   "resized_y",
                                      "resized_x", "begin_y", "begin_x", "extent_y", "extent_x", "upside_down",
                                      "mirrored",  "top",     "left",    "height",   "width"};
static_assert(std::size(kTileNames) == device::kTileRows && std::size(kImageNames) == device::kImageRows &&
              std::size(kViewNames) == device::kViewRows);

using Ints = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <nb::ssize_t Columns>
using Lines = nb::ndarray<const std::int64_t, nb::shape<-1, Columns>, nb::c_contig, nb::device::cpu>;
using TileTable = nb::ndarray<std::int64_t, nb::shape<static_cast<nb::ssize_t>(device::kTileRows), -1>, nb::c_contig,
                              nb::device::cpu>;
template <class Number>
using Line = nb::ndarray<nb::numpy, Number, nb::ndim<1>, nb::c_contig>;
template <class Number>
using Sheet = nb::ndarray<nb::numpy, Number, nb::ndim<2>, nb::c_contig>;

// An array that owns what the vector held.
template <class Array, class Number>
Array give(std::vector<Number>&& numbers, std::initializer_list<std::size_t> shape) {
  auto held = std::make_unique<std::vector<Number>>(std::move(numbers));
  Number* const data = held->data();
  const nb::capsule owner(held.get(), [](void* p) noexcept { delete static_cast<std::vector<Number>*>(p); });
  static_cast<void>(held.release());
  return Array(data, shape, owner);
}

std::vector<Buffer> borrow_all(nb::sequence datas) {
  std::vector<Buffer> buffers(nb::len(datas));
  for (std::size_t i = 0; i < buffers.size(); ++i)
    buffers[i] = borrow_bytes(nb::object(datas[i]), static_cast<std::ptrdiff_t>(i));
  return buffers;
}

// Borrow contiguous memory to write to.
std::span<std::uint8_t> borrow_memory(nb::handle memory, Buffer& buffer) {
  if (!buffer.acquire(memory, PyBUF_WRITABLE)) throw nb::type_error("the memory must be contiguous and writable");
  return {static_cast<std::uint8_t*>(buffer.view().buf), static_cast<std::size_t>(buffer.view().len)};
}

void check_count(std::size_t found, std::size_t expected) {
  if (found != expected) throw nb::value_error("every array must have one entry per image");
}

[[noreturn]] void raise_region(const Status& status, const device::Wanted& wanted, const std::int64_t asked[4],
                               std::uint64_t max_pixels, std::ptrdiff_t index) {
  const auto text = [](auto number) { return std::to_string(number); };
  if (status.code == Code::bad_argument)
    raise_error("InvalidRegion",
                "region (" + text(asked[0]) + ", " + text(asked[1]) + ", " + text(asked[2]) + ", " + text(asked[3]) +
                    "), as (top, left, height, width), is not within the " + text(wanted.header.height) + " rows and " +
                    text(wanted.header.width) + " columns of the image, or is empty",
                index);
  if (status.code == Code::too_large)
    raise_error("ImageTooLarge",
                text(wanted.region.height) + " x " + text(wanted.region.width) + " are " +
                    text(std::uint64_t{wanted.region.height} * wanted.region.width) + " pixels, more than max_pixels=" +
                    text(max_pixels) + "; decode a region, or raise max_pixels if you trust the file",
                index);
  raise_status(status, index);
}

nb::tuple describe_tiles(nb::sequence heads, Ints sizes, Lines<4> regions, std::uint64_t max_pixels) {
  const std::vector<Buffer> files = borrow_all(heads);
  const std::size_t n = files.size();
  check_count(sizes.shape(0), n);
  check_count(regions.shape(0), n);
  std::vector<device::Wanted> wanted(n);
  std::vector<std::int64_t> tiles, images(device::kImageRows * n);
  std::vector<std::int32_t> ranks;
  std::size_t bad = n, n_tiles = 0;
  std::int64_t payload_bytes = 0;
  Status status;
  {
    const WithoutGil released;
    for (std::size_t i = 0; i < n && bad == n; ++i) {
      status = device::open_region(files[i].bytes(), static_cast<std::uint64_t>(sizes.data()[i]),
                                   regions.data() + 4 * i, max_pixels, wanted[i]);
      if (!status) bad = i;
      n_tiles += status ? wanted[i].tiles() : 0;
    }
    if (bad == n) {
      tiles.resize(device::kTileRows * n_tiles);
      std::size_t column = 0;
      for (std::size_t i = 0; i < n; ++i) {
        device::list_tiles(wanted[i], i, {tiles.data(), n_tiles}, column, payload_bytes);
        device::list_image(wanted[i], i, {images.data(), n}, ranks);
        column += wanted[i].tiles();
      }
    }
  }
  if (bad < n)
    raise_region(status, wanted[bad], regions.data() + 4 * bad, max_pixels, static_cast<std::ptrdiff_t>(bad));
  const std::size_t n_ranks = ranks.size();
  return nb::make_tuple(give<Sheet<std::int64_t>>(std::move(tiles), {device::kTileRows, n_tiles}),
                        give<Sheet<std::int64_t>>(std::move(images), {device::kImageRows, n}),
                        give<Line<std::int32_t>>(std::move(ranks), {n_ranks}), payload_bytes);
}

// The bytes that were read for each image, and the CPU time of threads other than the caller's.
nb::tuple fetch_tiles(nb::sequence heads, Ints sizes, Ints files, Ints offsets, TileTable tiles, nb::handle payload,
                      unsigned threads) {
  const std::vector<Buffer> buffers = borrow_all(heads);
  const std::size_t n = buffers.size();
  for (const Ints* each : {&sizes, &files, &offsets}) check_count(each->shape(0), n);
  std::vector<device::Stored> images(n);
  for (std::size_t i = 0; i < n; ++i)
    images[i] = {buffers[i].bytes(), static_cast<std::uint64_t>(sizes.data()[i]), static_cast<int>(files.data()[i]),
                 static_cast<std::uint64_t>(offsets.data()[i]), 0};
  Buffer target;
  const std::span<std::uint8_t> room = borrow_memory(payload, target);
  const device::Table table{tiles.data(), tiles.shape(1)};
  device::Fetched fetched;
  {
    const WithoutGil released;
    fetched = device::fetch_tiles(images, table, room, threads);
  }
  if (fetched.status.code == Code::bad_argument) raise_status(fetched.status);
  if (!fetched.status)
    raise_status(fetched.status, static_cast<std::ptrdiff_t>(table.at(device::kTileImage, fetched.column)));
  std::vector<std::int64_t> bytes_read(n);
  for (std::size_t i = 0; i < n; ++i) bytes_read[i] = static_cast<std::int64_t>(images[i].bytes_read);
  return nb::make_tuple(give<Line<std::int64_t>>(std::move(bytes_read), {n}), fetched.other_seconds);
}

// Give tiles their places in the scratch. Its sizes, and the tiles and the chains of palettes, packed and coded tiles.
nb::tuple lay_out_scratch(TileTable tiles) {
  const device::Table table{tiles.data(), tiles.shape(1)};
  const auto within = [&](device::TileRow row, std::size_t i, std::int64_t limit) {
    return table.at(row, i) >= 1 && table.at(row, i) <= limit;
  };
  for (std::size_t i = 0; i < table.columns; ++i)
    if (!within(device::kTileChannels, i, kMaxChannels) || !within(device::kTileHeightRow, i, kTileHeight) ||
        !within(device::kTileWidthRow, i, kMaxTileWidth))
      throw nb::value_error("the table describes tiles that cannot exist");
  std::array<std::vector<std::int32_t>, 3> own, chains;
  device::Scratch used;
  {
    const WithoutGil released;
    used = device::lay_out_scratch(table);
    for (std::size_t k = 0; k < own.size(); ++k)
      device::list_chains(table, static_cast<std::uint8_t>(kPalette + k), own[k], chains[k]);
  }
  nb::list lists;
  for (std::size_t k = 0; k < own.size(); ++k) {
    const std::size_t n = own[k].size(), n_chains = chains[k].size() / 2;
    lists.append(nb::make_tuple(give<Line<std::int32_t>>(std::move(own[k]), {n}),
                                give<Sheet<std::int32_t>>(std::move(chains[k]), {2, n_chains})));
  }
  return nb::make_tuple(nb::make_tuple(used.values, used.entries, used.numbers), lists);
}

// Read `lengths[i]` bytes of a file to byte `starts[i]` of the memory. Gives the numbers of those that could not be
// read, and the CPU time of threads other than the caller's.
nb::tuple read_pieces(Ints files, Ints offsets, Ints lengths, Ints starts, nb::handle memory, unsigned threads) {
  const std::size_t n = files.shape(0);
  for (const Ints* each : {&offsets, &lengths, &starts}) check_count(each->shape(0), n);
  Buffer target;
  const std::span<std::uint8_t> room = borrow_memory(memory, target);
  std::vector<device::Piece> pieces(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto start = static_cast<std::uint64_t>(starts.data()[i]);
    const auto length = static_cast<std::uint64_t>(lengths.data()[i]);
    if (start > room.size() || length > room.size() - start)
      throw nb::value_error("every piece must fit into the memory");
    pieces[i] = {static_cast<int>(files.data()[i]), static_cast<std::uint64_t>(offsets.data()[i]), length,
                 room.data() + start, false};
  }
  double other_seconds = 0;
  {
    const WithoutGil released;
    other_seconds = device::read_pieces(pieces, threads);
  }
  nb::list unread;
  for (std::size_t i = 0; i < n; ++i)
    if (!pieces[i].read) unread.append(i);
  return nb::make_tuple(unread, other_seconds);
}

// How many bytes come before the first tile of each image, as the beginnings of the files claim; 0 if they are no
// header.
nb::list claimed_head_bytes_of(nb::sequence beginnings) {
  nb::list sizes;
  for (const Buffer& file : borrow_all(beginnings)) sizes.append(claimed_head_bytes(file.bytes()));
  return sizes;
}

// Which heads are not sound, or not of the height, width, channels and kind of sample that are claimed.
nb::list wrong_heads(nb::sequence heads, Ints sizes, Lines<4> claims) {
  const std::vector<Buffer> files = borrow_all(heads);
  const std::size_t n = files.size();
  check_count(sizes.shape(0), n);
  check_count(claims.shape(0), n);
  std::vector<std::size_t> wrong;
  {
    const WithoutGil released;
    for (std::size_t i = 0; i < n; ++i) {
      ImageHeader header;
      const Status status = parse_header(files[i].bytes(), static_cast<std::uint64_t>(sizes.data()[i]), header);
      const std::int64_t* const claim = claims.data() + 4 * i;
      if (!status || header.height != claim[0] || header.width != claim[1] || header.channels != claim[2] ||
          device::sample_kind(header) != claim[3])
        wrong.push_back(i);
    }
  }
  nb::list numbers;
  for (const std::size_t i : wrong) numbers.append(i);
  return numbers;
}

// `axis` is its size, what it is resized to, and the begin and the count of what is wanted.
ResizedAxis checked_axis(const std::int64_t axis[4]) {
  if (axis[0] < 1 || axis[1] < 1 || axis[2] < 0 || axis[3] < 1 || axis[0] > kMaxSide || axis[1] > kMaxSide ||
      axis[2] > axis[1] || axis[3] > axis[1] - axis[2])
    throw nb::value_error("an axis must have 1 to 16777215 samples, and the requested range must lie within it");
  const auto number = [&](int i) { return static_cast<std::uint32_t>(axis[i]); };
  return {number(0), number(1), number(2), number(3), Filter::bilinear, true};
}

// Of each axis: its size, what it is resized to, the begin and the count of what is wanted, and the sample that others
// are counted from. Gives firsts and counts; positions, steps and units; and the range of samples of each axis.
nb::tuple resize_taps(Lines<5> axes) {
  const std::size_t n = axes.shape(0);
  std::vector<ResizedAxis> checked(n);
  std::size_t samples = 0;
  for (std::size_t i = 0; i < n; ++i) {
    checked[i] = checked_axis(axes.data() + 5 * i);
    const std::int64_t origin = axes.data()[5 * i + 4];
    if (origin < 0 || origin > kMaxSide) throw nb::value_error("an origin must lie within its axis");
    samples += checked[i].count;
  }
  std::vector<std::int32_t> whole(2 * samples);
  std::vector<float> real(3 * samples);
  std::vector<std::int64_t> ranges(2 * n);
  {
    const WithoutGil released;
    std::size_t at = 0;
    for (std::size_t i = 0; i < n; at += checked[i++].count) {
      const Range range = triangle_range(checked[i]);
      ranges[2 * i] = range.begin;
      ranges[2 * i + 1] = range.end;
      make_triangle_taps(checked[i], static_cast<std::int32_t>(axes.data()[5 * i + 4]),
                         {&whole[at], &whole[samples + at], &real[at], &real[samples + at], &real[2 * samples + at]});
    }
  }
  return nb::make_tuple(give<Sheet<std::int32_t>>(std::move(whole), {2, samples}),
                        give<Sheet<float>>(std::move(real), {3, samples}),
                        give<Sheet<std::int64_t>>(std::move(ranges), {n, 2}));
}

nb::tuple resize_range(std::int64_t size, std::int64_t resized, std::int64_t begin, std::int64_t count) {
  const std::int64_t axis[] = {size, resized, begin, count};
  const Range range = triangle_range(checked_axis(axis));
  return nb::make_tuple(range.begin, range.end);
}

// A column for each view of each sample; `sizes` are height and width, `samples` rows of the dataset.
Sheet<std::int64_t> plan_views(const Transform& transform, Lines<2> sizes, Ints samples, std::uint16_t views,
                               std::uint64_t seed, std::uint32_t epoch) {
  const std::size_t n = sizes.shape(0), columns = n * views;
  check_count(samples.shape(0), n);
  std::vector<std::int64_t> table(device::kViewRows * columns);
  const device::ViewRequest request{transform.ops, transform.mask, transform.max_pixels};
  {
    const WithoutGil released;
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t height = sizes.data()[2 * i], width = sizes.data()[2 * i + 1];
      if (height < 1 || width < 1 || height > 65535 || width > 65535) continue;  // no image has it: no method
      for (std::uint16_t view = 0; view < views; ++view)
        device::plan_view(request, static_cast<std::uint32_t>(height), static_cast<std::uint32_t>(width),
                          {seed, epoch, static_cast<std::uint64_t>(samples.data()[i]), view}, {table.data(), columns},
                          i * views + view);
    }
  }
  return give<Sheet<std::int64_t>>(std::move(table), {device::kViewRows, columns});
}

// In one string: a stub cannot say what a tuple has in it.
template <std::size_t N>
nb::str names_of(const char* const (&names)[N]) {
  std::string text;
  for (const char* name : names) {
    if (!text.empty()) text += ' ';
    text += name;
  }
  return nb::str(text.data(), text.size());
}

}  // namespace

void register_kernels(nb::module_& module) {
  using nb::arg;
  module.attr("TILE_ROWS") = names_of(kTileNames);
  module.attr("IMAGE_ROWS") = names_of(kImageNames);
  module.attr("VIEW_ROWS") = names_of(kViewNames);
#define HEADRACE_ARRAY "numpy.typing.NDArray[typing.Any]"
  module.def("describe_tiles", &describe_tiles,
             nb::sig("def describe_tiles(heads: collections.abc.Sequence[typing.Any], sizes: " HEADRACE_ARRAY
                     ", regions: " HEADRACE_ARRAY ", max_pixels: int, /) -> tuple[" HEADRACE_ARRAY ", " HEADRACE_ARRAY
                     ", " HEADRACE_ARRAY ", int]"));
  // What is written to must not be a copy.
  module.def("fetch_tiles", &fetch_tiles, arg("heads"), arg("sizes"), arg("files"), arg("offsets"),
             arg("tiles").noconvert(), arg("payload"), arg("threads"),
             nb::sig("def fetch_tiles(heads: collections.abc.Sequence[typing.Any], sizes: " HEADRACE_ARRAY
                     ", files: " HEADRACE_ARRAY ", offsets: " HEADRACE_ARRAY ", tiles: " HEADRACE_ARRAY
                     ", payload: object, threads: int) -> tuple[" HEADRACE_ARRAY ", float]"));
  module.def("lay_out_scratch", &lay_out_scratch, arg("tiles").noconvert(),
             nb::sig("def lay_out_scratch(tiles: " HEADRACE_ARRAY
                     ", /) -> tuple[tuple[int, int, int], list[tuple[" HEADRACE_ARRAY ", " HEADRACE_ARRAY "]]]"));
  module.def("read_pieces", &read_pieces,
             nb::sig("def read_pieces(files: " HEADRACE_ARRAY ", offsets: " HEADRACE_ARRAY ", lengths: " HEADRACE_ARRAY
                     ", starts: " HEADRACE_ARRAY ", memory: object, threads: int, /) -> tuple[list[int], float]"));
  module.def("claimed_head_bytes", &claimed_head_bytes_of,
             nb::sig("def claimed_head_bytes(beginnings: collections.abc.Sequence[typing.Any], /) -> list[int]"));
  module.def("wrong_heads", &wrong_heads,
             nb::sig("def wrong_heads(heads: collections.abc.Sequence[typing.Any], sizes: " HEADRACE_ARRAY
                     ", claims: " HEADRACE_ARRAY ", /) -> list[int]"));
  module.def("resize_taps", &resize_taps,
             nb::sig("def resize_taps(axes: " HEADRACE_ARRAY ", /) -> tuple[" HEADRACE_ARRAY ", " HEADRACE_ARRAY
                     ", " HEADRACE_ARRAY "]"));
  module.def("resize_range", &resize_range,
             nb::sig("def resize_range(size: int, resized: int, begin: int, count: int, /) -> tuple[int, int]"));
  module.def("plan_views", &plan_views,
             nb::sig("def plan_views(transform: Transform, sizes: " HEADRACE_ARRAY ", samples: " HEADRACE_ARRAY
                     ", views: int, seed: int, epoch: int, /) -> " HEADRACE_ARRAY));
#undef HEADRACE_ARRAY
}

}  // namespace headrace::bindings
