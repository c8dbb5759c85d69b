// Kernels that select the largest magnitudes.
#include <algorithm>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/radix.cuh"
#include "kernels/cuda/threshold.cuh"

namespace roundelay::kernels::cuda {
namespace {

// Runs steps, each of which needs what other threads of the block did in the step before.
template <typename Steps>
__device__ __forceinline__ void run_all(Steps& steps) {
  for (std::uint64_t step = 0; step < steps.steps(); ++step) {
    steps.run(step);
    __syncthreads();
  }
}

__device__ __forceinline__ int thread_number() { return static_cast<int>(threadIdx.x); }

__global__ void __launch_bounds__(kStatisticsThreads)
    statistics_kernel(const __grid_constant__ StatisticsWork work) {
  __shared__ StatisticsShared shared;
  for (int step = 0; step < kStatisticsSteps; ++step) {
    statistics_step(step, thread_number(), work, shared, blockIdx.x);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kBeginThreads) begin_kernel(const __grid_constant__ BeginWork work) {
  __shared__ BeginShared shared;
  BeginSteps steps(work, shared, thread_number());
  run_all(steps);
}

__global__ void __launch_bounds__(kCountThreads) count_kernel(const __grid_constant__ CountWork work) {
  __shared__ CountShared shared;
  for (int step = 0; step < kCountSteps; ++step) {
    count_step(step, thread_number(), work, shared, blockIdx.x);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(1) next_kernel(const __grid_constant__ NextWork work) { next_round(work); }

struct TallyWork {
  ShareLists lists;
  const Cut* cut;
  Ranks* ranks;
};

__global__ void __launch_bounds__(kTileThreads) tally_kernel(const __grid_constant__ TallyWork work) {
  __shared__ TileShared shared;
  TallySteps steps(work.lists, *work.cut, work.ranks, shared, blockIdx.x, thread_number());
  run_all(steps);
}

__global__ void __launch_bounds__(kTileThreads) write_kernel(const __grid_constant__ WriteWork work) {
  __shared__ TileShared shared;
  WriteSteps steps(work, shared, blockIdx.x, thread_number());
  run_all(steps);
}

__global__ void __launch_bounds__(kRanksThreads) ranks_kernel(const __grid_constant__ RanksWork work) {
  __shared__ RanksSteps::Shared shared;
  RanksSteps steps(work, shared, thread_number());
  run_all(steps);
}

__global__ void __launch_bounds__(kRanksThreads) clear_kernel(const __grid_constant__ RadixWork work) {
  clear_counts(work, this_thread());
}

template <typename Steps>
__global__ void __launch_bounds__(kRadixThreads) radix_kernel(const __grid_constant__ RadixWork work) {
  __shared__ typename Steps::Shared shared;
  Steps steps(work, shared, blockIdx.x, thread_number());
  run_all(steps);
}

constexpr std::uint64_t blocks_of(std::uint64_t values, std::uint64_t of_block) {
  return (values + of_block - 1) / of_block;
}

// The scratch memory. MSTopK has statistics where radix has its lists.
class Scratch {
 public:
  explicit Scratch(std::uint64_t count, std::byte* at = nullptr) : shares_(count), at_(at) {}

  [[nodiscard]] std::uint64_t bytes() const { return std::max(statistics_end(), places_end()); }
  template <typename State>
  [[nodiscard]] State* state() const {
    return reinterpret_cast<State*>(at_);
  }
  [[nodiscard]] Ranks* ranks() const { return reinterpret_cast<Ranks*>(at_ + kStateBytes); }
  [[nodiscard]] BlockStatistics* statistics() const {
    return reinterpret_cast<BlockStatistics*>(at_ + ranks_end());
  }
  [[nodiscard]] std::uint64_t statistics_count() const { return blocks_of(shares_.count, kMagnitudeBlock); }
  [[nodiscard]] ShareLists lists(const float* values) const {
    return {values, shares_, reinterpret_cast<float*>(at_ + ranks_end()),
            reinterpret_cast<std::uint16_t*>(at_ + list_end()),
            reinterpret_cast<std::uint32_t*>(at_ + kept_begin())};
  }

 private:
  static constexpr std::uint64_t kStateBytes = std::max(sizeof(SearchState), sizeof(RadixState));
  static_assert(kStateBytes % alignof(Ranks) == 0 && alignof(Ranks) >= alignof(BlockStatistics));

  [[nodiscard]] std::uint64_t ranks_end() const { return kStateBytes + shares_.shares() * sizeof(Ranks); }
  [[nodiscard]] std::uint64_t statistics_end() const {
    return ranks_end() + statistics_count() * sizeof(BlockStatistics);
  }
  [[nodiscard]] std::uint64_t places() const { return shares_.shares() * (shares_.each / 8); }
  [[nodiscard]] std::uint64_t list_end() const { return ranks_end() + places() * sizeof(float); }
  [[nodiscard]] std::uint64_t kept_begin() const { return list_end() + places() * sizeof(std::uint16_t); }
  [[nodiscard]] std::uint64_t places_end() const {
    return kept_begin() + shares_.shares() * sizeof(std::uint32_t);
  }

  const Shares shares_;
  std::byte* const at_;
};

// Enqueues the launches of one selection.
class Launches {
 public:
  Launches(int device, std::span<const float> values, std::byte* scratch, GpuStream stream)
      : device_(device), values_(values), scratch_(values.size(), scratch), stream_(stream) {}

  Status bisect(const TopKRule& rule, std::span<float> chosen, std::int64_t* indices) const {
    ROUNDELAY_RETURN_IF_ERROR(search(rule, chosen.size()));
    const Cut* const cut = &scratch_.state<SearchState>()->cut;
    ROUNDELAY_RETURN_IF_ERROR(by_shares(tally_kernel, TallyWork{all(), cut, scratch_.ranks()}));
    return write(all(), cut, chosen, indices);
  }
  Status radix(std::span<float> chosen, std::int64_t* indices) const {
    const ShareLists lists = scratch_.lists(values_.data());
    const RadixWork work{scratch_.state<RadixState>(), lists, scratch_.ranks(), chosen.size()};
    ROUNDELAY_RETURN_IF_ERROR(launch(device_, clear_kernel, 1, kRanksThreads, work, stream_));
    ROUNDELAY_RETURN_IF_ERROR(by_shares(radix_kernel<CountSteps>, work));
    ROUNDELAY_RETURN_IF_ERROR(by_shares(radix_kernel<CompactSteps>, work));
    ROUNDELAY_RETURN_IF_ERROR(by_shares(radix_kernel<RefineSteps>, work));
    ROUNDELAY_RETURN_IF_ERROR(by_shares(radix_kernel<CutSteps>, work));
    return write(lists, &work.state->cut, chosen, indices);
  }

 private:
  [[nodiscard]] ShareLists all() const { return {values_.data(), Shares(values_.size())}; }

  template <typename Work>
  Status by_shares(void (*kernel)(Work), const Work& work) const {
    return launch(device_, kernel, Shares(values_.size()).shares(), kTileThreads, work, stream_);
  }

  // Finds where MSTopK cuts.
  Status search(const TopKRule& rule, std::uint64_t k) const {
    const std::uint64_t count = values_.size();
    SearchState* const state = scratch_.state<SearchState>();
    BlockStatistics* const statistics = scratch_.statistics();
    const std::uint64_t blocks = scratch_.statistics_count();
    ROUNDELAY_RETURN_IF_ERROR(launch(device_, statistics_kernel, blocks, kStatisticsThreads,
                                     StatisticsWork{statistics, values_.data(), count}, stream_));
    ROUNDELAY_RETURN_IF_ERROR(launch(device_, begin_kernel, 1, kBeginThreads,
                                     BeginWork{state, rule, count, k, statistics, blocks}, stream_));
    for (int round = 0; round < rounds_of(rule); ++round) {
      ROUNDELAY_RETURN_IF_ERROR(launch(device_, count_kernel, blocks_of(count, kCountValues), kCountThreads,
                                       CountWork{state, values_.data(), count}, stream_));
      ROUNDELAY_RETURN_IF_ERROR(launch(device_, next_kernel, 1, 1, NextWork{state, rule}, stream_));
    }
    return {};
  }

  Status write(const ShareLists& lists, const Cut* cut, std::span<float> chosen,
               std::int64_t* indices) const {
    Ranks* const ranks = scratch_.ranks();
    ROUNDELAY_RETURN_IF_ERROR(
        launch(device_, ranks_kernel, 1, kRanksThreads, RanksWork{ranks, lists.shares.shares()}, stream_));
    return by_shares(write_kernel, WriteWork{lists, cut, ranks, chosen.data(), indices});
  }

  const int device_;
  const std::span<const float> values_;
  const Scratch scratch_;
  const GpuStream stream_;
};

}  // namespace

std::size_t CudaKernels::top_k_scratch(std::size_t count) const { return Scratch(count).bytes(); }

Status CudaKernels::top_k(int device, std::span<const float> values, const TopKRule& rule,
                          std::span<float> chosen, std::span<std::int64_t> indices, std::byte* scratch,
                          GpuStream stream) {
  if (chosen.size() > values.size() || chosen.size() != indices.size()) {
    return Status::invalid("cannot select " + std::to_string(chosen.size()) + " of " +
                           std::to_string(values.size()) + " values");
  }
  if (chosen.empty()) return {};
  const Launches launches(device, values, scratch, stream);
  return rule.how == Selection::kRadix ? launches.radix(chosen, indices.data())
                                       : launches.bisect(rule, chosen, indices.data());
}

}  // namespace roundelay::kernels::cuda
