#include "gpu/technique_levels.h"

#include <algorithm>
#include <utility>

#include "collective/staged/staged_fabric.h"

namespace roundelay::gpu {

using collective::Fabric;

void TechniqueLevels::make(std::span<Fabric* const> cpu, GpuRuntime& runtime, int device) {
  for (Fabric* const level : cpu) {
    staged_.push_back(collective::make_staged_fabric(*level, runtime, device));
    fabrics_.push_back(staged_.back().get());
  }
}

void TechniqueLevels::take_inside(FabricPtr faster) {
  faster_ = std::move(faster);
  fabrics_.front() = faster_.get();
}

bool TechniqueLevels::poisoned() const {
  return std::ranges::any_of(fabrics_, [](const Fabric* fabric) { return fabric->poisoned(); });
}

Status TechniqueLevels::health() { return faster_ ? faster_->capabilities().device->health() : Status{}; }

void TechniqueLevels::give_up(const Status& cause) {
  if (faster_) faster_->capabilities().device->give_up(cause);
}

}  // namespace roundelay::gpu
