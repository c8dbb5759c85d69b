// A thread's loads and stores: 16 bytes at once if the addresses allow it, otherwise one element or one byte
// at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/element.cuh"

namespace roundelay::kernels::cuda {

// A thread's number in its block, and the number of threads.
struct Thread {
  int index;
  int count;
};

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

template <typename T, int kCount, bool kAligned = true>
ROUNDELAY_DEVICE Pack<T, kCount> load_pack(const std::byte* from) {
  static_assert(kAligned || kCount == 1);
  return load_one<kAligned, Pack<T, kCount>>(from);
}

template <typename T, int kCount, bool kAligned = true>
ROUNDELAY_DEVICE void store_pack(std::byte* to, const Pack<T, kCount>& pack) {
  static_assert(kAligned || kCount == 1);
  store_one<kAligned>(to, pack);
}

// Returns whether all bits of some packs are zero. A branch on it also keeps the loads of the packs together:
// otherwise the compiler moves each one behind the arithmetic of the pack before, which saves registers and
// costs the time of a load for each.
template <typename T, int kCount, int kPacks>
ROUNDELAY_DEVICE bool all_zero(const Pack<T, kCount> (&packs)[kPacks]) {
  using Words = Pack<std::uint32_t, static_cast<int>(sizeof(packs[0]) / sizeof(std::uint32_t))>;
  std::uint32_t bits = 0;
  ROUNDELAY_UNROLL
  for (int u = 0; u < kPacks; ++u) {
    const Words words = std::bit_cast<Words>(packs[u]);
    ROUNDELAY_UNROLL
    for (const std::uint32_t word : words.at) bits |= word;
  }
  return bits == 0;
}

// Returns whether packs of so many elements can be loaded from there.
template <typename T, int kCount>
ROUNDELAY_DEVICE bool holds_packs(const std::byte* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(Pack<T, kCount>) == 0;
}

}  // namespace roundelay::kernels::cuda
