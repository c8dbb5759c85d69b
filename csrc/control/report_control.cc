#include "control/report_control.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace roundelay::control {

void ReportControl::send(LaneControl& lane, wire::Report report, TimePoint now) {
  ControlCounters& counters = link_.counters();
  ++counters.reports;
  counters.cached_requests += static_cast<std::int64_t>(report.cached.size());
  counters.full_requests += static_cast<std::int64_t>(report.requests.size());
  const int self = lane.group.index;
  if (lane.coordinator || lane.merger) {
    take(lane, self, {.member = self, .report = std::move(report)}, now);
  } else {
    link_.send(lane.rank_of(lane.tree.above()), std::move(report));
  }
}

void ReportControl::on_report(int from, const wire::Report& report, TimePoint now) {
  LaneControl* const lane = lanes_.find(report.lane);
  if (link_.aborted() || lane == nullptr) return;
  const std::optional<int> member = lane->member_of(from);
  if (!member || !std::ranges::binary_search(lane->tree.below(), *member)) return;
  take(*lane, *member, {.member = *member, .report = report}, now);
}

void ReportControl::on_reports(int from, wire::Reports reports, TimePoint now) {
  LaneControl* const lane = lanes_.find(reports.lane);
  if (link_.aborted() || lane == nullptr) return;
  const std::optional<int> member = lane->member_of(from);
  if (!member || !std::ranges::binary_search(lane->tree.below(), *member)) return;
  const std::span<const int> below = lane->tree.subtree(*member);
  for (wire::MemberReport& said : reports.reports) {
    if (!std::ranges::binary_search(below, said.member) || said.report.lane != reports.lane)
      return link_.abort({from, "rank " + std::to_string(from) + " reports for a rank that is not below it"});
    take(*lane, *member, std::move(said), now);
    if (link_.aborted()) return;
  }
}

// `member` has sent it to this rank, or is this rank.
void ReportControl::take(LaneControl& lane, int member, wire::MemberReport said, TimePoint now) {
  if (lane.merger) return lane.merger->take(member, std::move(said), now);
  if (!lane.coordinator) return;
  const std::span<const int> one(&said.member, 1);
  const std::span<const int> members = said.all_below ? lane.tree.subtree(said.member) : one;
  const Status taken = lane.coordinator->on_report({members, said.report, said.others}, now);
  if (!taken.ok()) link_.abort({lane.rank_of(said.member), taken.message()});
}

bool ReportControl::send_merged(TimePoint now) {
  bool moved = false;
  for (auto& [id, lane] : lanes_) {
    if (!lane.merger || lane.closed) continue;
    std::vector<wire::MemberReport> reports = lane.merger->take_reports(now);
    if (reports.empty()) continue;
    moved = true;
    send_up(lane, std::move(reports));
  }
  return moved;
}

// No message has more ids than a reader takes.
void ReportControl::send_up(const LaneControl& lane, std::vector<wire::MemberReport> reports) {
  wire::Reports message{.lane = reports.front().report.lane, .reports = {}};
  std::size_t ids = 0;
  for (wire::MemberReport& report : reports) {
    ids += report.report.cached.size();
    if (ids > wire::kMaxIds) {
      ids = report.report.cached.size();
      link_.send(lane.rank_of(lane.tree.above()),
                 wire::Reports{message.lane, std::exchange(message.reports, {})});
    }
    message.reports.push_back(std::move(report));
  }
  link_.send(lane.rank_of(lane.tree.above()), std::move(message));
}

Deadline ReportControl::next_due() const {
  Deadline due = Deadline::never();
  for (const auto& [id, lane] : std::as_const(lanes_)) {
    if (lane.merger && !lane.closed) due = due.sooner(lane.merger->next_due());
  }
  return due;
}

}  // namespace roundelay::control
