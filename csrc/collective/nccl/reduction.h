// Divides a reduction between NCCL and the kernels before and after it.
#pragma once

#include <optional>

#include "collective/call.h"
#include "platform/nccl/api.h"

namespace roundelay::collective::nccl {

struct ReductionPlan {
  DType nccl_type =
      DType::kFloat32;  // the type that NCCL reduces; where elements have to be widened, a wider one
  Scale before;         // a kernel scales each part
  platform::NcclCommunicator::Reduction reduction{};
  Scale after;  // a kernel scales the result
};

// Returns nothing where NCCL and kernels cannot give the CPU's result up to rounding. The same on all
// members.
[[nodiscard]] std::optional<ReductionPlan> reduction_of(const Reduction& given, int members);

}  // namespace roundelay::collective::nccl
