// The CUDA kernels that select the largest magnitudes, compiled for the CPU: they must select what
// kernels::top_k() does. The "device" is a loop over the threads of a block.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/threshold.cuh"
#include "kernels/cuda/tiles.cuh"
#include "tests/cpp/catch.h"

namespace roundelay::kernels::cuda {
namespace {

using Floats = std::vector<float>;

struct Selected {
  Floats values;
  std::vector<std::int64_t> indices;
  explicit Selected(std::size_t k) : values(k, -7.0F), indices(k, -7) {}
  bool operator==(const Selected& other) const {  // compares bits: NaN differs from itself
    return indices == other.indices && (values.empty() || std::memcmp(values.data(), other.values.data(),
                                                                      values.size() * sizeof(float)) == 0);
  }
};

// Calls a function for all threads of a block, which thus take the same step.
template <typename Take>
void all_threads(int threads, Take take) {
  for (int thread = 0; thread < threads; ++thread) take(thread);
}

std::vector<BlockStatistics> statistics_of(const Floats& values) {
  std::vector<BlockStatistics> statistics((values.size() + kMagnitudeBlock - 1) / kMagnitudeBlock);
  const StatisticsWork work{statistics.data(), values.data(), values.size()};
  StatisticsShared shared;
  for (std::uint64_t block = 0; block < statistics.size(); ++block) {
    for (int step = 0; step < kStatisticsSteps; ++step)
      all_threads(kStatisticsThreads,
                  [&](int thread) { statistics_step(step, thread, work, shared, block); });
  }
  return statistics;
}

template <typename Search>
Cut search(const Floats& values, const TopKRule& rule, std::uint64_t k,
           const std::vector<BlockStatistics>& statistics) {
  const auto state = std::make_unique<std::byte[]>(sizeof(SearchState<Search>));
  auto* const found = reinterpret_cast<SearchState<Search>*>(state.get());
  const BeginWork<Search> begin{found, rule, values.size(), k, statistics.data(), statistics.size()};
  const auto begin_shared = std::make_unique<BeginShared>();
  const std::uint64_t steps = BeginSteps<Search>(begin, *begin_shared, 0).steps();
  for (std::uint64_t step = 0; step < steps; ++step) {
    all_threads(kBeginThreads,
                [&](int thread) { BeginSteps<Search>(begin, *begin_shared, thread).run(step); });
  }
  const CountWork<Search> count{found, values.data(), values.size()};
  const auto count_shared = std::make_unique<CountShared>();
  for (int round = 0; round < rounds_of(rule); ++round) {
    for (std::uint64_t block = 0; block * kCountValues < values.size(); ++block) {
      for (int step = 0; step < kCountSteps; ++step)
        all_threads(kCountThreads,
                    [&](int thread) { count_step(step, thread, count, *count_shared, block); });
    }
    next_round(NextWork<Search>{found, rule});
  }
  REQUIRE(found->over);
  return found->cut;
}

template <typename Last>
void run_tiles(const TileWork& work, Last last) {
  const auto shared = std::make_unique<TileShared>();
  for (std::uint64_t tile = 0; tile < work.tiles(); ++tile) {
    for (int step = 0; step < TileSteps::kSteps - 1; ++step)
      all_threads(kTileThreads, [&](int thread) { TileSteps(work, *shared, tile, thread).run(step); });
    all_threads(kTileThreads, [&](int thread) {
      TileSteps steps(work, *shared, tile, thread);
      last(steps);
    });
  }
}

Selected select_on_device(const Floats& values, std::size_t k, const TopKRule& rule) {
  Selected selected(k);
  const Cut cut = rule.how == Selection::kRadix ? search<RadixSearch>(values, rule, k, {})
                                                : search<Bisection>(values, rule, k, statistics_of(values));
  std::vector<Ranks> ranks((values.size() + kTile - 1) / kTile);
  const TileWork work{values.data(), values.size(),          &cut,
                      ranks.data(),  selected.values.data(), selected.indices.data()};
  run_tiles(work, [](TileSteps& steps) { steps.tally(); });
  const RanksWork all{ranks.data(), ranks.size()};
  const auto shared = std::make_unique<RanksSteps::Shared>();
  for (int step = 0; step < RanksSteps::kSteps; ++step)
    all_threads(kRanksThreads, [&](int thread) { RanksSteps(all, *shared, thread).run(step); });
  run_tiles(work, [](TileSteps& steps) { steps.write(); });
  return selected;
}

void check(const Floats& values, std::size_t k, const TopKRule& rule) {
  Selected expected(k);
  top_k(values, rule, expected.values, expected.indices);
  REQUIRE(select_on_device(values, k, rule) == expected);
}

void check_both(const Floats& values) {
  const std::size_t count = values.size();
  for (const std::size_t k : {std::size_t{1}, count / 100, count / 3, count - 1, count}) {
    if (k == 0) continue;
    INFO(k << " of " << count);
    check(values, k, {Selection::kRadix});
    for (const int samplings : {1, 4, 7, 20, 100}) check(values, k, {Selection::kMsTopK, samplings, k});
  }
}

Floats normal(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::normal_distribution<float> draw;
  Floats values(count);
  for (float& value : values) value = draw(random);
  return values;
}

TEST_CASE("the device selects the CPU's values", "[cuda][top_k]") {
  for (const std::size_t count : {1, 2, 33, 4096, 4097, 16384, 50001}) {
    const Floats values = normal(count);
    check_both(values);
    Floats few = values;
    for (float& value : few) value = std::round(value);
    check_both(few);
  }
}

TEST_CASE("the device selects the CPU's values, whatever they are", "[cuda][top_k]") {
  constexpr std::size_t kCount = 20000;
  check_both(Floats(kCount, -0.1F));
  check_both(Floats(kCount, 0.0F));
  Floats tiny = normal(kCount), peak(kCount, 1e-3F), sparse(kCount, -0.0F), overflow = normal(kCount);
  for (float& value : tiny) value *= 1e-42F;
  peak[kCount / 2] = 3e38F;
  for (std::size_t i = 0; i < kCount; i += 50) sparse[i] = static_cast<float>(i % 7) - 3;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (std::size_t i = 3; i < kCount; i += 97) overflow[i] = i % 2 == 0 ? -kNan : kInf;
  for (const Floats& values : {tiny, peak, sparse, overflow}) check_both(values);
  check_both(Floats(kCount, kNan));
}

TEST_CASE("the device adds up the statistics of many blocks", "[cuda][top_k]") {
  // More blocks than one step of BeginSteps loads. Only the sums are made up.
  std::vector<BlockStatistics> statistics(2 * kBeginThreads + 5);
  double sum = 0;
  for (std::size_t i = 0; i < statistics.size(); ++i) {
    statistics[i] = {1.0 / static_cast<double>(i + 1), magnitude_of(static_cast<float>(i % 1500)), 0};
    sum += statistics[i].sum;
  }
  const std::uint64_t count = statistics.size() * kMagnitudeBlock, k = count / 100;
  const auto state = std::make_unique<std::byte[]>(sizeof(SearchState<Bisection>));
  auto* const found = reinterpret_cast<SearchState<Bisection>*>(state.get());
  const TopKRule rule{Selection::kMsTopK};
  const BeginWork<Bisection> work{found, rule, count, k, statistics.data(), statistics.size()};
  const auto shared = std::make_unique<BeginShared>();
  for (std::uint64_t step = 0; step < BeginSteps<Bisection>(work, *shared, 0).steps(); ++step) {
    all_threads(kBeginThreads, [&](int thread) { BeginSteps<Bisection>(work, *shared, thread).run(step); });
  }
  const Bisection expected({sum / static_cast<double>(count), 1499.0, 0}, k, rule.samplings);
  CHECK(found->thresholds == expected.thresholds());
  CHECK_FALSE(found->over);
}

}  // namespace
}  // namespace roundelay::kernels::cuda
