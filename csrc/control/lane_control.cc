#include "control/lane_control.h"

#include <algorithm>
#include <utility>

#include "lock/relay.h"

namespace roundelay::control {

LaneControl::LaneControl(LaneId id, const Group& members, negotiate::ReportTree reports,
                         submit::TensorTable& submitted, negotiate::CoordinatorOptions options)
    : group(members),
      tree(std::move(reports)),
      table(&submitted),
      participant(id, members.index),
      watch(options.stall_warning, options.stall_abort),
      watchdog(members) {
  options.schedule_lock = options.schedule_lock && submitted.can_lock();
  for (const int member : tree.below()) below.push_back(rank_of(member));
  if (members.index == 0) {
    coordinator = std::make_unique<negotiate::Coordinator>(id, members, options);
  } else if (!below.empty()) {
    merger = std::make_unique<negotiate::ReportMerger>(
        id, tree, members.index, StallLimits{options.stall_warning, options.stall_abort});
  }
}

bool LaneControl::may_apply(const wire::Order& order) const {
  if (!order.unlock) return true;
  // Who leads a node may see what others have announced before they could ask it to look, and then
  // leave.
  if (lock::Relay* const relay = table->relay()) relay->look();
  return table->all_announced(*order.unlock);
}

void LaneControl::take_submissions(std::vector<wire::Submission>& drained) {
  if (!table->scheduled()) {
    table->drain(drained);
    for (const wire::Submission& submission : drained) participant.submit(submission);
    return;
  }
  if (participant.ends()) table->freeze();
  if (const auto announced = table->frozen_after()) participant.freeze(*announced);
}

std::optional<int> LaneControl::member_of(int rank) const {
  const auto found = std::ranges::lower_bound(group.ranks, rank);
  if (found == group.ranks.end() || *found != rank) return std::nullopt;
  return static_cast<int>(found - group.ranks.begin());
}

const LaneControl& LaneControls::add(LaneId id, const Group& group, const negotiate::ReportTree& tree,
                                     submit::TensorTable& table,
                                     const negotiate::CoordinatorOptions& options) {
  return lanes_.try_emplace(id, id, group, tree, table, options).first->second;
}

LaneControl* LaneControls::find(LaneId id) {
  const auto found = lanes_.find(id);
  return found == lanes_.end() ? nullptr : &found->second;
}

bool LaneControls::shares_open_lane(int rank) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [rank](const auto& entry) {
    const LaneControl& lane = entry.second;
    return !lane.closed && std::binary_search(lane.group.ranks.begin(), lane.group.ranks.end(), rank);
  });
}

std::size_t LaneControls::outstanding() const {
  std::size_t sum = 0;
  for (const auto& [id, lane] : lanes_) {
    sum += lane.participant.outstanding();
    if (lane.coordinator) sum += lane.coordinator->waiting();
    if (lane.merger) sum += lane.merger->waiting();
  }
  return sum;
}

}  // namespace roundelay::control
