// SPDX-License-Identifier: Apache-2.0
// What operations.cpp compares: each function writes the results of one vector operation. Included inside a target's
// namespace.

inline void check_unpack(const tests::Inputs& in, std::uint8_t* out) { store(out, unpack(in.bytes, in.bits)); }

inline void check_unpack_groups(const tests::Inputs& in, std::uint8_t* out) {
  store_le(out, unpack_groups(in.bytes, in.widths, out + 64, 40) - in.bytes);
}

inline void check_unpack_group(const tests::Inputs& in, std::uint8_t* out) {
  std::uint16_t rows[4 * 24] = {};
  unpack_group(in.bytes, in.bits16, rows, 24);
  std::memcpy(out, rows, sizeof rows);
}

inline void check_take_bits(const tests::Inputs& in, std::uint8_t* out) {
  std::uint64_t at = in.first_bit;
  store(out, take_bits(load(in.extra), in.bytes, at));
  store_le(out + 32, at);
}

inline void check_take_flags(const tests::Inputs& in, std::uint8_t* out) {
  std::uint64_t at = in.first_bit;
  store(out, take_flags(load(in.flags), in.bytes, at));
  store_le(out + 32, at);
}

inline void check_positions(const tests::Inputs& in, std::uint8_t* out) {
  std::size_t ones = 0;
  for (std::size_t i = 0; i < in.count; ++i) ones += kOnes.count[in.bytes[i]];
  positions(in.bytes, in.count, out);
  std::memset(out + ones, 0, 8);  // where they may write what they like
}

inline void check_sum_lanes(const tests::Inputs& in, std::uint8_t* out) {
  store_le(out, sum_lanes(load(in.bytes)));
  store_le(out + 4, sum_lanes(load(in.bytes), load(in.bytes + 32)));
}

// Their order is not promised: counted by value.
inline void check_pair_sums(const tests::Inputs& in, std::uint8_t* out) {
  std::uint8_t sums[32];
  store(sums, pair_sums(load(in.bytes), load(in.bytes + 32)));
  for (const std::uint8_t sum : sums) ++out[sum];
}

inline void check_block_sums(const tests::Inputs& in, std::uint8_t* out) {
  BlockSums<std::uint8_t> of_bytes;
  BlockSums<std::uint16_t> of_words;
  for (int y = 0; y < 8; ++y) {
    of_bytes.add_absolute(load(in.bytes + 32 * y));
    of_words.add_absolute(load(in.words + 32 * y));
  }
  std::uint32_t four[4];
  of_bytes.get(four);
  std::memcpy(out, four, sizeof four);
  of_words.get(four);
  std::memcpy(out + sizeof four, four, sizeof four);
}

inline constexpr tests::Check kChecks[] = {
    {"unpack", check_unpack},       {"unpack_groups", check_unpack_groups}, {"unpack_group", check_unpack_group},
    {"take_bits", check_take_bits}, {"take_flags", check_take_flags},       {"positions", check_positions},
    {"sum_lanes", check_sum_lanes}, {"pair_sums", check_pair_sums},         {"BlockSums", check_block_sums},
};
