// Residuals, chunks and norms, for one block of threads. Tests compile it without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/chunk_element.h"
#include "kernels/cuda/atomics.cuh"
#include "kernels/cuda/move.cuh"
#include "kernels/cuda/scaled.cuh"
#include "kernels/largest.h"

namespace roundelay::kernels::cuda {

inline constexpr int kChunkThreads = 256;
inline constexpr int kSelectThreads = 1024;

// Each of the next types moves elements (move.cuh): as keep, give_back or take_rounded of kernels/chunks.h,
// or casts or clears them.
template <DType kType>
struct Keep : Moves<ResidualOf<kType>, Stored<kType>, true, true, true> {
  template <int kCount>
  ROUNDELAY_DEVICE void operator()(Pack<ResidualOf<kType>, kCount>& residual,
                                   Pack<Stored<kType>, kCount>& values) const {
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i) {
      residual.at[i] = same_nan(added<ResidualOf<kType>>(residual.at[i], number<kType>(values.at[i])));
      values.at[i] = {};
    }
  }
};

template <DType kType>
struct GiveBack : Moves<Stored<kType>, ResidualOf<kType>, true, true, true> {
  template <int kCount>
  ROUNDELAY_DEVICE void operator()(Pack<Stored<kType>, kCount>& values,
                                   Pack<ResidualOf<kType>, kCount>& residual) const {
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i) {
      values.at[i] = result<kType>(added<ResidualOf<kType>>(residual.at[i], number<kType>(values.at[i])));
      residual.at[i] = {};
    }
  }
};

template <DType kType>
struct Take : Moves<Stored<kType>, ResidualOf<kType>, false, true, true> {
  template <int kCount>
  ROUNDELAY_DEVICE void operator()(Pack<Stored<kType>, kCount>& sent,
                                   Pack<ResidualOf<kType>, kCount>& residual) const {
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const ResidualOf<kType> value = residual.at[i];
      sent.at[i] = result<kType>(value);
      residual.at[i] = remainder_of<ResidualOf<kType>>(value, number<kType>(sent.at[i]));
    }
  }
};

template <DType kTo, DType kFrom>
struct Cast : Moves<Stored<kTo>, Stored<kFrom>, false, true, false> {
  template <int kCount>
  ROUNDELAY_DEVICE void operator()(Pack<Stored<kTo>, kCount>& to,
                                   const Pack<Stored<kFrom>, kCount>& from) const {
    if constexpr (kTo == kFrom) {
      to = from;
    } else {
      to = scale_pack<kTo, kFrom, Scaling::kNone>(from, Scaler{});
    }
  }
};

template <DType kType>
struct Clear : Moves<Stored<kType>, Stored<kType>, false, false, false> {
  template <int kCount>
  ROUNDELAY_DEVICE void operator()(Pack<Stored<kType>, kCount>& to,
                                   const Pack<Stored<kType>, kCount>& /*from*/) const {
    to = {};
  }
};

// The number of elements of a block of threads that has them one by one: kUnroll for each thread.
inline constexpr std::uint64_t kBlockElements = std::uint64_t{kUnroll} * kChunkThreads;

// Returns the number of blocks of threads that so many elements need.
constexpr std::uint64_t blocks_of(std::uint64_t elements) {
  return (elements + kBlockElements - 1) / kBlockElements;
}

// Calls a function with each element below `count` that belongs to this thread of the block.
template <typename Visit>
ROUNDELAY_DEVICE void for_elements(Thread thread, std::uint64_t block, std::uint64_t count, Visit visit) {
  for (std::uint64_t i = thread.index; i < kBlockElements; i += thread.count) {
    const std::uint64_t at = block * kBlockElements + i;
    if (at < count) visit(at);
  }
}

// A launch that moves `count` adjacent elements; block b has `each` of them, from b * each on.
struct FlatWork {
  std::byte* to;
  std::byte* from;
  std::uint64_t count;
  std::uint64_t each;
};

template <typename How>
ROUNDELAY_DEVICE void move_flat(Thread thread, const FlatWork& work, std::uint64_t block) {
  const std::uint64_t begin = block * work.each, left = work.count - begin;
  move_aligned<How>(thread, work.to + begin * sizeof(typename How::To),
                    work.from + begin * sizeof(typename How::From),
                    static_cast<int>(left < work.each ? left : work.each));
}

// A launch that moves chunks between their places in the whole array and a dense array. Each chunk has
// `blocks` blocks of threads, and each block `each` elements.
struct ChunkWork {
  std::byte* to;
  std::byte* from;
  const std::uint32_t* indices;
  Chunking of;
  std::uint64_t each;
  std::uint64_t blocks;
};

// The elements of one block of threads.
struct ChunkPlace {
  std::uint64_t dense;     // the index of the first one in the dense array
  std::uint64_t in_whole;  // its index in the whole array
  int places;              // the number of elements in the dense array
  int exist;               // how many of these the chunk has: the last chunk may be shorter
};

ROUNDELAY_DEVICE ChunkPlace place_of(const ChunkWork& work, std::uint64_t block) {
  const std::uint64_t slot = block / work.blocks, first = block % work.blocks * work.each;
  const std::uint64_t index = work.indices[slot], size = work.of.size(index);
  const auto some = [&](std::uint64_t of) {
    const std::uint64_t left = of > first ? of - first : 0;
    return static_cast<int>(left < work.each ? left : work.each);
  };
  return {slot * work.of.chunk + first, index * work.of.chunk + first, some(work.of.chunk), some(size)};
}

template <DType kType>
ROUNDELAY_DEVICE void gather_block(Thread thread, const ChunkWork& work, std::uint64_t block) {
  const ChunkPlace place = place_of(work, block);
  std::byte* const to = work.to + place.dense * sizeof(Stored<kType>);
  move_aligned<Take<kType>>(thread, to, work.from + place.in_whole * sizeof(ResidualOf<kType>), place.exist);
  move_aligned<Clear<kType>>(thread, to + place.exist * static_cast<int>(sizeof(Stored<kType>)), nullptr,
                             place.places - place.exist);
}

template <DType kTo, DType kFrom>
ROUNDELAY_DEVICE void scatter_block(Thread thread, const ChunkWork& work, std::uint64_t block) {
  const ChunkPlace place = place_of(work, block);
  move_aligned<Cast<kTo, kFrom>>(thread, work.to + place.in_whole * sizeof(Stored<kTo>),
                                 work.from + place.dense * sizeof(Stored<kFrom>), place.exist);
}

template <DType kType>
ROUNDELAY_DEVICE void clear_block(Thread thread, const ChunkWork& work, std::uint64_t block) {
  const ChunkPlace place = place_of(work, block);
  move_aligned<Clear<kType>>(thread, work.to + place.in_whole * sizeof(Stored<kType>), nullptr, place.exist);
}

// Norms: block b computes the norm of chunk b. A thread has the partial sums of adjacent elements, one pack
// for each kNormSums elements. It loads kNormAhead packs before it adds the first: a block, which has fewer
// threads for halves, then has as many bytes on their way.
struct NormWork {
  float* norms;
  const std::byte* from;
  Chunking of;
};

template <DType kType>
inline constexpr int kNormPack = pack_elements(sizeof(Stored<kType>), 1);
template <DType kType>
inline constexpr int kNormAhead = kNormPack<kType>;
template <DType kType>
inline constexpr int kNormThreads = kNormSums / kNormPack<kType>;
// All threads run step 0, then all run step 1, and so on.
inline constexpr int kNormSteps = 11;
static_assert(kNormSums == 1 << (kNormSteps - 2));

// Loads the elements from `first` on, of `count`; zeros stand for those that there are not. `packs`: the
// memory is aligned to packs.
template <typename T, int kCount>
ROUNDELAY_DEVICE Pack<T, kCount> load_some(const std::byte* from, std::uint64_t first, std::uint64_t count,
                                           bool packs) {
  if (packs && first + kCount <= count) return load_pack<T, kCount>(from + first * sizeof(T));
  Pack<T, kCount> pack{};
  ROUNDELAY_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (first + i < count) pack.at[i] = load_one<true, T>(from + (first + i) * sizeof(T));
  }
  return pack;
}

template <DType kType, int kCount>
ROUNDELAY_DEVICE void add_magnitudes(double (&sums)[kCount], const Pack<Stored<kType>, kCount>& pack) {
  ROUNDELAY_UNROLL
  for (int i = 0; i < kCount; ++i) sums[i] += absolute(static_cast<double>(number<kType>(pack.at[i])));
}

template <DType kType>
ROUNDELAY_DEVICE void add_range(double* sum, int thread, const std::byte* from, std::uint64_t count) {
  using Element = Stored<kType>;
  constexpr int kPack = kNormPack<kType>, kAhead = kNormAhead<kType>;
  const bool packs = holds_packs<Element, kPack>(from);
  double part[kPack] = {};
  std::uint64_t first = std::uint64_t{kPack} * static_cast<unsigned>(thread);
  const std::uint64_t rounds = packs ? count / (kAhead * kNormSums) : 0;
  ROUNDELAY_ROLLED
  for (std::uint64_t round = 0; round < rounds; ++round, first += kAhead * kNormSums) {
    Pack<Element, kPack> pack[kAhead];
    ROUNDELAY_UNROLL
    for (int u = 0; u < kAhead; ++u)
      pack[u] = load_pack<Element, kPack>(from + (first + kNormSums * u) * sizeof(Element));
    if (all_zero(pack)) continue;  // zeros do not change a sum of magnitudes
    ROUNDELAY_UNROLL
    for (int u = 0; u < kAhead; ++u) add_magnitudes<kType>(part, pack[u]);
  }
  ROUNDELAY_ROLLED
  for (; first < count; first += kNormSums)
    add_magnitudes<kType>(part, load_some<Element, kPack>(from, first, count, packs));
  ROUNDELAY_UNROLL
  for (int i = 0; i < kPack; ++i) sum[thread * kPack + i] = part[i];
}

// Takes part in adding up the sums: the step halves their number.
ROUNDELAY_DEVICE void add_up_step(int step, Thread thread, double* sum) {
  const int half = kNormSums >> step;
  for (int i = thread.index; i < half; i += thread.count) sum[i] += sum[i + half];
}

// `sum` has kNormSums numbers, which the block's threads share.
template <DType kType>
ROUNDELAY_DEVICE void norm_step(int step, int thread, const NormWork& work, double* sum,
                                std::uint64_t block) {
  if (step == 0) {
    const std::uint64_t begin = block * work.of.chunk * sizeof(Stored<kType>);
    add_range<kType>(sum, thread, work.from + begin, work.of.size(block));
  } else if (step < kNormSteps - 1) {
    add_up_step(step, {thread, kNormThreads<kType>}, sum);
  } else if (thread == 0) {
    work.norms[block] = same_nan(static_cast<float>(sum[0]));
  }
}

using SelectSteps = LargestSteps<kSelectThreads, BlockCounter>;

// Writes the chunk indices of a progression.
struct NumberWork {
  std::uint32_t* indices;
  std::uint64_t count;
  Progression numbers;
};

ROUNDELAY_DEVICE void number_block(Thread thread, const NumberWork& work, std::uint64_t block) {
  for_elements(thread, block, work.count, [&](std::uint64_t at) { work.indices[at] = work.numbers.at(at); });
}

}  // namespace roundelay::kernels::cuda
