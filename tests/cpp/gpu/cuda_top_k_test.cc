// The CUDA kernels that select the largest magnitudes, compiled for the CPU: they must select what
// kernels::top_k() does. The "device" is a loop over the threads of a block.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/radix.cuh"
#include "kernels/cuda/threshold.cuh"
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

// Runs all steps of a block.
template <typename MakeSteps>
void run_block(int threads, MakeSteps make) {
  for (std::uint64_t step = 0; step < make(0).steps(); ++step)
    all_threads(threads, [&](int thread) { make(thread).run(step); });
}

std::vector<BlockStatistics> statistics_of(std::span<const float> values) {
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

// A search's state, which has no default constructor: the first launch makes it.
class State {
 public:
  [[nodiscard]] SearchState* at() const { return reinterpret_cast<SearchState*>(bytes_.get()); }

 private:
  std::unique_ptr<std::byte[]> bytes_ = std::make_unique<std::byte[]>(sizeof(SearchState));
};

void begin_search(const BeginWork& work) {
  const auto shared = std::make_unique<BeginShared>();
  run_block(kBeginThreads, [&](int thread) { return BeginSteps(work, *shared, thread); });
}

Cut search(std::span<const float> values, const TopKRule& rule, std::uint64_t k) {
  const std::vector<BlockStatistics> statistics = statistics_of(values);
  const State state;
  SearchState* const found = state.at();
  begin_search({found, rule, values.size(), k, statistics.data(), statistics.size()});
  const CountWork count{found, values.data(), values.size()};
  const auto count_shared = std::make_unique<CountShared>();
  for (int round = 0; round < rounds_of(rule); ++round) {
    for (std::uint64_t block = 0; block * kCountValues < values.size(); ++block) {
      for (int step = 0; step < kCountSteps; ++step)
        all_threads(kCountThreads,
                    [&](int thread) { count_step(step, thread, count, *count_shared, block); });
    }
    next_round(NextWork{found, rule});
  }
  REQUIRE(found->over);
  return found->cut;
}

// What the launches share: memory for lists, and each share's counts.
struct ShareMemory {
  explicit ShareMemory(std::span<const float> values, bool lists)
      : shares(values.size()),
        list(shares.shares() * shares.each / 8),
        places(list.size()),
        kept(shares.shares()),
        ranks(shares.shares()),
        of{values.data(), shares} {
    if (lists) of = {values.data(), shares, list.data(), places.data(), kept.data()};
  }
  template <typename Run>
  void for_each(Run run) const {
    for (std::uint64_t share = 0; share < shares.shares(); ++share) run(share);
  }

  Shares shares;
  Floats list;
  std::vector<std::uint16_t> places;
  std::vector<std::uint32_t> kept;
  std::vector<Ranks> ranks;
  ShareLists of;
};

void write_on_device(ShareMemory& memory, const Cut& cut, Selected& selected) {
  const RanksWork all{memory.ranks.data(), memory.ranks.size()};
  const auto scan = std::make_unique<RanksSteps::Shared>();
  run_block(kRanksThreads, [&](int thread) { return RanksSteps(all, *scan, thread); });
  const WriteWork work{memory.of, &cut, memory.ranks.data(), selected.values.data(), selected.indices.data()};
  const auto shared = std::make_unique<TileShared>();
  memory.for_each([&](std::uint64_t share) {
    run_block(kTileThreads, [&](int thread) { return WriteSteps(work, *shared, share, thread); });
  });
}

Selected bisect_on_device(std::span<const float> values, std::size_t k, const TopKRule& rule) {
  Selected selected(k);
  const Cut cut = search(values, rule, k);
  ShareMemory memory(values, false);
  const auto shared = std::make_unique<TileShared>();
  memory.for_each([&](std::uint64_t share) {
    run_block(kTileThreads, [&](int thread) {
      return TallySteps(memory.of, cut, memory.ranks.data(), *shared, share, thread);
    });
  });
  write_on_device(memory, cut, selected);
  return selected;
}

template <typename Steps>
void launch_radix(const RadixWork& work, const ShareMemory& memory) {
  const auto shared = std::make_unique<typename Steps::Shared>();
  memory.for_each([&](std::uint64_t share) {
    run_block(kRadixThreads, [&](int thread) { return Steps(work, *shared, share, thread); });
  });
}

Selected radix_on_device(std::span<const float> values, std::size_t k) {
  Selected selected(k);
  ShareMemory memory(values, true);
  const auto state = std::make_unique<RadixState>();
  const RadixWork work{state.get(), memory.of, memory.ranks.data(), k};
  all_threads(kRanksThreads, [&](int thread) { clear_counts(work, {thread, kRanksThreads}); });
  launch_radix<CountSteps>(work, memory);
  launch_radix<CompactSteps>(work, memory);
  launch_radix<RefineSteps>(work, memory);
  launch_radix<CutSteps>(work, memory);
  write_on_device(memory, state->cut, selected);
  return selected;
}

Selected select_on_device(std::span<const float> values, std::size_t k, const TopKRule& rule) {
  return rule.how == Selection::kRadix ? radix_on_device(values, k) : bisect_on_device(values, k, rule);
}

void check(std::span<const float> values, std::size_t k, const TopKRule& rule) {
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

TEST_CASE("the device selects the CPU's values of many shares, with and without room in their lists",
          "[cuda][top_k]") {
  // Two tiles a share. The largest lie side by side, so that some lists are too short, and others empty.
  constexpr std::size_t kCount = Shares::kWanted * kTile + 5 * kTile + 77;
  REQUIRE(Shares(kCount).each == 2 * kTile);
  Floats values = normal(kCount);
  for (std::size_t i = 0; i < kCount / 40; ++i) values[kCount / 2 + i] *= 8;
  for (std::size_t i = 0; i < kCount; i += 3) values[i] = std::round(values[i]);
  for (const std::size_t k : {kCount / 1000, kCount / 100, kCount / 10, kCount - 7})
    check(values, k, {Selection::kRadix});
  check(values, kCount / 100, {Selection::kMsTopK, 20, 5});
  check(std::span(values).subspan(1, 3 * kTile), 1000, {Selection::kRadix});
}

TEST_CASE("values that differ in their last bits only are told apart", "[cuda][top_k]") {
  Floats values(20000);
  std::mt19937 random(9);
  for (float& value : values) value = number_of(0x3f800000 + static_cast<Magnitude>(random() % 3000));
  check_both(values);
}

TEST_CASE("a share is no longer than its places can tell", "[cuda][top_k]") {
  const Shares most(std::uint64_t{1} << 40U);
  CHECK(most.each == Shares::kMostEach);
  CHECK(most.shares() * most.each >= most.count);
  CHECK(Shares(1).shares() == 1);
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
  const State state;
  SearchState* const found = state.at();
  const TopKRule rule{Selection::kMsTopK};
  begin_search({found, rule, count, k, statistics.data(), statistics.size()});
  const Bisection expected({sum / static_cast<double>(count), 1499.0, 0}, k, rule.samplings);
  CHECK(found->thresholds == expected.thresholds());
  CHECK_FALSE(found->over);
}

}  // namespace
}  // namespace roundelay::kernels::cuda
