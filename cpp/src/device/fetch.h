// SPDX-License-Identifier: Apache-2.0
// The bytes of a batch on their way to a device: read from files straight to where one transfer takes them all, and
// checked there, while they are in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/tiles.h"

namespace headrace::device {

// A piece of a file to be read to `to`, all of it.
struct Piece {
  int file = -1;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint8_t* to = nullptr;
  bool read = false;  // set by read_pieces
};

// Read the pieces, spread over `threads` threads (at least 1). Gives the CPU seconds of those that are not the
// caller's.
double read_pieces(std::span<Piece> pieces, unsigned threads) noexcept;

// An encoded image: its beginning is in memory, the rest lies in a file from `offset` on. An image that is in memory as
// a whole needs no file.
struct Stored {
  Bytes beginning;
  std::uint64_t size = 0;
  int file = -1;
  std::uint64_t offset = 0;
  std::uint64_t bytes_read = 0;  // set by fetch_tiles, gaps included
};

// What went wrong, and at which column of the table; the first of all if there are several.
struct Fetched {
  Status status;
  std::size_t column = 0;
  double other_seconds = 0;  // of CPU, of threads that are not the caller's
};

// Bring every tile of the table to its place in the payload, compare its sum, and set its kind. Trusts nothing that the
// table says: what does not fit to the images or to the payload is Code::bad_argument and touches no memory. The tiles
// of an image are next to each other in the table, in the file's order, or it takes more reads. What lies between tiles
// in the payload is left as it is. On failure the payload and the kinds are unspecified.
Fetched fetch_tiles(std::span<Stored> images, const Table& tiles, std::span<std::uint8_t> payload,
                    unsigned threads) noexcept;

}  // namespace headrace::device
