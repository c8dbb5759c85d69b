// Copies one chunk (CopyGroup::chunk, not a chunk of kernels/chunks.h) with one block of threads. Tests
// compile it without CUDA and give the threads' numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/any.cuh"
#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/plan.h"

namespace roundelay::kernels::cuda {

// A thread's number in its block, and the number of threads.
struct Thread {
  int index;
  int count;
};

// Copies bytes, kWidth at a time.
template <int kWidth>
ROUNDELAY_DEVICE void copy_words(Thread thread, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  using Word = Pack<std::uint8_t, kWidth>;
  const auto words = static_cast<int>(bytes / kWidth);
  Word word[kUnroll];
  for (int first = thread.index; first < words; first += kUnroll * thread.count) {
    ROUNDELAY_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int i = first + u * thread.count;
      if (i < words) word[u] = load_pack<std::uint8_t, kWidth>(from + i * kWidth);
    }
    ROUNDELAY_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int i = first + u * thread.count;
      if (i < words) store_pack(to + i * kWidth, word[u]);
    }
  }
  const auto rest = static_cast<int>(bytes % kWidth);
  if (thread.index < rest) to[words * kWidth + thread.index] = from[words * kWidth + thread.index];
}

// Copies bytes, `width` at a time.
ROUNDELAY_DEVICE void copy_bytes(Thread thread, std::byte* to, const std::byte* from, std::uint64_t bytes,
                                 int width) {
  switch (width) {
    case 16:
      return copy_words<16>(thread, to, from, bytes);
    case 8:
      return copy_words<8>(thread, to, from, bytes);
    case 4:
      return copy_words<4>(thread, to, from, bytes);
    case 2:
      return copy_words<2>(thread, to, from, bytes);
    default:
      return copy_words<1>(thread, to, from, bytes);
  }
}

// Copies one element at a time; neighbouring threads copy neighbouring elements.
template <DType kTo, DType kFrom, Scaling kHow, bool kAligned>
ROUNDELAY_DEVICE void copy_singly(Thread thread, std::byte* to, const std::byte* from, int count,
                                  const Scaler& by) {
  using To = Stored<kTo>;
  using From = Stored<kFrom>;
  for (int first = thread.index; first < count; first += kUnroll * thread.count) {
    From one[kUnroll];
    ROUNDELAY_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int i = first + u * thread.count;
      if (i < count) one[u] = load_one<kAligned, From>(from + i * static_cast<int>(sizeof(From)));
    }
    ROUNDELAY_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int i = first + u * thread.count;
      if (i < count) {
        store_one<kAligned>(to + i * static_cast<int>(sizeof(To)), scaled<kTo, kFrom, kHow>(one[u], by));
      }
    }
  }
}

// Copies `count` elements, at most a chunk. Issues all loads before the first store.
template <DType kTo, DType kFrom, Scaling kHow>
ROUNDELAY_DEVICE void copy_elements(Thread thread, std::byte* to, const std::byte* from, int count, int width,
                                    const Scaler& by) {
  using To = Stored<kTo>;
  using From = Stored<kFrom>;
  constexpr int kPack = pack_elements(sizeof(To), sizeof(From));
  if (width == kPackBytes && count == thread.count * kUnroll * kPack) {
    Pack<From, kPack> pack[kUnroll];
    ROUNDELAY_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int i = (thread.index + u * thread.count) * kPack;
      pack[u] = load_pack<From, kPack>(from + i * static_cast<int>(sizeof(From)));
    }
    ROUNDELAY_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int i = (thread.index + u * thread.count) * kPack;
      Pack<To, kPack> out;
      ROUNDELAY_UNROLL
      for (int e = 0; e < kPack; ++e) out.at[e] = scaled<kTo, kFrom, kHow>(pack[u].at[e], by);
      store_pack(to + i * static_cast<int>(sizeof(To)), out);
    }
    return;
  }
  if (width != 1) {
    copy_singly<kTo, kFrom, kHow, true>(thread, to, from, count, by);
  } else {
    copy_singly<kTo, kFrom, kHow, false>(thread, to, from, count, by);
  }
}

// Copies with any way of scaling. The way is the same for all threads, so one kernel serves all.
template <DType kTo, DType kFrom>
ROUNDELAY_DEVICE void copy_chunk(Thread thread, std::byte* to, const std::byte* from, int count, int width,
                                 const Scaler& by) {
  if constexpr (kTo != kFrom) {
    if (by.how == Scaling::kNone)
      return copy_elements<kTo, kFrom, Scaling::kNone>(thread, to, from, count, width, by);
  }
  if (by.how == Scaling::kTimes) {
    copy_elements<kTo, kFrom, Scaling::kTimes>(thread, to, from, count, width, by);
  } else {
    copy_elements<kTo, kFrom, Scaling::kOver>(thread, to, from, count, width, by);
  }
}

struct AnyTypes {
  DType to, from;
  int to_size, from_size;
};

template <bool kAligned>
ROUNDELAY_DEVICE void copy_any(Thread thread, std::byte* to, const std::byte* from, const AnyTypes& types,
                               int count, const Scaler& by) {
  for (int i = thread.index; i < count; i += thread.count) {
    const AnyValue value = load_any<kAligned>(types.from, from + i * types.from_size, types.to, by);
    store_any<kAligned>(types.to, to + i * types.to_size, value);
  }
}

}  // namespace roundelay::kernels::cuda
