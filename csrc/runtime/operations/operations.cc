#include "runtime/operations/operations.h"

#include <array>

namespace roundelay::runtime {

const OperationSteps& steps_of(Operation operation) {
  static const std::array<const OperationSteps*, kOperationCount> kSteps = {&kAllreduceSteps,
                                                                            &kBroadcastSteps, &kBarrierSteps};
  return *kSteps[static_cast<std::size_t>(operation)];
}

}  // namespace roundelay::runtime
