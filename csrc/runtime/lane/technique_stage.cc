#include "runtime/lane/technique_stage.h"

namespace roundelay::runtime {

Result<std::byte*> TechniqueStage::scratch(std::size_t bytes) {
  if (used_ == scratch_.size()) scratch_.emplace_back();
  Scratch& next = scratch_[used_];
  ROUNDELAY_RETURN_IF_ERROR(buffers_.reserve(next, bytes));
  ++used_;
  return next.memory.get();
}

}  // namespace roundelay::runtime
