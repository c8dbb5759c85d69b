// Low-rank approximations (kernels/low_rank.h), for one block of threads, in the order of low_rank_order.h.
// Tests compile it without CUDA.
#pragma once

#include "kernels/cuda/chunks.cuh"
#include "kernels/low_rank.h"
#include "kernels/low_rank_order.h"

namespace roundelay::kernels::cuda {

inline constexpr int kLowRankThreads = 256;
inline constexpr int kVectorThreads = kNormSums;
inline constexpr int kElementsAhead = 8;  // elements that a thread loads before it uses the first

// Runs a step on all threads of the block, and waits for them.
template <int kThreads, typename Step>
ROUNDELAY_DEVICE void each_thread(Step step) {
#ifdef __CUDA_ARCH__
  step(static_cast<int>(threadIdx.x));
  __syncthreads();
#else
  for (int thread = 0; thread < kThreads; ++thread) step(thread);
#endif
}

// Reads and writes elements of U. Element `at` counts from the block's first one.
template <DType kType>
class UElements {
 public:
  using Real = ResidualOf<kType>;

  ROUNDELAY_DEVICE explicit UElements(const LowRankBlock& block)
      : values_(block.values), residual_(block.residual), weight_(static_cast<Real>(block.weight)) {}

  [[nodiscard]] ROUNDELAY_DEVICE Real operator[](std::uint64_t at) const {
    const auto value =
        static_cast<Real>(number<kType>(load_one<true, Stored<kType>>(values_ + at * sizeof(Stored<kType>))));
    const Real weighted = value * weight_;
    return residual_ == nullptr ? weighted : weighted + load_one<true, Real>(residual_ + at * sizeof(Real));
  }
  // Sets M to the sum, and the residual to what it lacks.
  ROUNDELAY_DEVICE void expand(std::uint64_t at, Real sum, Real share) const {
    if (residual_ != nullptr) {
      const Real rest = (*this)[at] - sum * share;
      if (rest - rest == Real{}) store_one<true>(residual_ + at * sizeof(Real), rest);
    }
    store_one<true>(values_ + at * sizeof(Stored<kType>),
                    result<kType>(static_cast<typename Element<kType>::Wide>(sum)));
  }

 private:
  std::byte* const values_;
  std::byte* const residual_;
  const Real weight_;
};

template <typename Real>
ROUNDELAY_DEVICE std::byte* factor_at(const Vectors& vectors, std::uint64_t k, std::uint64_t i) {
  return vectors.data + (k * vectors.length + i) * sizeof(Real);
}
template <typename Real>
ROUNDELAY_DEVICE Real factor(const Vectors& vectors, std::uint64_t k, std::uint64_t i) {
  return load_one<true, Real>(factor_at<Real>(vectors, k, i));
}

// The vectors from number `first` on of a block.
struct LowRankWork {
  LowRankBlock block;
  std::uint64_t first;
};

// project(): a block of threads has some rows, and kUnits tiles of them at a time. The threads of a unit have
// the tile's sums.
template <typename Real>
inline constexpr int kUnits = kLowRankThreads / static_cast<int>(kLanes<Real>);

// How many tiles of a row are added up at a time, and the rows of a block of threads.
struct ProjectShape {
  std::uint64_t tiles;
  int slots, rows;
};
template <typename Real>
ROUNDELAY_DEVICE ProjectShape project_shape(std::uint64_t columns) {
  const std::uint64_t tiles = (columns + kTile - 1) / kTile;
  const int slots = tiles < kUnits<Real> ? static_cast<int>(tiles) : kUnits<Real>;
  return {tiles, slots, slots == 0 ? kUnits<Real> : kUnits<Real> / slots};
}

template <typename Real, int kCount>
struct ProjectShared {
  Real lanes[kCount][kLowRankThreads];
  Real tiles[kCount][kUnits<Real>];
};

// Adds the columns `from`, from + kLanes ... of a row, below `to`, times the right factors, to the sums.
template <DType kType, int kCount>
ROUNDELAY_DEVICE void add_lane(ResidualOf<kType> (&sum)[kCount], const LowRankWork& work, std::uint64_t row,
                               std::uint64_t from, std::uint64_t to) {
  using Real = ResidualOf<kType>;
  const UElements<kType> elements(work.block);
  for (std::uint64_t begin = from; begin < to; begin += kElementsAhead * kLanes<Real>) {
    Real own[kElementsAhead];
    ROUNDELAY_UNROLL
    for (int u = 0; u < kElementsAhead; ++u) {
      const std::uint64_t column = begin + static_cast<unsigned>(u) * kLanes<Real>;
      if (column < to) own[u] = elements[row * work.block.stride + column];
    }
    ROUNDELAY_UNROLL
    for (int u = 0; u < kElementsAhead; ++u) {
      const std::uint64_t column = begin + static_cast<unsigned>(u) * kLanes<Real>;
      if (column >= to) break;
      ROUNDELAY_UNROLL
      for (int j = 0; j < kCount; ++j)
        sum[j] += own[u] * factor<Real>(work.block.right, work.first + static_cast<unsigned>(j), column);
    }
  }
}

template <DType kType, int kCount>
ROUNDELAY_DEVICE void project_block(const LowRankWork& work, ProjectShared<ResidualOf<kType>, kCount>& shared,
                                    std::uint64_t index) {
  using Real = ResidualOf<kType>;
  constexpr int kOfUnit = static_cast<int>(kLanes<Real>);
  const LowRankBlock& block = work.block;
  const ProjectShape shape = project_shape<Real>(block.columns);
  const auto row_of = [&](int number) {
    return index * static_cast<unsigned>(shape.rows) + static_cast<unsigned>(number);
  };
  for (std::uint64_t tile = 0; tile < shape.tiles; tile += static_cast<unsigned>(shape.slots)) {
    each_thread<kLowRankThreads>([&](int thread) {
      const int unit = thread / kOfUnit, own_row = unit / shape.slots;
      const std::uint64_t own = tile + static_cast<unsigned>(unit % shape.slots);
      Real sum[kCount] = {};
      if (own_row < shape.rows && row_of(own_row) < block.rows && own < shape.tiles) {
        const std::uint64_t end = (own + 1) * kTile;
        add_lane<kType, kCount>(sum, work, row_of(own_row),
                                own * kTile + static_cast<unsigned>(thread % kOfUnit),
                                end < block.columns ? end : block.columns);
      }
      ROUNDELAY_UNROLL
      for (int j = 0; j < kCount; ++j) shared.lanes[j][thread] = sum[j];
    });
    each_thread<kLowRankThreads>([&](int thread) {
      for (int i = thread; i < kUnits<Real> * kCount; i += kLowRankThreads) {
        const int j = i / kUnits<Real>, unit = i % kUnits<Real>;
        Real sum{};
        for (int lane = 0; lane < kOfUnit; ++lane) sum += shared.lanes[j][unit * kOfUnit + lane];
        shared.tiles[j][unit] = sum;
      }
    });
    each_thread<kLowRankThreads>([&](int thread) {
      for (int i = thread; i < shape.rows * kCount; i += kLowRankThreads) {
        const int j = i / shape.rows, own_row = i % shape.rows;
        if (row_of(own_row) >= block.rows) continue;
        std::byte* const at =
            factor_at<Real>(block.left, work.first + static_cast<unsigned>(j), row_of(own_row));
        Real sum = load_one<true, Real>(at);
        for (int slot = 0; slot < shape.slots && tile + static_cast<unsigned>(slot) < shape.tiles; ++slot)
          sum += shared.tiles[j][own_row * shape.slots + slot];
        store_one<true>(at, sum);
      }
    });
  }
}

// project_back(): first each thread has a column of a tile of rows, and writes its sums; then each thread has
// a column, and adds these. `sums` has a row of columns for each vector of each tile.
struct BackWork {
  LowRankWork of;
  std::byte* sums;
};

ROUNDELAY_DEVICE std::uint64_t row_tiles(const LowRankBlock& block) {
  return (block.rows + kRowTile - 1) / kRowTile;
}
ROUNDELAY_DEVICE std::uint64_t column_blocks(const LowRankBlock& block) {
  return (block.columns + kLowRankThreads - 1) / kLowRankThreads;
}
template <typename Real>
ROUNDELAY_DEVICE std::byte* tile_sum(const BackWork& work, std::uint64_t tile, std::uint64_t k,
                                     std::uint64_t column) {
  const LowRankBlock& block = work.of.block;
  return work.sums + ((tile * block.right.count + k) * block.columns + column) * sizeof(Real);
}

template <DType kType, int kCount>
ROUNDELAY_DEVICE void sum_tile_block(Thread thread, const BackWork& work, std::uint64_t index) {
  using Real = ResidualOf<kType>;
  static_assert(kElementsAhead % kTogether == 0);
  const LowRankBlock& block = work.of.block;
  const std::uint64_t blocks = column_blocks(block), tile = index / blocks;
  const std::uint64_t column = index % blocks * kLowRankThreads + static_cast<unsigned>(thread.index);
  if (column >= block.columns) return;
  const UElements<kType> elements(block);
  const std::uint64_t last = (tile + 1) * kRowTile, end = last < block.rows ? last : block.rows;
  Real sum[kCount] = {};
  for (std::uint64_t row = tile * kRowTile; row < end; row += kElementsAhead) {
    Real own[kElementsAhead];
    ROUNDELAY_UNROLL
    for (int u = 0; u < kElementsAhead; ++u)
      if (row + static_cast<unsigned>(u) < end)
        own[u] = elements[(row + static_cast<unsigned>(u)) * block.stride + column];
    ROUNDELAY_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const auto left = [&](int u) {
        return factor<Real>(block.left, work.of.first + static_cast<unsigned>(j),
                            row + static_cast<unsigned>(u));
      };
      ROUNDELAY_UNROLL
      for (int u = 0; u < kElementsAhead; u += kTogether) {
        if (row + static_cast<unsigned>(u) + kTogether <= end) {
          Real some = own[u] * left(u);
          ROUNDELAY_UNROLL
          for (int i = 1; i < static_cast<int>(kTogether); ++i) some += own[u + i] * left(u + i);
          sum[j] += some;
        } else {
          ROUNDELAY_UNROLL
          for (int i = 0; i < static_cast<int>(kTogether); ++i)
            if (row + static_cast<unsigned>(u + i) < end) sum[j] += own[u + i] * left(u + i);
        }
      }
    }
  }
  ROUNDELAY_UNROLL
  for (int j = 0; j < kCount; ++j)
    store_one<true>(tile_sum<Real>(work, tile, work.of.first + static_cast<unsigned>(j), column), sum[j]);
}

template <DType kType>
ROUNDELAY_DEVICE void add_tiles_block(Thread thread, const BackWork& work, std::uint64_t index) {
  using Real = ResidualOf<kType>;
  const LowRankBlock& block = work.of.block;
  const std::uint64_t blocks = column_blocks(block), k = index / blocks, tiles = row_tiles(block);
  const std::uint64_t column = index % blocks * kLowRankThreads + static_cast<unsigned>(thread.index);
  if (column >= block.columns) return;
  std::byte* const at = factor_at<Real>(block.right, k, column);
  Real sum = load_one<true, Real>(at);
  for (std::uint64_t tile = 0; tile < tiles; tile += kElementsAhead) {
    Real some[kElementsAhead];
    ROUNDELAY_UNROLL
    for (int u = 0; u < kElementsAhead; ++u)
      if (tile + static_cast<unsigned>(u) < tiles)
        some[u] = load_one<true, Real>(tile_sum<Real>(work, tile + static_cast<unsigned>(u), k, column));
    ROUNDELAY_UNROLL
    for (int u = 0; u < kElementsAhead; ++u)
      if (tile + static_cast<unsigned>(u) < tiles) sum += some[u];
  }
  store_one<true>(at, sum);
}

// expand(): block b has the elements from b * kBlockElements on, counted row by row.
struct ExpandWork {
  LowRankBlock block;
  double share;
};

template <DType kType>
ROUNDELAY_DEVICE void expand_block(Thread thread, const ExpandWork& work, std::uint64_t index) {
  using Real = ResidualOf<kType>;
  const LowRankBlock& block = work.block;
  const UElements<kType> elements(block);
  const auto share = static_cast<Real>(work.share);
  const auto columns = static_cast<std::uint32_t>(block.columns);
  const std::uint64_t begin = index * kBlockElements, count = block.rows * block.columns;
  const std::uint64_t first_row = begin / columns;
  const auto first_column = static_cast<std::uint32_t>(begin % columns);
  for (std::uint32_t i = static_cast<std::uint32_t>(thread.index); i < kBlockElements;
       i += static_cast<std::uint32_t>(thread.count)) {
    if (begin + i >= count) return;
    const std::uint32_t place = first_column + i;
    const std::uint64_t row = first_row + place / columns, column = place % columns;
    Real sum{};
    for (std::uint64_t k = 0; k < block.left.count; ++k)
      sum += factor<Real>(block.right, k, column) * factor<Real>(block.left, k, row);
    elements.expand(row * block.stride + column, sum, share);
  }
}

// Vectors for the algorithms of low_rank_order.h. All threads of the block call all functions. `sum` has
// kNormSums numbers, which they share.
template <typename Real>
class BlockVectors {
 public:
  ROUNDELAY_DEVICE BlockVectors(const Vectors& vectors, double* sum) : vectors_(vectors), sum_(sum) {}

  [[nodiscard]] ROUNDELAY_DEVICE double dot(std::size_t k, std::size_t j) const {
    each_thread<kVectorThreads>([&](int thread) {
      double sum = 0;
      for (std::uint64_t i = static_cast<unsigned>(thread); i < vectors_.length; i += kVectorThreads)
        sum += number(k, i) * number(j, i);
      sum_[thread] = sum;
    });
    for (int half = kNormSums / 2; half > 0; half /= 2) {
      each_thread<kVectorThreads>([&](int thread) {
        if (thread < half) sum_[thread] += sum_[thread + half];
      });
    }
    const double sum = sum_[0];
    each_thread<kVectorThreads>([](int /*thread*/) {});  // the next dot() writes sum_[0]
    return sum;
  }
  ROUNDELAY_DEVICE void add(std::size_t k, double factor, std::size_t j) const { combine(k, 1.0, j, factor); }
  ROUNDELAY_DEVICE void scale(std::size_t k, double factor) const { combine(k, factor, k, 0.0); }
  ROUNDELAY_DEVICE void clear(std::size_t k) const {
    each_number([&](std::uint64_t i) { store_one<true>(at(k, i), Real{}); });
  }
  ROUNDELAY_DEVICE void fill(std::size_t k, std::uint64_t seed) const {
    each_number([&](std::uint64_t i) { store_one<true>(at(k, i), static_cast<Real>(drawn(seed, i))); });
  }
  ROUNDELAY_DEVICE void take(std::size_t k, const BlockVectors& from) const {
    each_number([&](std::uint64_t i) { store_one<true>(at(k, i), load_one<true, Real>(from.at(k, i))); });
  }
  static ROUNDELAY_DEVICE double inverse_root(double square) { return 1.0 / sqrt(square); }

 private:
  // As kernels::combine().
  ROUNDELAY_DEVICE void combine(std::size_t k, double factor_k, std::size_t j, double factor_j) const {
    each_number([&](std::uint64_t i) {
      store_one<true>(at(k, i),
                      same_nan(static_cast<Real>(number(k, i) * factor_k + number(j, i) * factor_j)));
    });
  }
  template <typename Use>
  ROUNDELAY_DEVICE void each_number(Use use) const {
    each_thread<kVectorThreads>([&](int thread) {
      for (std::uint64_t i = static_cast<unsigned>(thread); i < vectors_.length; i += kVectorThreads) use(i);
    });
  }
  [[nodiscard]] ROUNDELAY_DEVICE std::byte* at(std::size_t k, std::uint64_t i) const {
    return factor_at<Real>(vectors_, k, i);
  }
  [[nodiscard]] ROUNDELAY_DEVICE double number(std::size_t k, std::uint64_t i) const {
    return static_cast<double>(load_one<true, Real>(at(k, i)));
  }

  const Vectors& vectors_;
  double* const sum_;
};

struct RenewWork {
  Vectors to, from;
  std::uint64_t seed;
};

}  // namespace roundelay::kernels::cuda
