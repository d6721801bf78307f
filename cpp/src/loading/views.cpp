// SPDX-License-Identifier: Apache-2.0
// What a view needs is found by running its program on an image that gives nothing but notes what it was asked for. So
// nothing here depends on how programs are made.
#include "loading/views.h"

#include <algorithm>
#include <cstring>

namespace headrace {
namespace {

// Larger pictures are not kept: their views are decoded one by one, with little memory.
constexpr std::uint64_t kMaxShared = std::uint64_t{1} << 28;

constexpr Status kNothing{Code::bad_argument, "this image has no pixels"};

std::uint64_t area(const Region& region) noexcept { return std::uint64_t{region.height} * region.width; }

// Notes the first region that it is asked for and gives nothing.
class RegionProbe final : public ImageRows {
 public:
  Status start(Region region, RowSource*&) noexcept override {
    asked = true;
    wanted = region;
    return kNothing;
  }

  bool asked = false;
  Region wanted{};
};

// A picture that is a part of an image, in the place of the image.
class PartRows final : public ImageRows {
 public:
  PartRows(const Picture& picture, const Region& part) noexcept : rows_(picture), part_(part) {}
  Status start(Region region, RowSource*& rows) noexcept override {
    return rows_.start({region.top - part_.top, region.left - part_.left, region.height, region.width}, rows);
  }

 private:
  PictureRows rows_;
  Region part_;
};

Region joined(const Region& a, const Region& b) noexcept {
  const std::uint32_t top = std::min(a.top, b.top), left = std::min(a.left, b.left);
  return {top, left, std::max(a.top + a.height, b.top + b.height) - top,
          std::max(a.left + a.width, b.left + b.width) - left};
}

Status transform_view(const View& view, const ImageShape& shape, ImageRows& image, Workspace& workspace) noexcept {
  return transform_image(*view.transform, shape, image, view.key, view.expected, view.out, workspace);
}

Status decode(ImageRows& image, const Region& region, const PixelType& type, std::uint8_t* memory,
              Picture& picture) noexcept {
  const std::size_t stride = std::size_t{region.width} * type.pixel_bytes();
  picture = {memory, static_cast<std::ptrdiff_t>(stride), region.height, region.width, type};
  RowSource* source = nullptr;
  if (Status s = image.start(region, source); !s) return s;
  Rows rows;
  for (std::uint32_t y = 0; y < region.height; y += rows.count) {
    if (Status s = source->next(region.height - y, rows); !s) return s;
    for (std::uint32_t i = 0; i < rows.count; ++i) std::memcpy(memory + (y + i) * stride, rows.row(i), stride);
  }
  return {};
}

}  // namespace

Status transform_views(std::span<const View> views, const ImageShape& shape, bool entire, ImageRows& image,
                       Workspace& workspace) noexcept {
  const auto each_from = [&](ImageRows& rows) {
    for (const View& view : views)
      if (Status s = transform_view(view, shape, rows, workspace); !s) return s;
    return Status{};
  };
  // An approximate decoder chooses the size of each view's picture.
  if (views.size() == 1 || views[0].transform->approximate_jpeg) return each_from(image);

  Region part{};
  std::uint64_t pixels = 0;  // that the views need, one by one
  for (const View& view : views) {
    RegionProbe probe;
    const Status s = transform_view(view, shape, probe, workspace);
    if (!probe.asked) {
      if (!s) return s;
      continue;  // it shows nothing of the image
    }
    part = pixels == 0 ? probe.wanted : joined(part, probe.wanted);
    pixels += area(probe.wanted);
  }
  const bool cheaper = pixels > 0 && (entire || area(part) <= pixels);
  const std::uint64_t n_bytes = area(part) * shape.type.pixel_bytes();
  if (!cheaper || n_bytes > kMaxShared) return each_from(image);
  std::uint8_t* const memory = workspace.shared.reserve(static_cast<std::size_t>(n_bytes));
  if (!memory) return {Code::no_memory, "no memory to decode an image", 0, -1};
  Picture picture;
  if (Status s = decode(image, part, shape.type, memory, picture); !s) return s;
  PartRows rows(picture, part);
  return each_from(rows);
}

}  // namespace headrace
