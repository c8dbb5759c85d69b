// How NCCL carries out a reduction: what it can do itself, what kernels do before and after.
#pragma once

#include <optional>

#include "collective/call.h"
#include "platform/nccl/api.h"

namespace roundelay::collective::nccl {

struct ReductionPlan {
  DType wire = DType::kFloat32;  // what NCCL reduces; wider than the elements where they have to be widened
  Scale before;                  // of each part, by a kernel
  platform::NcclCommunicator::Reduction reduction{};
  Scale after;  // of the result, by a kernel
};

// Null: NCCL and kernels would not give what the CPU gives, but for rounding. The same on all members.
[[nodiscard]] std::optional<ReductionPlan> reduction_of(const Reduction& given, int members);

}  // namespace roundelay::collective::nccl
