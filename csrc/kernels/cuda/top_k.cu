// Kernels that select the largest magnitudes.
#include <algorithm>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/threshold.cuh"
#include "kernels/cuda/tiles.cuh"

namespace roundelay::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kStatisticsThreads)
    statistics_kernel(const __grid_constant__ StatisticsWork work) {
  __shared__ StatisticsShared shared;
  for (int step = 0; step < kStatisticsSteps; ++step) {
    statistics_step(step, static_cast<int>(threadIdx.x), work, shared, blockIdx.x);
    __syncthreads();
  }
}

template <typename Search>
__global__ void __launch_bounds__(kBeginThreads)
    begin_kernel(const __grid_constant__ BeginWork<Search> work) {
  __shared__ BeginShared shared;
  BeginSteps<Search> steps(work, shared, static_cast<int>(threadIdx.x));
  for (std::uint64_t step = 0; step < steps.steps(); ++step) {
    steps.run(step);
    __syncthreads();
  }
}

template <typename Search>
__global__ void __launch_bounds__(kCountThreads)
    count_kernel(const __grid_constant__ CountWork<Search> work) {
  __shared__ CountShared shared;
  for (int step = 0; step < kCountSteps; ++step) {
    count_step(step, static_cast<int>(threadIdx.x), work, shared, blockIdx.x);
    __syncthreads();
  }
}

template <typename Search>
__global__ void __launch_bounds__(1) next_kernel(const __grid_constant__ NextWork<Search> work) {
  next_round(work);
}

template <bool kWrites>
__global__ void __launch_bounds__(kTileThreads) tile_kernel(const __grid_constant__ TileWork work) {
  __shared__ TileShared shared;
  TileSteps steps(work, shared, blockIdx.x, static_cast<int>(threadIdx.x));
  for (int step = 0; step < TileSteps::kSteps - 1; ++step) {
    steps.run(step);
    __syncthreads();
  }
  if constexpr (kWrites) {
    steps.write();
  } else {
    steps.tally();
  }
}

__global__ void __launch_bounds__(kRanksThreads) ranks_kernel(const __grid_constant__ RanksWork work) {
  __shared__ RanksSteps::Shared shared;
  RanksSteps steps(work, shared, static_cast<int>(threadIdx.x));
  for (int step = 0; step < RanksSteps::kSteps; ++step) {
    steps.run(step);
    __syncthreads();
  }
}

constexpr std::uint64_t blocks_of(std::uint64_t values, std::uint64_t of_block) {
  return (values + of_block - 1) / of_block;
}

// The places of the parts of the scratch memory, and its size, in bytes.
struct Scratch {
  explicit constexpr Scratch(std::uint64_t count)
      : ranks_at(kStateBytes + blocks_of(count, kMagnitudeBlock) * sizeof(BlockStatistics)),
        bytes(ranks_at + blocks_of(count, kTile) * sizeof(Ranks)) {}

  static constexpr std::uint64_t kStateBytes =
      std::max(sizeof(SearchState<Bisection>), sizeof(SearchState<RadixSearch>));
  static_assert(kStateBytes % alignof(BlockStatistics) == 0 && sizeof(BlockStatistics) % alignof(Ranks) == 0);
  std::uint64_t ranks_at, bytes;
};

// Enqueues the launches of one selection.
template <typename Search>
class Launches {
 public:
  Launches(int device, std::span<const float> values, std::byte* scratch, GpuStream stream)
      : device_(device),
        values_(values),
        state_(reinterpret_cast<SearchState<Search>*>(scratch)),
        statistics_(reinterpret_cast<BlockStatistics*>(scratch + Scratch::kStateBytes)),
        ranks_(reinterpret_cast<Ranks*>(scratch + Scratch(values.size()).ranks_at)),
        stream_(stream) {}

  Status enqueue(const TopKRule& rule, std::span<float> chosen, std::int64_t* indices) const {
    ROUNDELAY_RETURN_IF_ERROR(search(rule, chosen.size()));
    return write(chosen.data(), indices);
  }

 private:
  // Finds where to cut.
  Status search(const TopKRule& rule, std::uint64_t k) const {
    const std::uint64_t count = values_.size();
    const std::uint64_t statistics =
        std::is_same_v<Search, Bisection> ? blocks_of(count, kMagnitudeBlock) : 0;
    ROUNDELAY_RETURN_IF_ERROR(launch(device_, statistics_kernel, statistics, kStatisticsThreads,
                                     StatisticsWork{statistics_, values_.data(), count}, stream_));
    ROUNDELAY_RETURN_IF_ERROR(launch(device_, begin_kernel<Search>, 1, kBeginThreads,
                                     BeginWork<Search>{state_, rule, count, k, statistics_, statistics},
                                     stream_));
    for (int round = 0; round < rounds_of(rule); ++round) {
      ROUNDELAY_RETURN_IF_ERROR(launch(device_, count_kernel<Search>, blocks_of(count, kCountValues),
                                       kCountThreads, CountWork<Search>{state_, values_.data(), count},
                                       stream_));
      ROUNDELAY_RETURN_IF_ERROR(
          launch(device_, next_kernel<Search>, 1, 1, NextWork<Search>{state_, rule}, stream_));
    }
    return {};
  }
  Status write(float* chosen, std::int64_t* indices) const {
    const TileWork work{values_.data(), values_.size(), &state_->cut, ranks_, chosen, indices};
    ROUNDELAY_RETURN_IF_ERROR(launch(device_, tile_kernel<false>, work.tiles(), kTileThreads, work, stream_));
    ROUNDELAY_RETURN_IF_ERROR(
        launch(device_, ranks_kernel, 1, kRanksThreads, RanksWork{ranks_, work.tiles()}, stream_));
    return launch(device_, tile_kernel<true>, work.tiles(), kTileThreads, work, stream_);
  }

  const int device_;
  const std::span<const float> values_;
  SearchState<Search>* const state_;
  BlockStatistics* const statistics_;
  Ranks* const ranks_;
  const GpuStream stream_;
};

}  // namespace

std::size_t CudaKernels::top_k_scratch(std::size_t count) const { return Scratch(count).bytes; }

Status CudaKernels::top_k(int device, std::span<const float> values, const TopKRule& rule,
                          std::span<float> chosen, std::span<std::int64_t> indices, std::byte* scratch,
                          GpuStream stream) {
  if (chosen.size() > values.size() || chosen.size() != indices.size()) {
    return Status::invalid("cannot select " + std::to_string(chosen.size()) + " of " +
                           std::to_string(values.size()) + " values");
  }
  if (chosen.empty()) return {};
  if (rule.how == Selection::kRadix)
    return Launches<RadixSearch>(device, values, scratch, stream).enqueue(rule, chosen, indices.data());
  return Launches<Bisection>(device, values, scratch, stream).enqueue(rule, chosen, indices.data());
}

}  // namespace roundelay::kernels::cuda
