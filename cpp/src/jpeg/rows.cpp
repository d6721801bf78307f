// SPDX-License-Identifier: Apache-2.0
// Rows of a JPEG's region through libjpeg-turbo.
//
// libjpeg leaves a call that fails by longjmp, over whatever frames lie between. Hence every call into it is made from
// a step: a function of State without one object that has a destructor, run by `attempt`, which is where a failure
// lands.
//
// Each image has a decompressor of its own. One that is used again keeps the tables of the last image, so that a file
// without tables would decode to what came before it; making one takes 0.3 us, of the 700 that a photo of 400 pixels
// takes.
#include "jpeg/rows.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <new>

#include <jpeglib.h>
#include <jerror.h>

#include "bytes.h"
#include "transform/workspace.h"

namespace headrace {
namespace {

// Each scan of a progressive file may cost a pass over all pixels for a few bytes. Encoders write about ten.
constexpr int kMaxScans = 500;
constexpr std::uint64_t kMaxScannedPixels = std::uint64_t{1} << 33;  // pixels times scans
constexpr long kMaxMemory = 1L << 31;                                // for the coefficients of files with several scans

constexpr std::uint32_t kMaxRows = 32;          // an iMCU has at most four blocks of eight rows
constexpr std::size_t kStripBytes = 64 * 1024;  // rows that are read at once stay in the nearer caches
constexpr std::size_t kRowAlignment = 64;
// The library writes rows that are aligned to its vectors past the caches, for images that nobody looks at soon. Ours
// are read at once, so each starts a little off: this takes a seventh off decoding and summing up photos of 400 pixels.
constexpr std::size_t kMisalignment = 8;

Status explain(int message) noexcept {
  switch (message) {
    case JERR_OUT_OF_MEMORY:
      return {Code::no_memory, "there is no memory to decode this JPEG"};
    case JERR_NO_BACKING_STORE:
      return {Code::too_large, "the coefficients of this JPEG's many scans take more than 2 GiB"};
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_IMAGE_TOO_BIG:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED:
      return {Code::unsupported, "libjpeg-turbo does not read this kind of JPEG"};
    case JERR_INPUT_EOF:
    case JWRN_JPEG_EOF:
      return {Code::corrupt, "the JPEG ends early: it is truncated"};
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_MUST_RESYNC:
      return {Code::corrupt, "a JPEG marker is not where it belongs: the file is damaged"};
    case JWRN_HIT_MARKER:
      return {Code::corrupt, "a JPEG scan ends early: the file is damaged"};
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
      return {Code::corrupt, "a JPEG scan holds a code that does not exist: the file is damaged"};
    default:
      return {Code::corrupt, "libjpeg-turbo reports that these bytes are not a valid JPEG"};
  }
}

}  // namespace

struct JpegRows::State {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf escape;
  Status failure;
  bool live = false;  // `info` holds an image

  Bytes file;
  JpegHeader header;
  JpegRequest request;
  bool inverted = false;  // CMYK as 255 less the ink

  Buffer strip;
  std::uint8_t* first_row = nullptr;
  std::size_t stride = 0;
  std::size_t lead = 0;  // bytes of a decoded row before the region's first pixel
  std::uint32_t batch = 0;
  std::uint32_t asked = 0;  // rows to read in the next step
  std::uint32_t rows_left = 0;

  ~State() { close(); }

  void close() noexcept {
    if (live) jpeg_destroy_decompress(&info);
    live = false;
  }

  std::uint8_t* row(std::uint32_t y) noexcept { return first_row + y * stride; }
};

namespace {

using State = JpegRows::State;

[[noreturn]] void fail(State& s, Status failure) noexcept {
  if (s.info.src != nullptr) failure.offset = s.file.size() - std::min(s.info.src->bytes_in_buffer, s.file.size());
  s.failure = failure;
  std::longjmp(s.escape, 1);
}

State& state_of(j_common_ptr common) noexcept { return *static_cast<State*>(common->client_data); }

void on_error(j_common_ptr common) noexcept { fail(state_of(common), explain(common->err->msg_code)); }

// Negative levels are warnings: a picture that is half gray is worse than none.
void on_message(j_common_ptr common, int level) noexcept {
  if (level < 0) on_error(common);
}

void on_progress(j_common_ptr common) noexcept {
  State& s = state_of(common);
  const std::uint64_t pixels = std::uint64_t{s.header.width} * s.header.height;
  const int scans = s.info.input_scan_number;
  if (scans > kMaxScans || static_cast<std::uint64_t>(scans) * pixels > kMaxScannedPixels)
    fail(s, {Code::corrupt, "the JPEG has more scans than any picture needs, which is an attack"});
}

Status attempt(State& s, void (*step)(State&)) noexcept {
  if (setjmp(s.escape) != 0) {
    s.close();
    return s.failure;
  }
  step(s);
  return {};
}

void start(State& s) {
  jpeg_decompress_struct& info = s.info;
  jpeg_create_decompress(&info);
  info.mem->max_memory_to_use = kMaxMemory;
  jpeg_mem_src(&info, s.file.data(), static_cast<unsigned long>(s.file.size()));
  jpeg_read_header(&info, TRUE);
  if (info.image_width != s.header.width || info.image_height != s.header.height ||
      info.num_components != static_cast<int>(s.header.channels))
    fail(s, {Code::corrupt, "a JPEG's head and its body announce different sizes"});
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  info.scale_num = 1;
  info.scale_denom = s.request.scale_denominator;
  if (s.header.channels == 4)
    info.out_color_space = JCS_CMYK;
  else if (s.header.channels == 1 && s.request.color == JpegColor::keep)
    info.out_color_space = JCS_GRAYSCALE;
  else
    info.out_color_space = JCS_RGB;
  info.progress = &s.progress;
  jpeg_start_decompress(&info);
  info.progress = nullptr;
}

// Does libjpeg estimate coefficients that a progressive file left out, from the blocks around?
bool smooths_blocks(const jpeg_decompress_struct& info) noexcept {
  if (!info.progressive_mode || info.coef_bits == nullptr) return false;
  for (int c = 0; c < info.num_components; ++c)
    for (int k = 1; k < DCTSIZE2; ++k)
      if (info.coef_bits[c][k] != 0) return true;
  return false;
}

// Two cases where a cut row is not the row's part. Smoothing looks two blocks to each side and takes the cut for the
// image's edge. And before 3.0 the library miscounts the columns of chroma that is scaled less than luma and still
// upsampled, as in a scaled 4:1:0.
bool may_crop(const jpeg_decompress_struct& info) noexcept {
  return !smooths_blocks(info) && (info.scale_denom == 1 || info.max_h_samp_factor <= 2);
}

// Leave out columns and rows beside and above the region.
//
// Smooth upsampling takes a chroma sample from each side, and treats the first and last column that it is given as the
// image's own. One pixel more at the left (rounded by the library to an iMCU) and one chroma sample at the right are
// enough; they cost a further iMCU only where the region ends at an iMCU's edge. Of rows the library itself decodes the
// iMCU above if the region's first needs it.
void skip_to_region(State& s) {
  jpeg_decompress_struct& info = s.info;
  const Region& region = s.request.region;
  const auto chroma = static_cast<std::uint32_t>(info.max_h_samp_factor);
  const std::uint32_t imcu = chroma * (DCTSIZE / s.request.scale_denominator);
  JDIMENSION left = 0, width = info.output_width;
  if (may_crop(info)) {
    left = region.left == 0 ? 0 : (region.left - 1) / imcu * imcu;
    // Upsampling has another, coarser way with images of one or two chroma columns. No cut may be so narrow.
    if (info.output_width - left < imcu) left -= std::min(left, imcu);
    const std::uint32_t right = std::max(region.left + region.width + chroma, left + imcu);
    width = std::min<JDIMENSION>(right, info.output_width) - left;
    jpeg_crop_scanline(&info, &left, &width);
  }
  const auto pixel_bytes = static_cast<std::size_t>(info.output_components);
  s.lead = (region.left - left) * pixel_bytes;
  s.stride = (width * pixel_bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  const auto lines = static_cast<std::uint32_t>(info.max_v_samp_factor) * (DCTSIZE / s.request.scale_denominator);
  s.batch = std::clamp<std::uint32_t>(static_cast<std::uint32_t>(kStripBytes / s.stride), 1, std::min(lines, kMaxRows));
  if (region.top != 0 && jpeg_skip_scanlines(&info, region.top) != region.top)
    fail(s, {Code::corrupt, "a JPEG's rows end before its region begins"});
}

void read_rows(State& s) {
  JSAMPROW rows[kMaxRows];
  for (std::uint32_t y = 0; y < s.asked; ++y) rows[y] = s.row(y);
  for (std::uint32_t y = 0; y < s.asked;) {
    const JDIMENSION read = jpeg_read_scanlines(&s.info, rows + y, s.asked - y);
    if (read == 0) fail(s, {Code::corrupt, "a JPEG's rows end before its region does"});
    y += read;
  }
  s.rows_left -= s.asked;
  // To the end marker, for a file that lacks it is truncated.
  if (s.rows_left == 0 && s.info.output_scanline == s.info.output_height) jpeg_finish_decompress(&s.info);
}

void invert(std::uint8_t* samples, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) samples[i] = static_cast<std::uint8_t>(255 - samples[i]);
}

// In place: what is written lies before what is still to be read. The rounding is Pillow's.
void cmyk_to_rgb(std::uint8_t* pixels, std::uint32_t count) noexcept {
  for (std::uint32_t x = 0; x < count; ++x) {
    const std::uint32_t light = 255U - pixels[4 * x + 3];
    for (std::uint32_t c = 0; c < 3; ++c) {
      const std::uint32_t product = pixels[4 * x + c] * light + 128;
      pixels[3 * x + c] = static_cast<std::uint8_t>(light - (((product >> 8) + product) >> 8));
    }
  }
}

bool fits(const Region& r, std::uint32_t height, std::uint32_t width) noexcept {
  return r.height != 0 && r.width != 0 && r.top < height && r.left < width && r.height <= height - r.top &&
         r.width <= width - r.left;
}

Status check(const JpegHeader& header, const JpegRequest& request) noexcept {
  const unsigned by = request.scale_denominator;
  if (by != 1 && by != 2 && by != 4 && by != 8) return {Code::bad_argument, "the scale of a JPEG must be 1, 2, 4 or 8"};
  if (std::uint64_t{header.width} * header.height > request.max_pixels)
    return {Code::too_large, "the JPEG has more pixels than max_pixels"};
  if (!fits(request.region, ceil_div(header.height, by), ceil_div(header.width, by)))
    return {Code::bad_argument, "the region does not lie within the JPEG"};
  return {};
}

}  // namespace

JpegRows::JpegRows() noexcept = default;
JpegRows::~JpegRows() = default;

Status JpegRows::open(Bytes file, const JpegHeader& header, const JpegRequest& request) noexcept {
  close();
  if (const Status sound = check(header, request); !sound) return sound;
  if (!state_) state_.reset(new (std::nothrow) State);
  if (!state_) return {Code::no_memory, "there is no memory to decode this JPEG"};
  State& s = *state_;
  s.file = file;
  s.header = header;
  s.request = request;
  s.inverted = header.channels == 4 && header.adobe;
  s.rows_left = request.region.height;
  s.info.err = jpeg_std_error(&s.errors);
  s.info.client_data = &s;
  s.info.src = nullptr;
  s.errors.error_exit = on_error;
  s.errors.emit_message = on_message;
  s.progress.progress_monitor = on_progress;
  s.live = true;
  if (const Status started = attempt(s, start); !started) return started;
  if (const Status skipped = attempt(s, skip_to_region); !skipped) return skipped;
  std::uint8_t* const strip = s.strip.reserve(kMisalignment + s.batch * s.stride);
  if (strip == nullptr) {
    s.close();
    return {Code::no_memory, "there is no memory to decode this JPEG"};
  }
  s.first_row = strip + kMisalignment;
  const bool gray = header.channels == 1 && request.color == JpegColor::keep;
  channels_ = gray ? 1 : header.channels == 4 && request.color == JpegColor::keep ? 4 : 3;
  return {};
}

Status JpegRows::next(std::uint32_t max_rows, Rows& rows) noexcept {
  if (!state_ || !state_->live || max_rows == 0)
    return {Code::bad_argument, "no JPEG is open, or zero rows were requested"};
  State& s = *state_;
  s.asked = std::min({max_rows, s.batch, s.rows_left});
  if (const Status read = attempt(s, read_rows); !read) return read;
  if (s.rows_left == 0) s.close();
  if (s.header.channels == 4) {
    const std::uint32_t width = s.request.region.width;
    for (std::uint32_t y = 0; y < s.asked; ++y) {
      if (s.inverted) invert(s.row(y) + s.lead, std::size_t{width} * 4);
      if (channels_ == 3) cmyk_to_rgb(s.row(y) + s.lead, width);
    }
  }
  rows = {s.row(0) + s.lead, static_cast<std::ptrdiff_t>(s.stride), s.asked};
  return {};
}

void JpegRows::close() noexcept {
  if (state_) state_->close();
}

#define HEADRACE_QUOTE(x) #x
#define HEADRACE_VERSION(x) HEADRACE_QUOTE(x)
const char* jpeg_library() noexcept { return "libjpeg-turbo " HEADRACE_VERSION(LIBJPEG_TURBO_VERSION); }

}  // namespace headrace
