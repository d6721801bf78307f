// SPDX-License-Identifier: Apache-2.0
#include "transform/finish.h"

#include "kernels.h"

namespace headrace {

void finish_rows(const FinishRows& job) noexcept { kernels().pixels.finish_rows(job); }

}  // namespace headrace
