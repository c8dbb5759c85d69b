// Chooses a kernel by its floating type.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/status.h"

namespace roundelay::kernels::cuda {

// Calls `function` with the type as a template argument.
template <typename Function>
Status with_floating(DType dtype, Function function) {
  switch (dtype) {
    case DType::kFloat64:
      return function.template operator()<DType::kFloat64>();
    case DType::kFloat32:
      return function.template operator()<DType::kFloat32>();
    case DType::kFloat16:
      return function.template operator()<DType::kFloat16>();
    case DType::kBFloat16:
      return function.template operator()<DType::kBFloat16>();
    default:
      return Status::invalid("residuals and chunks are of floating types, not " +
                             std::string(name_of(dtype)));
  }
}

}  // namespace roundelay::kernels::cuda
