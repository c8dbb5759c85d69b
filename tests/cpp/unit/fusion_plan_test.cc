// The bucket plan and the moment at which an operation starts: invariants over seeded random inputs, and edge
// cases.
#include <map>
#include <random>

#include "negotiate/fusion_layout.h"
#include "negotiate/fusion_plan.h"
#include "tests/cpp/catch.h"

namespace roundelay::negotiate {
namespace {

using FusedOperations = std::vector<FusedIndices>;
using std::chrono::milliseconds;

std::size_t padded(std::size_t bytes) { return bytes + padding_after(bytes); }

std::vector<FusionCandidate> random_candidates(std::mt19937& random) {
  std::vector<FusionCandidate> candidates(random() % 60);
  const auto classes = 1 + random() % 5;
  const std::size_t most = 1 + random() % 5000;
  for (FusionCandidate& candidate : candidates) {
    candidate.bytes = random() % most;
    candidate.fusion_class = random() % 8 == 0 ? kNoFusion : random() % classes;
  }
  return candidates;
}

// Returns the promise that the plan broke, "" if it kept all.
std::string broken_promise(const std::vector<FusionCandidate>& candidates, const FusionLimits& limits,
                           const FusedOperations& plan) {
  std::vector<int> seen(candidates.size());
  std::map<std::uint64_t, std::size_t> last_of;  // index of each class's newest member, plus one
  std::size_t last_first = 0;
  for (const FusedIndices& operation : plan) {
    if (operation.empty()) return "an operation is empty";
    if (operation.front() + 1 <= last_first) return "first members are out of order";
    last_first = operation.front() + 1;
    const std::uint64_t fusion_class = candidates[operation.front()].fusion_class;
    std::size_t total = 0;
    for (const std::size_t i : operation) {
      ++seen[i];
      if (candidates[i].fusion_class != fusion_class) return "classes are mixed";
      if (fusion_class != kNoFusion && i + 1 <= last_of[fusion_class]) return "a class is out of order";
      if (limits.theta_bytes > 0 && total >= limits.theta_bytes) return "an operation grew beyond theta";
      last_of[fusion_class] = i + 1;
      total += padded(candidates[i].bytes);
    }
    if (operation.size() == 1) continue;
    if (fusion_class == kNoFusion) return "what must not be fused was";
    if (total > limits.fusion_threshold_bytes) return "an operation is above the threshold";
  }
  for (const int times : seen) {
    if (times != 1) return "an index is missing or twice there";
  }
  return "";
}

TEST_CASE("the plan keeps its promises for random inputs", "[fusion]") {
  std::mt19937 random(4711);
  std::size_t fused = 0;
  for (int round = 0; round < 5000; ++round) {
    const auto candidates = random_candidates(random);
    FusionLimits limits;
    limits.fusion_threshold_bytes = random() % 6 == 0 ? 0 : random() % 20000;
    limits.theta_bytes = random() % 2 == 0 ? 0 : random() % 8000;
    const FusedOperations first = plan_fusion(candidates, limits);
    INFO("round " << round);
    REQUIRE(broken_promise(candidates, limits, first) == "");
    REQUIRE(plan_fusion(candidates, limits) == first);
    if (first.size() < candidates.size()) ++fused;
  }
  REQUIRE(fused > 2000);
}

TEST_CASE("consecutive operations of a class could not have been one", "[fusion]") {
  std::mt19937 random(12);
  for (int round = 0; round < 2000; ++round) {
    auto candidates = random_candidates(random);
    for (FusionCandidate& candidate : candidates) candidate.fusion_class = 3;
    const FusionLimits limits{.fusion_threshold_bytes = 1 + random() % 20000};
    const FusedOperations operations = plan_fusion(candidates, limits);
    for (std::size_t k = 1; k < operations.size(); ++k) {
      std::size_t total = padded(candidates[operations[k].front()].bytes);
      for (const std::size_t i : operations[k - 1]) total += padded(candidates[i].bytes);
      REQUIRE(total > limits.fusion_threshold_bytes);
    }
  }
}

TEST_CASE("classes are fused across each other, in order of first members", "[fusion]") {
  const std::vector<FusionCandidate> candidates = {{64, 1}, {64, 2}, {8, kNoFusion},
                                                   {64, 1}, {64, 2}, {64, 1}};
  REQUIRE(plan_fusion(candidates, {.fusion_threshold_bytes = 1024}) ==
          FusedOperations{{0, 3, 5}, {1, 4}, {2}});
}

TEST_CASE("padding counts, and the limit itself may be reached", "[fusion]") {
  const std::vector<FusionCandidate> candidates = {{1, 1}, {1, 1}, {1, 1}};
  REQUIRE(plan_fusion(candidates, {.fusion_threshold_bytes = 128}) == FusedOperations{{0, 1}, {2}});
  REQUIRE(plan_fusion(candidates, {.fusion_threshold_bytes = 127}) == FusedOperations{{0}, {1}, {2}});
  REQUIRE(plan_fusion(candidates, {.fusion_threshold_bytes = 192}) == FusedOperations{{0, 1, 2}});
  REQUIRE(plan_fusion(candidates, {.fusion_threshold_bytes = 0}) == FusedOperations{{0}, {1}, {2}});
  REQUIRE(plan_fusion({}, {.fusion_threshold_bytes = 100}).empty());
}

TEST_CASE("a tensor above the threshold stands alone and parts its class", "[fusion]") {
  const std::vector<FusionCandidate> candidates = {{64, 1}, {1000, 1}, {64, 1}, {64, 1}};
  REQUIRE(plan_fusion(candidates, {.fusion_threshold_bytes = 512}) == FusedOperations{{0}, {1}, {2, 3}});
  const std::size_t huge = std::numeric_limits<std::size_t>::max();
  const std::vector<FusionCandidate> extreme = {{huge, 1}, {64, 1}, {huge - 3, 1}};
  REQUIRE(plan_fusion(extreme, {.fusion_threshold_bytes = huge}) == FusedOperations{{0}, {1}, {2}});
}

TEST_CASE("theta closes an operation", "[fusion]") {
  const std::vector<FusionCandidate> candidates(5, FusionCandidate{64, 1});
  REQUIRE(plan_fusion(candidates, {.fusion_threshold_bytes = 4096, .theta_bytes = 100}) ==
          FusedOperations{{0, 1}, {2, 3}, {4}});
}

TEST_CASE("ready tensors fire at theta, or at the end of the linger", "[fusion]") {
  const FireLimits limits{.theta_bytes = 1000, .linger = milliseconds(2)};
  const TimePoint start{milliseconds(100)};
  REQUIRE_FALSE(fires(999, start, start + milliseconds(1), false, limits));
  REQUIRE(next_fire(999, start, false, limits) == start + milliseconds(2));
  REQUIRE(fires(999, start, start + milliseconds(2), false, limits));
  REQUIRE(fires(1000, start, start, false, limits));
  REQUIRE(fires(0, start, start, true, limits));
  REQUIRE(next_fire(0, start, true, limits) == start);
}

TEST_CASE("nothing ready never fires, and an endless linger does not overflow", "[fusion]") {
  const FireLimits limits{.theta_bytes = 0, .linger = Duration::max()};
  REQUIRE_FALSE(fires(0, TimePoint::max(), TimePoint::max(), true, limits));
  REQUIRE(next_fire(0, TimePoint::max(), true, limits) == TimePoint::max());
  REQUIRE(next_fire(5, TimePoint(milliseconds(1)), false, {.theta_bytes = 10, .linger = Duration::max()}) ==
          TimePoint::max());
}

}  // namespace
}  // namespace roundelay::negotiate
