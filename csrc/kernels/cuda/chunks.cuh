// Residuals, chunks and norms, for one block of threads. Tests compile it without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/chunk_element.h"
#include "kernels/cuda/copy.cuh"
#include "kernels/largest.h"

namespace roundelay::kernels::cuda {

inline constexpr int kChunkThreads = 256;
inline constexpr int kSelectThreads = 1024;

// Each of the next four types moves one element: as keep, give_back or take_rounded of kernels/chunks.h, or
// casts it.
template <DType kType>
struct Keep {
  ROUNDELAY_DEVICE static void apply(std::byte* residual, std::byte* value) {
    using Real = ResidualOf<kType>;
    const auto sum =
        added<Real>(load_one<true, Real>(residual), number<kType>(load_one<true, Stored<kType>>(value)));
    store_one<true>(residual, same_nan(sum));
    store_one<true>(value, Stored<kType>{});
  }
  static constexpr DType kTo = residual_type(kType), kFrom = kType;
};

template <DType kType>
struct GiveBack {
  ROUNDELAY_DEVICE static void apply(std::byte* value, std::byte* residual) {
    using Real = ResidualOf<kType>;
    const auto sum =
        added<Real>(load_one<true, Real>(residual), number<kType>(load_one<true, Stored<kType>>(value)));
    store_one<true>(value, result<kType>(sum));
    store_one<true>(residual, Real{});
  }
  static constexpr DType kTo = kType, kFrom = residual_type(kType);
};

template <DType kType>
struct Take {
  ROUNDELAY_DEVICE static void apply(std::byte* sent, std::byte* residual) {
    using Real = ResidualOf<kType>;
    const Real value = load_one<true, Real>(residual);
    const Stored<kType> rounded = result<kType>(value);
    store_one<true>(sent, rounded);
    store_one<true>(residual, remainder_of<Real>(value, number<kType>(rounded)));
  }
  static constexpr DType kTo = kType, kFrom = residual_type(kType);
};

template <DType kToType, DType kFromType>
struct Cast {
  ROUNDELAY_DEVICE static void apply(std::byte* to, std::byte* from) {
    const auto value = load_one<true, Stored<kFromType>>(from);
    if constexpr (kToType == kFromType) {
      store_one<true>(to, value);
    } else {
      store_one<true>(to, scaled<kToType, kFromType, Scaling::kNone>(value, Scaler{}));
    }
  }
  static constexpr DType kTo = kToType, kFrom = kFromType;
};

// The number of elements that a block of threads moves: kUnroll for each thread.
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

// A launch that moves `count` adjacent elements; block b has those from b * kBlockElements on.
struct FlatWork {
  std::byte* to;
  std::byte* from;
  std::uint64_t count;
};

template <typename How>
ROUNDELAY_DEVICE void move_flat(Thread thread, const FlatWork& work, std::uint64_t block) {
  for_elements(thread, block, work.count, [&](std::uint64_t at) {
    How::apply(work.to + at * sizeof(Stored<How::kTo>), work.from + at * sizeof(Stored<How::kFrom>));
  });
}

// A launch that moves chunks between their places in the whole array and a dense array. Each chunk has
// `blocks` blocks of threads.
struct ChunkWork {
  std::byte* to;
  std::byte* from;
  const std::uint32_t* indices;
  Chunking of;
  std::uint64_t blocks;
};

// The elements of one block of threads.
struct ChunkPlace {
  std::uint64_t dense;     // the index of the first one in the dense array
  std::uint64_t in_whole;  // its index in the whole array
  std::uint64_t places;    // the number of elements in the dense array
  std::uint64_t exist;     // how many of these the chunk has: the last chunk may be shorter
};

ROUNDELAY_DEVICE ChunkPlace place_of(const ChunkWork& work, std::uint64_t block) {
  const std::uint64_t slot = block / work.blocks, first = block % work.blocks * kBlockElements;
  const std::uint64_t index = work.indices[slot], size = work.of.size(index);
  const std::uint64_t left = work.of.chunk - first;
  const std::uint64_t exist = size > first ? size - first : 0;
  return {slot * work.of.chunk + first, index * work.of.chunk + first,
          left < kBlockElements ? left : kBlockElements, exist < kBlockElements ? exist : kBlockElements};
}

template <DType kType>
ROUNDELAY_DEVICE void gather_block(Thread thread, const ChunkWork& work, std::uint64_t block) {
  using How = Take<kType>;
  const ChunkPlace place = place_of(work, block);
  for (std::uint64_t i = thread.index; i < place.places; i += thread.count) {
    std::byte* const to = work.to + (place.dense + i) * sizeof(Stored<How::kTo>);
    if (i < place.exist) {
      How::apply(to, work.from + (place.in_whole + i) * sizeof(Stored<How::kFrom>));
    } else {
      store_one<true>(to, Stored<How::kTo>{});
    }
  }
}

template <DType kTo, DType kFrom>
ROUNDELAY_DEVICE void scatter_block(Thread thread, const ChunkWork& work, std::uint64_t block) {
  const ChunkPlace place = place_of(work, block);
  for (std::uint64_t i = thread.index; i < place.exist; i += thread.count) {
    Cast<kTo, kFrom>::apply(work.to + (place.in_whole + i) * sizeof(Stored<kTo>),
                            work.from + (place.dense + i) * sizeof(Stored<kFrom>));
  }
}

template <DType kType>
ROUNDELAY_DEVICE void clear_block(Thread thread, const ChunkWork& work, std::uint64_t block) {
  const ChunkPlace place = place_of(work, block);
  for (std::uint64_t i = thread.index; i < place.exist; i += thread.count)
    store_one<true>(work.to + (place.in_whole + i) * sizeof(Stored<kType>), Stored<kType>{});
}

// Norms: block b computes the norm of chunk b. A thread has the partial sums of adjacent elements, one load
// for each kNormSums elements.
struct NormWork {
  float* norms;
  const std::byte* from;
  Chunking of;
};

template <DType kType>
inline constexpr int kNormPack = pack_elements(sizeof(Stored<kType>), 1);
template <DType kType>
inline constexpr int kNormThreads = kNormSums / kNormPack<kType>;
// All threads run step 0, then all run step 1, and so on.
inline constexpr int kNormSteps = 11;
static_assert(kNormSums == 1 << (kNormSteps - 2));

template <DType kType>
ROUNDELAY_DEVICE void add_range(double* sum, int thread, const std::byte* from, std::uint64_t count) {
  using Element = Stored<kType>;
  constexpr int kPack = kNormPack<kType>;
  const bool packs = reinterpret_cast<std::uintptr_t>(from) % kPackBytes == 0;
  double part[kPack] = {};
  for (std::uint64_t first = std::uint64_t{kPack} * static_cast<unsigned>(thread); first < count;
       first += kNormSums) {
    Pack<Element, kPack> pack{};
    if (packs && first + kPack <= count) {
      pack = load_pack<Element, kPack>(from + first * sizeof(Element));
    } else {
      ROUNDELAY_UNROLL
      for (int i = 0; i < kPack; ++i) {
        if (first + i < count) pack.at[i] = load_one<true, Element>(from + (first + i) * sizeof(Element));
      }
    }
    ROUNDELAY_UNROLL
    for (int i = 0; i < kPack; ++i) part[i] += absolute(static_cast<double>(number<kType>(pack.at[i])));
  }
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

// Adds 1 to a word that other threads of the block add to, too.
struct BlockCounter {
  ROUNDELAY_DEVICE void operator()(std::uint32_t& word) const {
#ifdef __CUDA_ARCH__
    atomicAdd(&word, 1U);
#else
    ++word;
#endif
  }
};
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
