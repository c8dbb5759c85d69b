// Loads and stores of a thread: 16 bytes at once where addresses allow, else one element, or one byte, at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/element.cuh"

namespace roundelay::kernels::cuda {

// What lies side by side and is moved by one instruction.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

// A template, as from a choice at run time the compiler makes one access for both.
template <bool kAligned, typename T>
ROUNDELAY_DEVICE T load_one(const std::byte* from) {
  if constexpr (kAligned) {
    return *reinterpret_cast<const T*>(from);
  } else {
    return load<T>(from);
  }
}

template <bool kAligned, typename T>
ROUNDELAY_DEVICE void store_one(std::byte* to, T value) {
  if constexpr (kAligned) {
    *reinterpret_cast<T*>(to) = value;
  } else {
    store<T>(to, value);
  }
}

template <typename T, int kCount>
ROUNDELAY_DEVICE Pack<T, kCount> load_pack(const std::byte* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}

template <typename T, int kCount>
ROUNDELAY_DEVICE void store_pack(std::byte* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

}  // namespace roundelay::kernels::cuda
