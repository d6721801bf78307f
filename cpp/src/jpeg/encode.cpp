// SPDX-License-Identifier: Apache-2.0
// libjpeg leaves a call that fails by longjmp, so `compress` has no object with a destructor.
#include "jpeg/encode.h"

#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>

namespace headrace {
namespace {

constexpr std::uint32_t kMaxSide = 65500;  // JPEG_MAX_DIMENSION

struct Writer {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  std::jmp_buf escape;
  unsigned char* memory = nullptr;
  unsigned long size = 0;
};

void on_error(j_common_ptr common) noexcept { std::longjmp(static_cast<Writer*>(common->client_data)->escape, 1); }

bool compress(Writer& writer, const Picture& picture, int quality) noexcept {
  jpeg_compress_struct& info = writer.info;
  if (setjmp(writer.escape) != 0) {
    jpeg_destroy_compress(&info);
    return false;
  }
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &writer.memory, &writer.size);
  info.image_height = picture.height;
  info.image_width = picture.width;
  info.input_components = static_cast<int>(picture.type.channels);
  info.in_color_space = picture.type.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  info.dct_method = JDCT_ISLOW;
  jpeg_start_compress(&info, TRUE);
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    JSAMPROW row = picture.first + static_cast<std::ptrdiff_t>(y) * picture.stride;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  return true;
}

}  // namespace

Status encode_jpeg(const Picture& picture, int quality, JpegFile& file) noexcept {
  const PixelType& type = picture.type;
  if ((type.channels != 1 && type.channels != 3) || type.depth != 8 || type.is_signed)
    return {Code::bad_argument, "JPEG holds uint8 images of 1 or 3 channels"};
  if (picture.height == 0 || picture.width == 0 || picture.height > kMaxSide || picture.width > kMaxSide)
    return {Code::bad_argument, "the sides of a JPEG are 1 to 65500 pixels"};
  if (quality < 1 || quality > 100) return {Code::bad_argument, "the quality of a JPEG is 1 to 100"};
  Writer writer;
  writer.info.err = jpeg_std_error(&writer.errors);
  writer.info.client_data = &writer;
  writer.errors.error_exit = on_error;
  const bool done = compress(writer, picture, quality);
  file.memory.reset(writer.memory);
  file.size = writer.size;
  // The arguments were checked: all that is left to fail is memory.
  return done ? Status{} : Status{Code::no_memory, "there is no memory to encode this JPEG"};
}

}  // namespace headrace
