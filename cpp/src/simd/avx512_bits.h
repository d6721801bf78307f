// SPDX-License-Identifier: Apache-2.0
// What AVX-512 with VBMI2 does better than AVX2 in 8-bit tiles: a whole block in one register, positions of ones by
// compression, packed samples by multishift, extra bits by pdep. Included inside a target's namespace, after the AVX2
// operations.

// For rows of eight packed samples of b bits: the bytes of row k go to 64-bit lane k.
struct RowTable {
  alignas(64) std::uint8_t index[9][64];
  alignas(64) std::uint8_t shift[9][64];
};
constexpr RowTable make_rows() {
  RowTable t{};
  for (unsigned b = 0; b <= 8; ++b)
    for (unsigned i = 0; i < 64; ++i) {
      t.index[b][i] = static_cast<std::uint8_t>((i / 8 * b + i % 8) & 63);
      t.shift[b][i] = static_cast<std::uint8_t>(i % 8 * b);
    }
  return t;
}
inline constexpr RowTable kRows = make_rows();

// The positions, modulo 256, of the one bits of n bytes. Writes up to 64 bytes past the last, reads up to 8.
HR_STAGE void positions(const std::uint8_t* from, std::size_t n, std::uint8_t* to) {
  alignas(64) static constexpr auto kCount = [] {
    struct {
      std::uint8_t v[64];
    } t{};
    for (int i = 0; i < 64; ++i) t.v[i] = static_cast<std::uint8_t>(i);
    return t;
  }();
  __m512i at = _mm512_load_si512(kCount.v);
  const __m512i step = _mm512_set1_epi8(64);
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(from + i);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(word, at));
    to += __builtin_popcountll(word);
    at = _mm512_add_epi8(at, step);
  }
  if (i < n) {
    const std::uint64_t word = load_le<std::uint64_t>(from + i) & ((std::uint64_t{1} << (8 * (n - i))) - 1);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(word, at));
  }
}

inline void store_block(std::uint8_t* p, std::ptrdiff_t pitch, __m512i v) {
  store_rows(p, pitch, {_mm512_castsi512_si256(v)});
  store_rows(p + 4 * pitch, pitch, {_mm512_extracti64x4_epi64(v, 1)});
}

inline __m512i undo_zigzag_block(__m512i z) {
  const __m512i half = _mm512_and_si512(_mm512_srli_epi16(z, 1), _mm512_set1_epi8(0x7F));
  const __mmask64 odd = _mm512_test_epi8_mask(z, _mm512_set1_epi8(1));
  return _mm512_xor_si512(half, _mm512_movm_epi8(odd));
}

inline __m512i table16(const std::uint8_t* t, __m512i index) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t))), index);
}

// The blocks of one plane of bytes; as the one for all targets, but a block at a time and without a branch on the code.
#define HR_OWN_EXPAND_BLOCKS
HR_STAGE bool expand_byte_blocks(const std::uint8_t* classes, std::uint32_t blocks_x, std::uint32_t blocks_y,
                                 const std::uint8_t* at, const std::uint8_t*& raw, const std::uint8_t* extra,
                                 std::uint64_t& extra_at, std::uint64_t extra_end, std::uint8_t* plane,
                                 std::ptrdiff_t pitch, const Ahead& ahead, std::uint32_t ahead_step) {
  const __m512i one = _mm512_set1_epi8(1), fifteen = _mm512_set1_epi8(15);
  std::uint64_t bit = extra_at;
  const std::uint8_t* low = raw;
  for (std::uint32_t y = 0; y < blocks_y; ++y, plane += 8 * pitch) {
    ahead.fetch(ahead_step++);
    for (std::uint32_t x = 0; x < blocks_x; ++x) {
      const std::uint8_t c = *classes++;
      std::uint8_t* to = plane + 8 * x;
      if (c == 0) {
        store_block(to, pitch, _mm512_setzero_si512());
        continue;
      }
      if (bit > extra_end) return false;
      const BlockClass& k = kClassTable8[c];
      const CodeTable& code = kCodeTables[k.code];
      const __m512i q = _mm512_sub_epi8(_mm512_sub_epi8(_mm512_loadu_si512(at), _mm512_loadu_si512(at - 1)), one);
      const __m512i index = _mm512_min_epu8(q, fifteen);
      const __m512i e = table16(code.extra.data(), index);
      __m512i z;
      if (k.code == kPairs) {
        const U8 first = take_bits({_mm512_castsi512_si256(e)}, extra, bit);
        U8 lo, hi;
        zip(first, sub(U8{_mm512_castsi512_si256(q)}, first), lo, hi);
        z = _mm512_inserti64x4(_mm512_castsi256_si512(lo.v), hi.v, 1);
      } else {
        // No other code reads more than one bit for a number.
        const std::uint64_t takes = _mm512_test_epi8_mask(e, e);
        const std::uint64_t ahead = load_le<std::uint64_t>(extra + (bit >> 3)) >> (bit & 7) |
                                    (std::uint64_t{extra[(bit >> 3) + 8]} << 1 << (63 - (bit & 7)));
        bit += static_cast<std::uint64_t>(__builtin_popcountll(takes));
        __m512i h = _mm512_add_epi8(q, table16(code.adjust.data(), index));
        h = _mm512_mask_add_epi8(h, _pdep_u64(ahead, takes), h, one);
        // Raw bits below, h above them; 16-bit lanes may shift h's neighbour into the raw bits' place, where it is not
        // looked at.
        const unsigned s = k.raw_bits;
        const __m512i bytes = _mm512_permutexvar_epi8(_mm512_load_si512(kRows.index[s]), _mm512_loadu_si512(low));
        const __m512i r = _mm512_multishift_epi64_epi8(_mm512_load_si512(kRows.shift[s]), bytes);
        const __m512i shifted = _mm512_sll_epi16(h, _mm_cvtsi32_si128(static_cast<int>(s)));
        z = _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(kOnes.low_bits[s])), r, shifted, 0xCA);
        low += 8 * s;
      }
      at += k.numbers;
      store_block(to, pitch, undo_zigzag_block(z));
    }
  }
  extra_at = bit;
  raw = low;
  return true;
}
