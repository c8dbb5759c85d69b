// MSTopK's search for the magnitude from which on top_k() selects (kernels/top_k.h), by blocks of threads.
// Tests compile it without CUDA.
//
// Launches follow each other in one stream. The first one computes the mean and the maximum of the values
// (statistics). Then one block begins the search. Each round has two launches: one counts how many magnitudes
// reach 16 thresholds, and in the other one thread takes the search on. The host enqueues as many rounds as
// there may be; those after the search's end do nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bisection.h"
#include "kernels/cuda/atomics.cuh"
#include "kernels/cuda/memory.cuh"
#include "kernels/magnitude.h"
#include "kernels/top_k.h"

namespace roundelay::kernels::cuda {

// The finite magnitudes of a block of kMagnitudeBlock values, and how many of its values are not finite.
struct BlockStatistics {
  double sum;
  Magnitude most;
  std::uint32_t infinite;
};

struct StatisticsWork {
  BlockStatistics* statistics;
  const float* values;
  std::uint64_t count;
};

// Block b computes statistics number b, a thread for each partial sum. All threads run step 0, then all run
// step 1, and so on: the last one writes, and those between halve the number of the sums.
inline constexpr int kStatisticsThreads = kMagnitudeSums;
inline constexpr int kStatisticsSteps = 7;
static_assert(kStatisticsThreads == 1 << (kStatisticsSteps - 2));
struct StatisticsShared {
  BlockStatistics of[kStatisticsThreads];
};

ROUNDELAY_DEVICE BlockStatistics statistics_of_thread(int thread, const StatisticsWork& work,
                                                      std::uint64_t block) {
  const std::uint64_t begin = block * kMagnitudeBlock;
  const std::uint64_t left = work.count - begin;
  const std::uint64_t end = begin + (left < kMagnitudeBlock ? left : kMagnitudeBlock);
  BlockStatistics statistics{};
  for (std::uint64_t i = begin + static_cast<unsigned>(thread); i < end; i += kStatisticsThreads) {
    const Magnitude magnitude = magnitude_of(work.values[i]);
    const bool finite = magnitude < kInfinite;
    statistics.sum += finite ? static_cast<double>(number_of(magnitude)) : 0.0;
    statistics.most = finite && magnitude > statistics.most ? magnitude : statistics.most;
    statistics.infinite += finite ? 0 : 1;
  }
  return statistics;
}

ROUNDELAY_DEVICE void add_statistics(BlockStatistics& to, const BlockStatistics& from) {
  to.sum += from.sum;
  to.most = from.most > to.most ? from.most : to.most;
  to.infinite += from.infinite;
}

ROUNDELAY_DEVICE void statistics_step(int step, int thread, const StatisticsWork& work,
                                      StatisticsShared& shared, std::uint64_t block) {
  if (step == 0) {
    shared.of[thread] = statistics_of_thread(thread, work, block);
  } else if (step < kStatisticsSteps - 1) {
    const int half = kStatisticsThreads >> step;
    if (thread < half) add_statistics(shared.of[thread], shared.of[thread + half]);
  } else if (thread == 0) {
    work.statistics[block] = shared.of[0];
  }
}

// The state of a search. It lies in the device's memory, where the next launch finds it.
struct SearchState {
  Bisection search;
  Bisection::Thresholds thresholds;
  Bisection::Counts counts;
  Cut cut;    // the result, once the search is over
  bool over;  // the next rounds do nothing
};

struct BeginWork {
  SearchState* state;
  TopKRule rule;
  std::uint64_t count, k;             // k values of so many
  const BlockStatistics* statistics;  // of all values
  std::uint64_t statistics_count;
};

// Returns how many rounds a search has at most. The first one may find that the mean is too high.
constexpr int rounds_of(const TopKRule& rule) {
  const int samplings = rule.samplings < Bisection::kMostSteps ? rule.samplings : Bisection::kMostSteps;
  return 1 + (samplings + Bisection::kAtOnce - 1) / Bisection::kAtOnce;
}

// One block adds up the statistics in their order: all threads load, then one of them adds.
inline constexpr int kBeginThreads = 1024;
struct BeginShared {
  BlockStatistics of[kBeginThreads];
  double sum;
  double most;
  std::uint64_t infinite;
};

class BeginSteps {
 public:
  ROUNDELAY_DEVICE BeginSteps(const BeginWork& work, BeginShared& shared, int thread)
      : work_(work), shared_(shared), thread_(static_cast<unsigned>(thread)) {}

  [[nodiscard]] ROUNDELAY_DEVICE std::uint64_t steps() const {
    return 2 * ((work_.statistics_count + kBeginThreads - 1) / kBeginThreads) + 1;
  }
  ROUNDELAY_DEVICE void run(std::uint64_t step) {
    const std::uint64_t first = step / 2 * kBeginThreads;
    if (step + 1 == steps()) {
      if (thread_ == 0) begin();
    } else if (step % 2 == 0) {
      if (first + thread_ < work_.statistics_count) shared_.of[thread_] = work_.statistics[first + thread_];
    } else if (thread_ == 0) {
      add_up(first);
    }
  }

 private:
  ROUNDELAY_DEVICE void add_up(std::uint64_t first) {
    if (first == 0) {
      shared_.sum = shared_.most = 0;
      shared_.infinite = 0;
    }
    const std::uint64_t left = work_.statistics_count - first;
    const int count = static_cast<int>(left < kBeginThreads ? left : kBeginThreads);
    for (int i = 0; i < count; ++i) {
      const BlockStatistics& one = shared_.of[i];
      const auto most = static_cast<double>(number_of(one.most));
      shared_.sum += one.sum;
      shared_.most = most > shared_.most ? most : shared_.most;
      shared_.infinite += one.infinite;
    }
  }

  ROUNDELAY_DEVICE void begin() {
    const std::uint64_t finite = work_.count - shared_.infinite;
    const MagnitudeStatistics statistics{finite > 0 ? shared_.sum / static_cast<double>(finite) : 0.0,
                                         shared_.most, shared_.infinite};
    SearchState state{{statistics, work_.k, work_.rule.samplings}, {}, {}, {}, work_.k == work_.count};
    if (statistics.infinite > work_.k) {
      state.cut = {kInfinite + 1, kInfinite, 0, work_.k};
      state.over = true;
    } else if (!state.over && state.search.done()) {
      state.cut = state.search.cut(work_.rule.seed);
      state.over = true;
    }
    state.thresholds = state.search.thresholds();
    *work_.state = state;
  }

  const BeginWork& work_;
  BeginShared& shared_;
  const std::uint64_t thread_;
};

struct CountWork {
  SearchState* state;
  const float* values;
  std::uint64_t count;
};

inline constexpr int kCountThreads = 256;
inline constexpr std::uint64_t kCountValues = 8192;  // of a block
inline constexpr int kCountSteps = 3;
struct CountShared {
  static constexpr int kParts = kCountThreads / Bisection::kThresholds;

  std::uint32_t of[Bisection::kThresholds][kCountThreads];
  std::uint32_t parts[Bisection::kThresholds][kParts];
};

// Counts a thread's values, in registers.
ROUNDELAY_DEVICE void count_of_thread(int thread, const CountWork& work, CountShared& shared,
                                      std::uint64_t block) {
  Magnitude thresholds[Bisection::kThresholds];
  std::uint32_t counts[Bisection::kThresholds] = {};
  ROUNDELAY_UNROLL
  for (int t = 0; t < Bisection::kThresholds; ++t) thresholds[t] = work.state->thresholds[t];
  const std::uint64_t begin = block * kCountValues, left = work.count - begin;
  const std::uint64_t end = begin + (left < kCountValues ? left : kCountValues);
  for (std::uint64_t i = begin + static_cast<unsigned>(thread); i < end; i += kCountThreads) {
    const Magnitude magnitude = magnitude_of(work.values[i]);
    ROUNDELAY_UNROLL
    for (int t = 0; t < Bisection::kThresholds; ++t) counts[t] += magnitude >= thresholds[t] ? 1 : 0;
  }
  ROUNDELAY_UNROLL
  for (int t = 0; t < Bisection::kThresholds; ++t) shared.of[t][thread] = counts[t];
}

ROUNDELAY_DEVICE void count_step(int step, int thread, const CountWork& work, CountShared& shared,
                                 std::uint64_t block) {
  if (work.state->over) return;
  const int t = thread / CountShared::kParts, part = thread % CountShared::kParts;
  if (step == 0) {
    count_of_thread(thread, work, shared, block);
  } else if (step == 1) {
    std::uint32_t sum = 0;
    for (int i = part; i < kCountThreads; i += CountShared::kParts) sum += shared.of[t][i];
    shared.parts[t][part] = sum;
  } else if (part == 0) {
    std::uint64_t sum = 0;
    for (const std::uint32_t one : shared.parts[t]) sum += one;
    add_shared(work.state->counts[t], sum);
  }
}

struct NextWork {
  SearchState* state;
  TopKRule rule;
};

// One thread takes the search on.
ROUNDELAY_DEVICE void next_round(const NextWork& work) {
  SearchState& state = *work.state;
  if (state.over) return;
  state.search.narrow(state.counts);
  state.counts = {};
  state.over = state.search.done();
  if (state.over) {
    state.cut = state.search.cut(work.rule.seed);
  } else {
    state.thresholds = state.search.thresholds();
  }
}

}  // namespace roundelay::kernels::cuda
