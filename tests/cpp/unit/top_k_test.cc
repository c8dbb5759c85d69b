// The selection of the largest magnitudes, against slow versions, with the kernels of every instruction set.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/bisection.h"
#include "kernels/cpu/candidates.h"
#include "kernels/cpu/select_loops.h"
#include "kernels/cpu/top_k.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/effort.h"

namespace roundelay::kernels {
namespace {

using Floats = std::vector<float>;
using Indices = std::vector<std::int64_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

float slow_magnitude(float x) { return std::isnan(x) ? kInf : std::fabs(x); }

// Returns the indices of the k largest magnitudes, of equal ones the first, ascending.
Indices slow_largest(const Floats& values, std::size_t k) {
  Indices order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return slow_magnitude(values[static_cast<std::size_t>(a)]) >
           slow_magnitude(values[static_cast<std::size_t>(b)]);
  });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

// The mean as magnitude.h defines it: blocks, partial sums, halves.
double slow_mean(const Floats& values) {
  double mean = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += 16384) {
    std::vector<double> sums(32);
    for (std::size_t i = begin; i < std::min(begin + 16384, values.size()); ++i)
      sums[(i - begin) % 32] += std::fabs(static_cast<double>(values[i]));
    for (std::size_t half = 16; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    mean += sums[0];
  }
  return mean / static_cast<double>(values.size());
}

// MSTopK as the paper has it: one count of all values for each step. Its result: the two thresholds.
struct SlowThresholds {
  double above = HUGE_VAL, below = 0;
  std::size_t above_count = 0, below_count = 0;
};

SlowThresholds slow_thresholds(const Floats& values, std::size_t k, int samplings) {
  const auto count = [&](float threshold) {
    return static_cast<std::size_t>(
        std::count_if(values.begin(), values.end(), [&](float x) { return slow_magnitude(x) >= threshold; }));
  };
  double most = 0;
  for (const float x : values) most = std::max(most, static_cast<double>(std::fabs(x)));
  double base = std::min(slow_mean(values), most);
  SlowThresholds found{HUGE_VAL, base, 0, count(static_cast<float>(base))};
  if (found.below_count <= k) {
    found = {base, 0, found.below_count, values.size()};
    most = base;
    base = 0;
  }
  double low = 0, high = 1;
  for (int step = 0; step < samplings && found.above_count < k; ++step) {
    const double middle = (low + high) / 2;
    const auto threshold = static_cast<float>(base + middle * (most - base));
    const std::size_t reached = count(threshold);
    if (reached <= k) {
      high = middle;
      found.above = static_cast<double>(threshold);
      found.above_count = reached;
    } else {
      low = middle;
      found.below = static_cast<double>(threshold);
      found.below_count = reached;
    }
  }
  return found;
}

struct Selected {
  Floats values;
  Indices indices;
  bool operator==(const Selected& other) const {  // compares bits: NaN differs from itself
    return indices == other.indices && values.size() == other.values.size() &&
           (values.empty() ||
            std::memcmp(values.data(), other.values.data(), values.size() * sizeof(float)) == 0);
  }
};

Selected select(const Table& table, const Floats& values, std::size_t k, const TopKRule& rule) {
  Selected selected{Floats(k), Indices(k)};
  top_k(table, values, rule, selected.values, selected.indices);
  return selected;
}

Selected at(const Floats& values, const Indices& indices) {
  Selected selected{{}, indices};
  for (const std::int64_t i : indices) selected.values.push_back(values[static_cast<std::size_t>(i)]);
  return selected;
}

// Requires that all tables select the same, k values with ascending indices, and returns them.
Selected select_with_all(const Floats& values, std::size_t k, const TopKRule& rule) {
  const Selected first = select(usable_tables().front(), values, k, rule);
  for (const Table& table : usable_tables().subspan(1)) {
    INFO(table.name);
    REQUIRE(select(table, values, k, rule) == first);
  }
  REQUIRE(first == at(values, first.indices));
  REQUIRE(std::adjacent_find(first.indices.begin(), first.indices.end(), std::greater_equal<>()) ==
          first.indices.end());
  return first;
}

struct Case {
  std::string name;
  Floats values;
};

template <typename Draw>
Case drawn(const std::string& name, std::size_t count, Draw draw) {
  std::mt19937 random(static_cast<unsigned>(count));
  Floats values(count);
  for (float& value : values) value = draw(random);
  return {name, std::move(values)};
}

std::vector<Case> finite_cases(std::size_t count) {
  std::normal_distribution<float> normal;
  std::exponential_distribution<float> exponential;
  std::student_t_distribution<float> heavy(3);
  std::vector<Case> cases = {
      drawn("normal", count, [&](auto& random) { return normal(random); }),
      drawn("exponential", count, [&](auto& random) { return exponential(random); }),
      drawn("heavy-tailed", count, [&](auto& random) { return heavy(random); }),
      drawn("few values", count, [&](auto& random) { return static_cast<float>(random() % 5) - 2; }),
      drawn("mostly zero", count, [&](auto& random) { return random() % 50 == 0 ? normal(random) : -0.0F; }),
      drawn("tiny", count, [&](auto& random) { return normal(random) * 1e-42F; }),
      {"constant", Floats(count, -0.1F)},
      {"zeros", Floats(count, 0.0F)},
      {"ascending", Floats(count)},
      {"one peak", Floats(count, 1e-3F)},
  };
  std::iota(cases[8].values.begin(), cases[8].values.end(), 0.0F);
  if (count > 0) cases[9].values[count / 2] = 3e38F;
  return cases;
}

std::vector<std::size_t> sizes() {
  std::vector<std::size_t> sizes = {1, 2, 15, 16, 17, 100, 16383, 16385};
  if (!testing::quick()) sizes.push_back(70001);
  return sizes;
}

std::set<std::size_t> densities(std::size_t count) {
  return {0, 1, count / 1000, count / 100, count / 10, count / 3, count - 1, count};
}

template <typename Test>
void for_each_case(Test test) {
  for (const std::size_t count : sizes()) {
    for (const Case& each : finite_cases(count)) {
      for (const std::size_t k : densities(count)) {
        INFO(k << " of " << count << ", " << each.name);
        test(each.values, k);
      }
    }
  }
}

TEST_CASE("the radix selection is the exact one, ties by index", "[top_k]") {
  for_each_case([](const Floats& values, std::size_t k) {
    REQUIRE(select_with_all(values, k, {.how = Selection::kRadix}).indices == slow_largest(values, k));
  });
}

TEST_CASE("MSTopK takes all above a threshold, and a run below it", "[top_k]") {
  for_each_case([](const Floats& values, std::size_t k) {
    const TopKRule rule{Selection::kMsTopK, static_cast<int>(k % 25) + 1, k};
    const Selected selected = select_with_all(values, k, rule);
    if (k == 0 || k == values.size()) return;
    const SlowThresholds slow = slow_thresholds(values, k, rule.samplings);
    Indices above, band, run;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto magnitude = static_cast<double>(std::fabs(values[i]));
      if (magnitude >= slow.above) above.push_back(static_cast<std::int64_t>(i));
      if (magnitude < slow.above && magnitude >= static_cast<double>(static_cast<float>(slow.below)))
        band.push_back(static_cast<std::int64_t>(i));
    }
    std::set_difference(selected.indices.begin(), selected.indices.end(), above.begin(), above.end(),
                        std::back_inserter(run));
    REQUIRE(run.size() + above.size() == k);
    if (!run.empty()) REQUIRE(std::search(band.begin(), band.end(), run.begin(), run.end()) != band.end());
  });
}

TEST_CASE("MSTopK has nearly the energy of the k largest", "[top_k]") {
  const auto energy = [](const Floats& values) {
    return std::accumulate(values.begin(), values.end(), 0.0, [](double sum, float x) {
      return sum + static_cast<double>(x) * static_cast<double>(x);
    });
  };
  const std::size_t count = 200000;
  const std::vector<Case> cases = finite_cases(count);
  for (std::size_t i = 0; i < 3; ++i) {
    for (const std::size_t k : {count / 1000, count / 100, count / 10}) {
      INFO(cases[i].name << ", " << k);
      const Floats chosen = select(best_table(), cases[i].values, k, {Selection::kMsTopK}).values;
      const Floats exact = select(best_table(), cases[i].values, k, {Selection::kRadix}).values;
      REQUIRE(energy(chosen) >= 0.999 * energy(exact));
    }
  }
}

TEST_CASE("the seed chooses the run, and nothing else does", "[top_k]") {
  const Floats constant(1000, 2.0F);
  std::set<std::int64_t> starts;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Selected selected = select_with_all(constant, 10, {Selection::kMsTopK, 20, seed});
    REQUIRE(selected.indices.back() - selected.indices.front() == 9);
    starts.insert(selected.indices.front());
  }
  CHECK(starts.size() > 40);
  CHECK(*starts.rbegin() <= 990);
}

TEST_CASE("what is not finite is taken first", "[top_k]") {
  for (const std::size_t count : {100, 40000}) {
    Floats values = finite_cases(count)[0].values;
    const Indices places = {3, 17, 18, 50, 99};
    const Floats not_finite = {kInf, -kNan, kNan, -kInf, kNan};
    for (std::size_t i = 0; i < places.size(); ++i)
      values[static_cast<std::size_t>(places[i])] = not_finite[i];
    for (const Selection how : {Selection::kMsTopK, Selection::kRadix}) {
      for (const std::size_t k : {1, 2, 4, 5}) {
        const Selected selected = select_with_all(values, k, {how});
        CHECK(selected.indices == Indices(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(k)));
      }
      const Indices more = select_with_all(values, 60, {how}).indices;
      CHECK(std::includes(more.begin(), more.end(), places.begin(), places.end()));
    }
    CHECK(select_with_all(values, 60, {Selection::kRadix}).indices == slow_largest(values, 60));
    const Floats none(count, -kNan);
    CHECK(select_with_all(none, 2, {Selection::kMsTopK}).indices == Indices{0, 1});
  }
}

TEST_CASE("a sample that misleads changes nothing", "[top_k]") {
  const std::size_t count = 1 << 17;
  Floats end(count, 1e-3F);
  for (std::size_t i = 0; i < count / 100; ++i) end[i] = 1.0F + static_cast<float>(i);
  for (const std::size_t k : {count / 1000, count / 50, count / 10}) {
    for (const Selection how : {Selection::kMsTopK, Selection::kRadix}) {
      const Selected selected = select_with_all(end, k, {how});
      REQUIRE(selected.indices.size() == k);
      if (how == Selection::kRadix) REQUIRE(selected.indices == slow_largest(end, k));
    }
  }
  const Floats ties(count, 1.0F);
  const Candidates none = likely_candidates(best_table(), ties, count / 100);
  CHECK(none.floor() == 0);
}

TEST_CASE("candidates are those from the floor on, if there is room", "[top_k]") {
  const Floats values = finite_cases(40000)[0].values;
  const Magnitude floor = magnitude_of(1.5F);
  const auto expected = static_cast<std::size_t>(
      std::count_if(values.begin(), values.end(), [](float x) { return std::fabs(x) >= 1.5F; }));
  for (const Table& table : usable_tables()) {
    const auto found = Candidates::collect(table, values, floor, expected);
    REQUIRE(found);
    REQUIRE(found->values().size() == expected);
    std::size_t seen = 0;
    for (std::size_t number = 0; number < found->blocks(); ++number) {
      const Candidates::Block block = found->block(number);
      for (std::size_t i = 0; i < block.values.size(); ++i, ++seen)
        REQUIRE(values[block.first + block.positions[i]] == block.values[i]);
    }
    CHECK(seen == expected);
    CHECK_FALSE(Candidates::collect(table, values, floor, expected - 1));
  }
}

TEST_CASE("the kernels count and add alike", "[top_k]") {
  const Floats values = finite_cases(10007)[2].values;
  const std::vector<Magnitude> thresholds = {0, magnitude_of(0.5F), magnitude_of(3.0F), kInfinite};
  for (const Table& table : usable_tables()) {
    for (const std::size_t count : {0, 1, 31, 33, 1024, 1025, 10007}) {
      INFO(table.name << ", " << count);
      std::vector<std::uint64_t> counts(thresholds.size(), 7);
      table.count(values.data(), count, thresholds, counts.data());
      for (std::size_t t = 0; t < thresholds.size(); ++t) {
        const auto reached =
            std::count_if(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count),
                          [&](float x) { return std::fabs(x) >= number_of(thresholds[t]); });
        CHECK(counts[t] == 7 + static_cast<std::uint64_t>(reached));
      }
      const MagnitudeSum sum = table.magnitude_sum(values.data(), count);
      const Floats part(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
      if (count > 0) CHECK(sum.sum / static_cast<double>(count) == slow_mean(part));
      float most = 0;
      for (const float x : part) most = std::max(most, std::fabs(x));
      CHECK(number_of(sum.most) == most);
    }
  }
}

}  // namespace
}  // namespace roundelay::kernels
