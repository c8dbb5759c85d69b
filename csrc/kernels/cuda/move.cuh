// Moves the elements of one array to another with one block of threads: by packs if the addresses allow it,
// each thread with kUnroll packs on their way at once.
//
// `How` says what happens to elements of two arrays: their types To and From, what it reads and writes
// besides `to`, which all write, and a call operator that changes a pack of each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/plan.h"

namespace roundelay::kernels::cuda {

template <typename ToType, typename FromType, bool kReadsToo, bool kReads, bool kWrites>
struct Moves {
  using To = ToType;
  using From = FromType;
  static constexpr bool kReadsTo = kReadsToo, kReadsFrom = kReads, kWritesFrom = kWrites;
};

// The elements of a pack. Only arrays that are read or written count.
template <typename How>
inline constexpr int kMovePack = pack_elements(sizeof(typename How::To),
                                               How::kReadsFrom ? sizeof(typename How::From) : 1);

// Moves packs `first`, `first` + stride, ...: kTimes of them. Issues all loads before the first store.
template <typename How, int kPack, int kTimes, bool kAligned>
ROUNDELAY_DEVICE void move_some(std::byte* to, std::byte* from, int first, int stride, const How& how) {
  using To = typename How::To;
  using From = typename How::From;
  Pack<To, kPack> of_to[kTimes] = {};
  Pack<From, kPack> of_from[kTimes] = {};
  ROUNDELAY_UNROLL
  for (int u = 0; u < kTimes; ++u) {
    const int at = (first + u * stride) * kPack;
    if constexpr (How::kReadsFrom)
      of_from[u] = load_pack<From, kPack, kAligned>(from + at * static_cast<int>(sizeof(From)));
    if constexpr (How::kReadsTo)
      of_to[u] = load_pack<To, kPack, kAligned>(to + at * static_cast<int>(sizeof(To)));
  }
  ROUNDELAY_UNROLL
  for (int u = 0; u < kTimes; ++u) {
    const int at = (first + u * stride) * kPack;
    how(of_to[u], of_from[u]);
    store_pack<To, kPack, kAligned>(to + at * static_cast<int>(sizeof(To)), of_to[u]);
    if constexpr (How::kWritesFrom)
      store_pack<From, kPack, kAligned>(from + at * static_cast<int>(sizeof(From)), of_from[u]);
  }
}

template <typename How, int kPack, bool kAligned>
ROUNDELAY_DEVICE void move_packs(Thread thread, std::byte* to, std::byte* from, int packs, const How& how) {
  int first = thread.index;
  for (; first + (kUnroll - 1) * thread.count < packs; first += kUnroll * thread.count)
    move_some<How, kPack, kUnroll, kAligned>(to, from, first, thread.count, how);
  ROUNDELAY_ROLLED
  for (; first < packs; first += thread.count)
    move_some<How, kPack, 1, kAligned>(to, from, first, thread.count, how);
}

// Moves `count` elements. `width`: as CopyItem::width.
template <typename How>
ROUNDELAY_DEVICE void move_elements(Thread thread, std::byte* to, std::byte* from, int count, int width,
                                    const How& how) {
  constexpr int kPack = kMovePack<How>;
  if (width == kPackBytes) {
    move_packs<How, kPack, true>(thread, to, from, count / kPack, how);
    const int done = count / kPack * kPack;
    to += done * static_cast<int>(sizeof(typename How::To));
    from += done * static_cast<int>(sizeof(typename How::From));
    count -= done;
  }
  if (width != 1) {
    move_packs<How, 1, true>(thread, to, from, count, how);
  } else {
    move_packs<How, 1, false>(thread, to, from, count, how);
  }
}

// Moves `count` elements of arrays that are aligned to their elements.
template <typename How>
ROUNDELAY_DEVICE void move_aligned(Thread thread, std::byte* to, std::byte* from, int count,
                                   const How& how = {}) {
  constexpr int kPack = kMovePack<How>;
  const bool packs = holds_packs<typename How::To, kPack>(to) &&
                     (!How::kReadsFrom || holds_packs<typename How::From, kPack>(from));
  if (packs) {
    move_packs<How, kPack, true>(thread, to, from, count / kPack, how);
  }
  const int done = packs ? count / kPack * kPack : 0;
  move_packs<How, 1, true>(thread, to + done * static_cast<int>(sizeof(typename How::To)),
                           from + done * static_cast<int>(sizeof(typename How::From)), count - done, how);
}

// Moves one element.
template <typename How>
ROUNDELAY_DEVICE void move_one(std::byte* to, std::byte* from) {
  move_some<How, 1, 1, true>(to, from, 0, 0, How{});
}

}  // namespace roundelay::kernels::cuda
