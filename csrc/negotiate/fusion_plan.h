// Decides which tensors go together in one operation, and when. Pure: the same input gives the same plan on
// every machine. A coordinator plans an order (negotiate/ready_queue.h), and each lane plans the batches of
// an operation of it (execute/batch.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/clock.h"

namespace roundelay::negotiate {

// The class of operations that are never fused, such as broadcasts, barriers and buckets with a technique.
inline constexpr std::uint64_t kNoFusion = std::numeric_limits<std::uint64_t>::max();

// One request for a coordinator, also of several tensors; one tensor for a lane.
struct FusionCandidate {
  std::size_t bytes = 0;  // its size in the fusion buffer, without the padding after a single tensor
  // Candidates of one class may travel together: one operation, dtype, device, reduction, scale and list of
  // absent members fits all of them.
  std::uint64_t fusion_class = kNoFusion;
};

struct FusionLimits {
  std::size_t fusion_threshold_bytes = 0;  // size limit of a fused operation, with padding; 0: no fusion
  std::size_t theta_bytes = 0;  // an operation of this size takes no more tensors; 0: no such limit
};

using FusedIndices = std::vector<std::size_t>;  // indices of candidates, ascending

// Returns the fused operations. Every candidate is in exactly one of them. Operations are in the order of
// their first candidates. Candidates of one class keep their order across operations. A candidate above the
// threshold stands alone. O(n).
std::vector<FusedIndices> plan_fusion(std::span<const FusionCandidate> candidates,
                                      const FusionLimits& limits);

struct FireLimits {
  std::size_t theta_bytes = 0;  // this many ready bytes make an order at once; 0: any number
  Duration linger{0};           // how long fewer bytes wait for more
};

// Returns the moment at which the ready tensors make an order; now or in the past means at once.
// `end_linger`: they do not linger. `oldest_ready` is TimePoint::max() if nothing is ready; then the result
// is TimePoint::max() too.
TimePoint next_fire(std::size_t ready_bytes, TimePoint oldest_ready, bool end_linger,
                    const FireLimits& limits);

// Returns true if that moment has come.
bool fires(std::size_t ready_bytes, TimePoint oldest_ready, TimePoint now, bool end_linger,
           const FireLimits& limits);

}  // namespace roundelay::negotiate
