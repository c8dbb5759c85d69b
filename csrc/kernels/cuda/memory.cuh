// A thread's loads and stores: 16 bytes at once if the addresses allow it, otherwise one element or one byte
// at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/element.cuh"

namespace roundelay::kernels::cuda {

// Adjacent elements that one instruction loads or stores.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

// kAligned is a template argument, because from a run-time choice the compiler would make unaligned access
// for both.
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
