// SPDX-License-Identifier: Apache-2.0
// A decoder for each thread that calls into the core.
#pragma once

#include <memory>
#include <utility>

#include "loading/image_rows.h"

namespace headrace::bindings {

// A thread's own decoder and buffers, kept for its next call. Taken out while in use: an allocation may run a finalizer
// that calls into the core too.
class DecoderLease {
 public:
  struct Tools {
    Workspace workspace;
    Decoder decoder{workspace};
  };

  DecoderLease() : tools_(kept_ ? std::move(kept_) : std::make_unique<Tools>()) {}
  ~DecoderLease() { kept_ = std::move(tools_); }
  DecoderLease(const DecoderLease&) = delete;
  DecoderLease& operator=(const DecoderLease&) = delete;
  Tools* operator->() const noexcept { return tools_.get(); }

 private:
  static inline thread_local std::unique_ptr<Tools> kept_;
  std::unique_ptr<Tools> tools_;
};

}  // namespace headrace::bindings
