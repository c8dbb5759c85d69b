#include "negotiate/fusion_plan.h"

#include <unordered_map>

#include "negotiate/fusion_layout.h"

namespace roundelay::negotiate {
namespace {

// The operation that still takes candidates of a class.
struct Open {
  std::size_t operation = 0;  // index in the plan_fusion
  std::size_t members = 0;    // 0: none is open
  std::size_t room = 0;       // bytes below the threshold
};

bool fits(std::size_t bytes, std::size_t room) {
  return bytes <= room && padding_after(bytes) <= room - bytes;
}

}  // namespace

std::vector<FusedIndices> plan_fusion(std::span<const FusionCandidate> candidates,
                                      const FusionLimits& limits) {
  std::vector<FusedIndices> operations;
  std::unordered_map<std::uint64_t, Open> open_of;  // looked up only: its order is not the plan_fusion's
  const std::size_t threshold = limits.fusion_threshold_bytes;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto [bytes, fusion_class] = candidates[i];
    if (fusion_class == kNoFusion || threshold == 0) {
      operations.push_back({i});
      continue;
    }
    Open& open = open_of[fusion_class];
    if (open.members > 0 && fits(bytes, open.room)) {
      operations[open.operation].push_back(i);
    } else {
      open = {operations.size(), 0, threshold};
      operations.push_back({i});
    }
    if (!fits(bytes, open.room)) continue;  // larger than the threshold: alone, nothing stays open
    open.room -= bytes + padding_after(bytes);
    ++open.members;
    const bool enough = limits.theta_bytes > 0 && threshold - open.room >= limits.theta_bytes;
    if (enough) open.members = 0;
  }
  return operations;
}

TimePoint next_fire(std::size_t ready_bytes, TimePoint oldest_ready, bool end_linger,
                    const FireLimits& limits) {
  if (oldest_ready == TimePoint::max()) return TimePoint::max();
  if (end_linger || ready_bytes >= limits.theta_bytes) return oldest_ready;
  return oldest_ready > TimePoint::max() - limits.linger ? TimePoint::max() : oldest_ready + limits.linger;
}

bool fires(std::size_t ready_bytes, TimePoint oldest_ready, TimePoint now, bool end_linger,
           const FireLimits& limits) {
  const TimePoint when = next_fire(ready_bytes, oldest_ready, end_linger, limits);
  return when != TimePoint::max() && now >= when;
}

}  // namespace roundelay::negotiate
