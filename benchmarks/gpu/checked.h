// Ends a measurement with the text of an error.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/status.h"

namespace roundelay::benchmarks {

inline void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}
inline void check(cudaError_t error) {
  if (error != cudaSuccess) check(Status::aborted(cudaGetErrorString(error)));
}
template <typename T>
T check(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace roundelay::benchmarks
