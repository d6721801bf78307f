// SPDX-License-Identifier: Apache-2.0
#include "loading/engine.h"

namespace headrace {

Foreign::~Foreign() {
  if (!ended_) fail("LoaderError", "the decoder's thread ended before the image was decoded");
}

const Rendition& Foreign::rendition() const noexcept { return batch_->rendition(job_); }

const Transform& Foreign::transform() const noexcept { return batch_->transform(job_); }

void Foreign::finish(const Picture& picture) noexcept {
  if (ended_) return;
  const auto begin = std::chrono::steady_clock::now();
  // A thread that decodes for us comes back: its workspace is kept for it.
  static thread_local Workspace workspace;
  PictureRows rows(picture);
  const Batch::Output& output = batch_->output(job_);
  const Status status = transform_image(transform(), {picture.height, picture.width, picture.type}, rows,
                                        batch_->key(job_), output.shape, output.data, workspace);
  if (!status) batch_->fail(job_, status);
  engine_.add_foreign(begin - begin_, std::chrono::steady_clock::now() - begin);
  end();
}

void Foreign::fail(std::string kind, std::string message) noexcept {
  if (ended_) return;
  batch_->fail(job_, {Code::corrupt, "", 0, -1}, std::move(kind), std::move(message));
  end();
}

void Foreign::end() noexcept {
  ended_ = true;
  batch_->end_job();
  engine_.release_token();
}

}  // namespace headrace
