#include "runtime/session/set_changes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace roundelay::runtime {
namespace {

constexpr const char* kWorldStays = "process set 0, the world, cannot be removed";

Status after_shutdown() { return Status::aborted("this rank has called shutdown()"); }

}  // namespace

SetChanges::SetChanges(Dependencies session, ReportFault report_fault)
    : session_(session),
      report_fault_(std::move(report_fault)),
      agreement_(session.operations, session.parts.rank_info.rank, session.parts.rank_info.size,
                 session.parts.config.start_timeout, report_fault_) {}

Result<complete::Handle> SetChanges::submit_new(const std::vector<int>& ranks) {
  wire::Request request;
  request.ranks.assign(ranks.begin(), ranks.end());
  const std::string wrong = refuse_ranks(ranks, session_.parts.rank_info.size);
  return session_.operations.submit_change(std::move(request), wrong);
}

Result<complete::Handle> SetChanges::submit_removal(ProcessSetId id) {
  const Result<ProcessSet> set = session_.sets.find(id);
  const std::string wrong = id == 0 ? kWorldStays : set.status().message();
  wire::Request request;
  request.root = static_cast<std::int32_t>(id);
  if (set.ok()) request.ranks.assign(set->ranks.begin(), set->ranks.end());
  return session_.operations.submit_change(std::move(request), wrong);
}

Result<ProcessSetId> SetChanges::make(const std::vector<int>& ranks) {
  MutexLock changing(changing_);
  if (refusing_) return after_shutdown();
  ProcessSet set{session_.sets.next_serial(), ranks, nullptr, false};
  // Each member opens its lane before any rank uses the set, so no message can come for an unknown lane.
  const Status outcome = agreement_.agree(set, open_lane(set));
  if (outcome.ok()) return session_.sets.publish(std::move(set));
  close_lane(set, outcome);
  return outcome;
}

Status SetChanges::open_lane(ProcessSet& set) {
  const auto self = std::find(set.ranks.begin(), set.ranks.end(), session_.parts.rank_info.rank);
  if (self == set.ranks.end()) return {};
  const Group group{set.serial, set.ranks, static_cast<int>(self - set.ranks.begin())};
  Engine& engine = session_.engine;
  std::optional<Result<execute::LaneFabrics>> fabrics;
  Result<DeviceMediumPtr> medium = DeviceMediumPtr();
  engine.run_where_fabrics_live([&] {
    fabrics.emplace(session_.parts.make_fabrics(group));
    const MakeDeviceMedium& make_medium = session_.parts.make_device_medium;
    if (fabrics->ok() && make_medium) medium = make_medium(group);
  });
  if (!fabrics->ok()) return fabrics->status();
  if (!medium.ok()) return medium.status();
  set.lane = session_.lane_factory.make({.process_set = set.serial, .device = LaneId::kCpu},
                                        std::move(*fabrics).value(), std::move(medium).value(),
                                        !session_.lane_threads.one_thread());
  execute::Lane& lane = *set.lane;
  session_.open_lanes.add(lane.id());
  session_.sets.add_lane(set.lane);
  if (session_.abort.raised()) session_.completer.fail_all(lane.table(), session_.abort.cause());
  session_.lane_threads.add(set.lane);
  engine.negotiate([&] { session_.negotiator.add_lane(lane.id(), group, lane.table()); });
  return {};
}

Status SetChanges::remove(ProcessSetId id) {
  MutexLock changing(changing_);
  if (refusing_) return after_shutdown();
  if (id == 0) return Status::invalid(kWorldStays);
  Result<ProcessSet> set = session_.sets.begin_removal(id);
  if (!set.ok()) return set.status();
  Status outcome = set->lane ? finish_lane(*set->lane, *set) : Status{};
  session_.sets.erase(id);
  close_lane(*set, Status::invalid("process set " + std::to_string(id) + " was removed"));
  return outcome;
}

Status SetChanges::finish_lane(const execute::Lane& lane, const ProcessSet& set) {
  session_.engine.negotiate([&] { session_.negotiator.begin_removal(lane.id()); });
  OpenLanes& open_lanes = session_.open_lanes;
  if (!open_lanes.wait_until_closed(lane.id(), Deadline::after(session_.parts.config.start_timeout))) {
    report_fault_("not all ranks removed " + describe(set) + " within ROUNDELAY_START_TIMEOUT");
    static_cast<void>(open_lanes.wait_until_all_closed(Deadline::never()));
  }
  // Each operation has a deadline of its own, on the device too.
  open_lanes.wait_while([&] { return lane.has_work() || lane.watches_device(); }, Deadline::never());
  const AbortToken& abort = session_.abort;
  return abort.raised() ? execute::under_way(abort.cause(), "remove_process_set()") : Status{};
}

void SetChanges::close_lane(ProcessSet& set, const Status& why) {
  if (!set.lane) return;
  execute::Lane& lane = *set.lane;
  Engine& engine = session_.engine;
  session_.completer.fail_all(lane.table(), why);
  engine.negotiate([&] { session_.negotiator.remove_lane(lane.id()); });
  session_.lane_threads.remove(lane);
  session_.lane_threads.fail_remaining_work(lane);
  session_.sets.remove_lane(lane.id());
  session_.open_lanes.close(lane.id());
  engine.run_where_fabrics_live([&] { lane.close_fabrics(); });
}

}  // namespace roundelay::runtime
