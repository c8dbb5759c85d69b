#include "negotiate/gpu_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace roundelay::negotiate {

bool GpuOrder::open(LaneId lane, std::vector<std::int32_t> ranks) {
  const auto in_world = [&](std::int32_t rank) {
    return rank >= 0 && static_cast<std::size_t>(rank) < last_.size();
  };
  if (!std::all_of(ranks.begin(), ranks.end(), in_world)) return false;
  lanes_.insert_or_assign(lane, std::move(ranks));
  return true;
}

bool GpuOrder::coordinates(std::int32_t rank, LaneId lane) const {
  const auto found = lanes_.find(lane);
  return found != lanes_.end() && found->second.front() == rank;
}

std::optional<wire::Tickets> GpuOrder::issue(LaneId lane, std::size_t operations) {
  std::vector<std::int32_t> ranks(last_.size());
  if (lane == LaneId{}) {
    std::iota(ranks.begin(), ranks.end(), 0);
  } else if (const auto found = lanes_.find(lane); found != lanes_.end()) {
    ranks = found->second;
  } else {
    return std::nullopt;
  }
  wire::Tickets tickets{next_, {}};
  next_ += operations;
  for (const std::int32_t rank : ranks) {
    auto& last = last_[static_cast<std::size_t>(rank)];
    tickets.previous.push_back(std::exchange(last, next_ - 1));
  }
  others_were_last_ = lane != LaneId{};
  return tickets;
}

}  // namespace roundelay::negotiate
