#include "platform/nccl/api.h"

namespace roundelay::platform {

bool nccl_reduces(DType dtype) { return dtype != DType::kInt16 && dtype != DType::kBool; }

}  // namespace roundelay::platform
