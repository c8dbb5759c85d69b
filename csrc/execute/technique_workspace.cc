#include "execute/technique_workspace.h"

#include "execute/lane_recorder.h"

namespace roundelay::execute {

Result<std::byte*> TechniqueWorkspace::scratch(std::size_t bytes) {
  if (used_ == scratch_.size()) scratch_.emplace_back();
  Scratch& next = scratch_[used_];
  ROUNDELAY_RETURN_IF_ERROR(buffers_.reserve(next, bytes));
  ++used_;
  return next.memory.get();
}

void TechniqueWorkspace::span(std::string_view name) {
  if (recorder_ == nullptr) return;
  end_span();
  span_ = name;
  began_ = steady_now();
}

void TechniqueWorkspace::end_span() {
  if (!span_.empty()) recorder_->record_work(span_, began_);
  span_ = {};
}

}  // namespace roundelay::execute
