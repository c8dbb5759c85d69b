// A sum over the threads of a block, up to each of them. Tests compile it without CUDA.
#pragma once

#include <bit>

#include "kernels/cuda/element.cuh"

namespace roundelay::kernels::cuda {

// Memory that the threads share. Each thread sets its number; then all run step 0, all run step 1, and so on.
template <typename T, int kThreads>
class Scan {
 public:
  static constexpr int kSteps = std::bit_width(static_cast<unsigned>(kThreads)) - 1;
  static_assert(kThreads == 1 << kSteps);

  ROUNDELAY_DEVICE void set(int thread, T number) { sums_[0][thread] = number; }
  ROUNDELAY_DEVICE void run(int step, int thread) {
    const T* const from = sums_[step % 2];
    const int distance = 1 << step;
    sums_[(step + 1) % 2][thread] =
        thread < distance ? from[thread] : static_cast<T>(from[thread - distance] + from[thread]);
  }
  // The sum of the numbers before this thread's.
  [[nodiscard]] ROUNDELAY_DEVICE T before(int thread) const {
    return thread == 0 ? T{} : sums_[kSteps % 2][thread - 1];
  }
  [[nodiscard]] ROUNDELAY_DEVICE T total() const { return sums_[kSteps % 2][kThreads - 1]; }

 private:
  T sums_[2][kThreads];
};

}  // namespace roundelay::kernels::cuda
