// Copies one chunk (CopyGroup::chunk, not a chunk of kernels/chunks.h) with one block of threads. Tests
// compile it without CUDA and give the threads' numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/move.cuh"
#include "kernels/cuda/scaled.cuh"

namespace roundelay::kernels::cuda {

// Copies words as they are. `from` is const elsewhere: nothing is written there.
template <typename Word>
struct CopyWord : Moves<Word, Word, false, true, false> {
  template <int kCount>
  ROUNDELAY_DEVICE void operator()(Pack<Word, kCount>& to, const Pack<Word, kCount>& from) const {
    to = from;
  }
};

// Copies bytes, a word at a time. Addresses are aligned to words, or to packs if `packs`.
template <typename Word>
ROUNDELAY_DEVICE void copy_words(Thread thread, std::byte* to, const std::byte* from, int bytes, int width) {
  constexpr int kBytes = sizeof(Word);
  std::byte* const source = const_cast<std::byte*>(from);
  move_elements(thread, to, source, bytes / kBytes, width, CopyWord<Word>{});
  const int rest = bytes % kBytes;
  if (thread.index < rest) to[bytes - rest + thread.index] = from[bytes - rest + thread.index];
}

// Copies bytes, `width` at a time.
ROUNDELAY_DEVICE void copy_bytes(Thread thread, std::byte* to, const std::byte* from, int bytes, int width) {
  switch (width) {
    case kPackBytes:
      return copy_words<std::uint32_t>(thread, to, from, bytes, kPackBytes);
    case 8:
      return copy_words<Pack<std::uint32_t, 2>>(thread, to, from, bytes, 8);
    case 4:
      return copy_words<std::uint32_t>(thread, to, from, bytes, 4);
    case 2:
      return copy_words<std::uint16_t>(thread, to, from, bytes, 2);
    default:
      return copy_words<std::uint8_t>(thread, to, from, bytes, 1);
  }
}

template <DType kTo, DType kFrom, Scaling kHow>
struct ScaledCopy : Moves<Stored<kTo>, Stored<kFrom>, false, true, false> {
  ROUNDELAY_DEVICE explicit ScaledCopy(const Scaler& scaler) : by(scaler) {}
  template <int kCount>
  ROUNDELAY_DEVICE void operator()(Pack<Stored<kTo>, kCount>& to,
                                   const Pack<Stored<kFrom>, kCount>& from) const {
    to = scale_pack<kTo, kFrom, kHow>(from, by);
  }
  const Scaler& by;
};

// Copies with any way of scaling. The way is the same for all threads, so one kernel serves all.
template <DType kTo, DType kFrom>
ROUNDELAY_DEVICE void copy_chunk(Thread thread, std::byte* to, const std::byte* from, int count, int width,
                                 const Scaler& by) {
  std::byte* const source = const_cast<std::byte*>(from);
  if constexpr (kTo != kFrom) {
    if (by.how == Scaling::kNone) {
      return move_elements(thread, to, source, count, width, ScaledCopy<kTo, kFrom, Scaling::kNone>(by));
    }
  }
  if (by.how == Scaling::kTimes) {
    move_elements(thread, to, source, count, width, ScaledCopy<kTo, kFrom, Scaling::kTimes>(by));
  } else {
    move_elements(thread, to, source, count, width, ScaledCopy<kTo, kFrom, Scaling::kOver>(by));
  }
}

}  // namespace roundelay::kernels::cuda
