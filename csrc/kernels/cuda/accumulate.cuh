// accumulate() and mark_overflow() of kernels/chunks.h, for one block of threads. Tests compile it without
// CUDA.
#pragma once

#include "kernels/cuda/chunks.cuh"

namespace roundelay::kernels::cuda {

// Block b works on chunk b, and takes the steps of a norm. A thread has the partial sums of the elements of a
// pack, in the residual's type. It loads kAhead packs before it stores the first.
struct AccumulateWork {
  float* norms;
  ResidualState kept;
  std::byte* values;
  Chunking of;
};

inline constexpr int kAhead = 4;
template <DType kType>
inline constexpr int kKeptPack = pack_elements(sizeof(ResidualOf<kType>), 1);
template <DType kType>
inline constexpr int kKeptThreads = kNormSums / kKeptPack<kType>;

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

template <typename T, int kCount>
ROUNDELAY_DEVICE void store_some(std::byte* to, const Pack<T, kCount>& pack, std::uint64_t first,
                                 std::uint64_t count, bool packs) {
  if (packs && first + kCount <= count) return store_pack(to + first * sizeof(T), pack);
  ROUNDELAY_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (first + i < count) store_one<true>(to + (first + i) * sizeof(T), pack.at[i]);
  }
}

// A chunk's memory.
struct AccumulatedChunk {
  std::byte* residual;
  std::byte* momentum;  // null: without momentum
  std::byte* values;
  std::uint64_t count;
};

template <DType kType, typename How>
ROUNDELAY_DEVICE void accumulate_range(double* sum, int thread, const AccumulatedChunk& chunk, How how) {
  using Real = ResidualOf<kType>;
  using Element = Stored<kType>;
  constexpr int kPack = kKeptPack<kType>;
  constexpr bool kMoves = !std::is_same_v<How, WithoutMomentum>;
  const auto aligned = [](const std::byte* at, std::size_t to) {
    return reinterpret_cast<std::uintptr_t>(at) % to == 0;
  };
  const bool packs = aligned(chunk.residual, kPackBytes) && aligned(chunk.values, kPack * sizeof(Element)) &&
                     (!kMoves || aligned(chunk.momentum, kPackBytes));
  double part[kPack] = {};
  for (std::uint64_t begin = std::uint64_t{kPack} * static_cast<unsigned>(thread); begin < chunk.count;
       begin += std::uint64_t{kAhead} * kNormSums) {
    Pack<Real, kPack> kept[kAhead], moved[kAhead];
    Pack<Element, kPack> value[kAhead];
    ROUNDELAY_UNROLL
    for (int u = 0; u < kAhead; ++u) {
      const std::uint64_t first = begin + std::uint64_t{kNormSums} * u;
      kept[u] = load_some<Real, kPack>(chunk.residual, first, chunk.count, packs);
      value[u] = load_some<Element, kPack>(chunk.values, first, chunk.count, packs);
      if constexpr (kMoves) moved[u] = load_some<Real, kPack>(chunk.momentum, first, chunk.count, packs);
    }
    ROUNDELAY_UNROLL
    for (int u = 0; u < kAhead; ++u) {
      const std::uint64_t first = begin + std::uint64_t{kNormSums} * u;
      ROUNDELAY_UNROLL
      for (int i = 0; i < kPack; ++i) {
        Real momentum = kMoves ? moved[u].at[i] : Real{};
        const Real now = how(kept[u].at[i], momentum, static_cast<Real>(number<kType>(value[u].at[i])));
        part[i] += absolute(static_cast<double>(now));
        kept[u].at[i] = finite_or_zero(now);
        moved[u].at[i] = finite_or_zero(momentum);
      }
      store_some(chunk.residual, kept[u], first, chunk.count, packs);
      store_some(chunk.values, Pack<Element, kPack>{}, first, chunk.count, packs);
      if constexpr (kMoves) store_some(chunk.momentum, moved[u], first, chunk.count, packs);
    }
  }
  ROUNDELAY_UNROLL
  for (int i = 0; i < kPack; ++i) sum[thread * kPack + i] = part[i];
}

// All threads run step 0, then all run step 1, and so on, kNormSteps steps. `sum` is the block's, kNormSums
// numbers.
template <DType kType>
ROUNDELAY_DEVICE void accumulate_step(int step, int thread, const AccumulateWork& work, double* sum,
                                      std::uint64_t block) {
  using Real = ResidualOf<kType>;
  if (step == 0) {
    const std::uint64_t begin = block * work.of.chunk;
    const ResidualState& kept = work.kept;
    const AccumulatedChunk chunk{kept.residual + begin * sizeof(Real),
                                 kept.momentum == nullptr ? nullptr : kept.momentum + begin * sizeof(Real),
                                 work.values + begin * sizeof(Stored<kType>), work.of.size(block)};
    const auto factor = static_cast<Real>(kept.how.factor);
    if (kept.momentum == nullptr) {
      accumulate_range<kType>(sum, thread, chunk, WithoutMomentum{});
    } else if (kept.how.nesterov) {
      accumulate_range<kType>(sum, thread, chunk, Nesterov<Real>{factor});
    } else {
      accumulate_range<kType>(sum, thread, chunk, HeavyBall<Real>{factor});
    }
  } else if (step < kNormSteps - 1) {
    add_up_step(step, {thread, kKeptThreads<kType>}, sum);
  } else if (thread == 0) {
    work.norms[block] = kept_norm(sum[0]);
  }
}

struct MarkWork {
  std::byte* value;
  const float* norms;
  std::uint64_t count;
};

template <DType kType>
ROUNDELAY_DEVICE void mark_overflow_block(Thread thread, const MarkWork& work) {
  using Wide = typename Element<kType>::Wide;
  for (std::uint64_t i = thread.index; i < work.count; i += thread.count) {
    if (!is_finite(work.norms[i]))
      store_one<true>(work.value, result<kType>(std::numeric_limits<Wide>::quiet_NaN()));
  }
}

}  // namespace roundelay::kernels::cuda
