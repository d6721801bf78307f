// SPDX-License-Identifier: Apache-2.0
#include "transform/photometric/steps.h"

#include "transform/photometric/operations.h"

namespace headrace {
namespace {

constexpr bool is_fused(const ColorStep& step) noexcept { return step.kind <= kLastFusedColor; }

Status apply_step(const ColorStep& step, const DrawKey& key, Picture& picture, Workspace& workspace) noexcept {
  switch (step.kind) {
    case ColorKind::enhance_saturation:
      return enhance_saturation(step.value, picture);
    case ColorKind::enhance_sharpness:
      return enhance_sharpness(step.value, picture, workspace);
    case ColorKind::gaussian_blur:
      return blur(step, picture, workspace);
    case ColorKind::gaussian_noise:
      return add_noise(step, key, picture);
    case ColorKind::permute_channels:
      permute_channels(step, key, picture);
      return {};
    case ColorKind::jpeg:
      return compress_as_jpeg(static_cast<int>(step.value), picture, workspace);
    default:
      return map_levels(step, picture, workspace);
  }
}

}  // namespace

Status apply_steps(std::span<const ColorStep> steps, const DrawKey& key, Picture& picture,
                   Workspace& workspace) noexcept {
  for (std::size_t k = 0; k < steps.size();) {
    std::size_t end = k;
    while (end < steps.size() && is_fused(steps[end])) ++end;
    const Status status =
        end > k ? apply_colors(steps.subspan(k, end - k), picture) : apply_step(steps[k], key, picture, workspace);
    if (!status) return status;
    k = end > k ? end : k + 1;
  }
  return {};
}

}  // namespace headrace
