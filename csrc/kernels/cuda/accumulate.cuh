// accumulate() and mark_overflow() of kernels/chunks.h, for one block of threads. Tests compile it without
// CUDA.
#pragma once

#include "kernels/cuda/chunks.cuh"

namespace roundelay::kernels::cuda {

// Block b works on chunk b, and takes the steps of a norm. A thread has the partial sums of the elements of a
// pack, in the residual's type.
struct AccumulateWork {
  float* norms;
  ResidualState kept;
  std::byte* values;
  Chunking of;
};

template <DType kType>
inline constexpr int kKeptPack = pack_elements(sizeof(ResidualOf<kType>), 1);
template <DType kType>
inline constexpr int kKeptThreads = kNormSums / kKeptPack<kType>;

// How elements are added to the residual (chunk_element.h); kMoves: momentum is read and written, too. A
// thread loads kAhead packs of each array before it stores the first.
struct PlainSum {
  static constexpr bool kMoves = false;
  static constexpr int kAhead = 4;
  template <typename Real>
  ROUNDELAY_DEVICE static WithoutMomentum how(const LocalMomentum& /*momentum*/) {
    return {};
  }
};
template <template <typename> typename Momentum>
struct MomentumSum {
  static constexpr bool kMoves = true;
  static constexpr int kAhead = 2;
  template <typename Real>
  ROUNDELAY_DEVICE static Momentum<Real> how(const LocalMomentum& momentum) {
    return {static_cast<Real>(momentum.factor)};
  }
};

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

// The packs of one place. A pack that is not whole goes element by element; zeros stand for those that there
// are not.
template <DType kType, bool kMoves>
struct AccumulatedPack {
  static constexpr int kPack = kKeptPack<kType>;
  using Real = ResidualOf<kType>;
  Pack<Real, kPack> kept, moved;
  Pack<Stored<kType>, kPack> value;

  ROUNDELAY_DEVICE static bool whole(const AccumulatedChunk& chunk) {
    return holds_packs<Real, kPack>(chunk.residual) && holds_packs<Stored<kType>, kPack>(chunk.values) &&
           (!kMoves || holds_packs<Real, kPack>(chunk.momentum));
  }
  ROUNDELAY_DEVICE void load(const AccumulatedChunk& chunk, std::uint64_t first) {
    kept = load_pack<Real, kPack>(chunk.residual + first * sizeof(Real));
    value = load_pack<Stored<kType>, kPack>(chunk.values + first * sizeof(Stored<kType>));
    if constexpr (kMoves) moved = load_pack<Real, kPack>(chunk.momentum + first * sizeof(Real));
  }
  ROUNDELAY_DEVICE void load_part(const AccumulatedChunk& chunk, std::uint64_t first, bool packs) {
    kept = load_some<Real, kPack>(chunk.residual, first, chunk.count, packs);
    value = load_some<Stored<kType>, kPack>(chunk.values, first, chunk.count, packs);
    if constexpr (kMoves) moved = load_some<Real, kPack>(chunk.momentum, first, chunk.count, packs);
  }
  template <typename How>
  ROUNDELAY_DEVICE void add(double (&part)[kPack], How how) {
    ROUNDELAY_UNROLL
    for (int i = 0; i < kPack; ++i) {
      Real momentum = kMoves ? moved.at[i] : Real{};
      const Real now = how(kept.at[i], momentum, static_cast<Real>(number<kType>(value.at[i])));
      part[i] += absolute(static_cast<double>(now));
      kept.at[i] = finite_or_zero(now);
      moved.at[i] = finite_or_zero(momentum);
    }
  }
  ROUNDELAY_DEVICE void store(const AccumulatedChunk& chunk, std::uint64_t first) const {
    store_pack(chunk.residual + first * sizeof(Real), kept);
    store_pack(chunk.values + first * sizeof(Stored<kType>), Pack<Stored<kType>, kPack>{});
    if constexpr (kMoves) store_pack(chunk.momentum + first * sizeof(Real), moved);
  }
  ROUNDELAY_DEVICE void store_part(const AccumulatedChunk& chunk, std::uint64_t first, bool packs) const {
    store_some(chunk.residual, kept, first, chunk.count, packs);
    store_some(chunk.values, Pack<Stored<kType>, kPack>{}, first, chunk.count, packs);
    if constexpr (kMoves) store_some(chunk.momentum, moved, first, chunk.count, packs);
  }
};

template <DType kType, typename Way, typename How>
ROUNDELAY_DEVICE void accumulate_range(double* sum, int thread, const AccumulatedChunk& chunk, How how) {
  constexpr int kPack = kKeptPack<kType>, kAhead = Way::kAhead;
  using Packs = AccumulatedPack<kType, Way::kMoves>;
  const bool packs = Packs::whole(chunk);
  double part[kPack] = {};
  std::uint64_t first = std::uint64_t{kPack} * static_cast<unsigned>(thread);
  ROUNDELAY_ROLLED
  for (; packs && first + (kAhead - 1) * kNormSums + kPack <= chunk.count; first += kAhead * kNormSums) {
    Packs pack[kAhead];
    ROUNDELAY_UNROLL
    for (int u = 0; u < kAhead; ++u) pack[u].load(chunk, first + kNormSums * u);
    ROUNDELAY_UNROLL
    for (int u = 0; u < kAhead; ++u) {
      pack[u].add(part, how);
      pack[u].store(chunk, first + kNormSums * u);
    }
  }
  ROUNDELAY_ROLLED
  for (; first < chunk.count; first += kNormSums) {
    Packs pack;
    pack.load_part(chunk, first, packs);
    pack.add(part, how);
    pack.store_part(chunk, first, packs);
  }
  ROUNDELAY_UNROLL
  for (int i = 0; i < kPack; ++i) sum[thread * kPack + i] = part[i];
}

// All threads run step 0, then all run step 1, and so on, kNormSteps steps. `sum` is the block's, kNormSums
// numbers.
template <DType kType, typename Way>
ROUNDELAY_DEVICE void accumulate_step(int step, int thread, const AccumulateWork& work, double* sum,
                                      std::uint64_t block) {
  using Real = ResidualOf<kType>;
  if (step == 0) {
    const std::uint64_t begin = block * work.of.chunk;
    const ResidualState& kept = work.kept;
    const AccumulatedChunk chunk{kept.residual + begin * sizeof(Real),
                                 Way::kMoves ? kept.momentum + begin * sizeof(Real) : nullptr,
                                 work.values + begin * sizeof(Stored<kType>), work.of.size(block)};
    accumulate_range<kType, Way>(sum, thread, chunk, Way::template how<Real>(kept.how));
  } else if (step < kNormSteps - 1) {
    add_up_step(step, {thread, kKeptThreads<kType>}, sum);
  } else if (thread == 0) {
    work.norms[block] = kept_norm(sum[0]);
  }
}

// Calls a function with the way that the state asks for as a template argument.
template <typename Function>
decltype(auto) with_way(const ResidualState& kept, Function function) {
  if (kept.momentum == nullptr) return function.template operator()<PlainSum>();
  if (kept.how.nesterov) return function.template operator()<MomentumSum<Nesterov>>();
  return function.template operator()<MomentumSum<HeavyBall>>();
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
