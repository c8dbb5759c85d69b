#include "negotiate/freeze_merger.h"

#include <algorithm>

namespace roundelay::negotiate {

bool FreezeMerger::take(const wire::MemberReport& said, bool for_all, TimePoint now) {
  if (!for_all || std::ranges::find(heard_, said.member) != heard_.end()) return true;
  const bool first = heard_.empty();
  heard_.push_back(said.member);
  least_ = first ? *said.report.frozen : std::min(least_, *said.report.frozen);
  last_order_ = first ? said.report.last_order : std::min(last_order_, said.report.last_order);
  if (!ordered_ || apart_) return true;
  if (kept_.empty()) since_ = now;
  kept_.push_back(said);
  return false;
}

std::optional<wire::MemberReport> FreezeMerger::take_all(LaneId lane, int member) {
  if (apart_ || heard_.size() < reporters_) return std::nullopt;
  apart_ = true;
  kept_.clear();
  wire::MemberReport all{.member = member, .all_below = true};
  all.report.lane = lane;
  all.report.last_order = last_order_;
  all.report.frozen = least_;
  return all;
}

std::vector<wire::MemberReport> FreezeMerger::take_overdue(TimePoint now, Duration patience) {
  if (!next_due(patience).passed(now)) return {};
  apart_ = true;
  return std::exchange(kept_, {});
}

Deadline FreezeMerger::next_due(Duration patience) const {
  return kept_.empty() ? Deadline::never() : Deadline::at(since_ + patience);
}

}  // namespace roundelay::negotiate
