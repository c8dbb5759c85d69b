// Which ready tensors travel together, and when. Pure: the same input gives the same plan on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace roundelay::fuse {

// The class of what is never fused: broadcasts, barriers.
inline constexpr std::uint64_t kNoFusion = std::numeric_limits<std::uint64_t>::max();

struct Candidate {
  std::size_t bytes = 0;
  std::uint64_t fusion_class = kNoFusion;  // equal: same operation, dtype, device, op and scale
};

struct PlanLimits {
  std::size_t fusion_threshold_bytes =
      0;                        // a fused operation has at most so many, padding included; 0: no fusion
  std::size_t theta_bytes = 0;  // one that has so many takes no more members; 0: no such limit
  std::size_t max_members = std::numeric_limits<std::size_t>::max();
};

using FusedIndices = std::vector<std::size_t>;  // of candidates, ascending

// Every candidate is in exactly one operation. Operations are in the order of their first members, and those
// of one class, put behind each other, give back that class's candidates in their order. A candidate above
// the threshold stands alone. O(n).
std::vector<FusedIndices> plan(std::span<const Candidate> candidates, const PlanLimits& limits);

// The same for callers with plain integers (bindings). A class of -1 is kNoFusion.
// kInvalidArgument: the lists differ in length, or a size or limit is negative.
Result<std::vector<std::vector<std::int64_t>>> plan_integers(const std::vector<std::int64_t>& bytes,
                                                             const std::vector<std::int64_t>& classes,
                                                             std::int64_t fusion_threshold,
                                                             std::int64_t theta);

struct FireLimits {
  std::size_t theta_bytes = 0;  // so many ready bytes make an order at once
  Duration linger{0};           // and fewer wait so long for company
};

// The moment at which what is ready makes an order. `oldest_ready` is TimePoint::max() if nothing is; so is
// the answer then. In the past or now: at once.
TimePoint next_fire(std::size_t ready_bytes, TimePoint oldest_ready, bool flush, const FireLimits& limits);

bool fires(std::size_t ready_bytes, TimePoint oldest_ready, TimePoint now, bool flush,
           const FireLimits& limits);

}  // namespace roundelay::fuse
