// Adds to numbers that other threads add to, too. Tests compile it without CUDA, for one thread.
#pragma once

#include <cstdint>

#include "kernels/cuda/element.cuh"

namespace roundelay::kernels::cuda {

// Adds 1 to a word that the threads of a block share.
struct BlockCounter {
  ROUNDELAY_DEVICE void operator()(std::uint32_t& word) const {
#ifdef __CUDA_ARCH__
    atomicAdd(&word, 1U);
#else
    ++word;
#endif
  }
};

// Adds to a number in the device's memory.
ROUNDELAY_DEVICE void add_shared(std::uint64_t& to, std::uint64_t number) {
#ifdef __CUDA_ARCH__
  static_assert(sizeof(unsigned long long) == sizeof to);
  atomicAdd(reinterpret_cast<unsigned long long*>(&to), static_cast<unsigned long long>(number));
#else
  to += number;
#endif
}

}  // namespace roundelay::kernels::cuda
