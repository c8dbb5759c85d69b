// Process sets come and go: all ranks announce the change, the members make or give up a lane, and all of
// them hear how it ended.
#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/leak.h"
#include "runtime/session/session.h"

namespace roundelay::runtime {
namespace {

constexpr std::size_t kReasonWords = 64;  // of the first failure's text, as it travels

std::string describe(const std::vector<int>& ranks) { return "the process set with ranks " + text_of(ranks); }

}  // namespace

std::shared_ptr<Lane> Session::make_lane(LaneId id, std::unique_ptr<collective::Fabric> fabric) {
  const auto wake = [this] { parts_.channel->wake(); };
  LaneOptions options{parts_.config.progress_timeout, fusion_threshold(parts_.config, parts_.rank_info.size)};
  // Where one thread does it all it sleeps in the channel, and not where announcements wake it.
  const bool threads = id == LaneId{} ? parts_.channel->any_thread() : !engine_.one_thread();
  options.schedule_lock = parts_.config.schedule_lock && threads && fabric->any_thread();
  if (parts_.gpu.runtime != nullptr) {
    const GpuFabricOptions gpu{gpu_fabric_wish(parts_.config.gpu_fabric), parts_.ranks_may_share_gpu,
                               parts_.config.start_timeout, bootstrap::node_id(parts_.config.node_id)};
    options.gpu = LaneGpu{parts_.gpu, &sequencer_, gpu};
  }
  return std::make_shared<Lane>(id, std::move(fabric), completer_, timeline_, abort_, options,
                                Lane::Faults{[this, wake](wire::Stuck stuck) {
                                               negotiator_.report_stuck(std::move(stuck));
                                               wake();
                                             },
                                             [this, wake](wire::Abort fault) {
                                               negotiator_.report_fault(std::move(fault));
                                               wake();
                                             },
                                             wake});
}

Result<submit::Handle> Session::announce(wire::Request request, const std::string& wrong) {
  request.operation = Operation::kProcessSet;
  if (!wrong.empty()) {
    wire::Request failed;  // without what is wrong, which may not travel
    failed.operation = request.operation;
    failed.error = wrong;
    submit_error_to(*world_, std::move(failed));
    return Status::invalid(wrong);
  }
  submit::Entry entry;
  entry.request = std::move(request);
  entry.times.submitted = steady_now();
  return submit_to(*world_, std::move(entry));
}

Result<submit::Handle> Session::submit_new_set(std::vector<int> ranks) {
  const std::string wrong = sets_.refuse(ranks, parts_.rank_info.size);
  wire::Request request;
  request.ranks.assign(ranks.begin(), ranks.end());
  return announce(std::move(request), wrong);
}

Result<submit::Handle> Session::submit_removal(ProcessSetId id) {
  const Result<ProcessSet> set = sets_.find(id);
  std::string wrong = set.status().message();
  if (id == 0) wrong = "process set 0, the world, cannot be removed";
  wire::Request request;
  request.root = static_cast<std::int32_t>(id);
  if (set.ok()) request.ranks.assign(set->ranks.begin(), set->ranks.end());
  return announce(std::move(request), wrong);
}

Result<std::vector<int>> Session::ranks_of(ProcessSetId id) {
  Result<ProcessSet> set = sets_.find(id);
  if (!set.ok()) return set.status();
  return std::move(set->ranks);
}

void Session::where_fabrics_live(const std::function<void()>& task) {
  if (engine_.one_thread()) {
    engine_.negotiate(task);
  } else {
    task();
  }
}

Result<ProcessSetId> Session::make_process_set(const std::vector<int>& ranks) {
  MutexLock changing(changing_);
  if (stopped_) return Status::aborted("this rank has called shutdown()");
  ProcessSet set{sets_.next_serial(), ranks, nullptr, false};
  // The lane is there before anyone knows that the set exists: no message about it can come too early.
  const Status outcome = agree(set, open_lane(set));
  if (outcome.ok()) return sets_.publish(std::move(set));
  close_lane(set, outcome);
  return outcome;
}

Status Session::open_lane(ProcessSet& set) {
  const auto self = std::find(set.ranks.begin(), set.ranks.end(), parts_.rank_info.rank);
  if (self == set.ranks.end()) return {};
  const Group group{set.serial, set.ranks, static_cast<int>(self - set.ranks.begin())};
  std::optional<Result<std::unique_ptr<collective::Fabric>>> fabric;
  where_fabrics_live([&] { fabric.emplace(parts_.make_fabric(group)); });
  if (!fabric->ok()) return fabric->status();
  set.lane = make_lane({.process_set = set.serial, .device = LaneId::kCpu}, std::move(*fabric).value());
  Lane& lane = *set.lane;
  {
    MutexLock lock(mutex_);
    open_.insert(lane.id());
  }
  sets_.add_lane(set.lane);
  if (abort_.raised()) completer_.fail_all(lane.table(), abort_.cause());
  engine_.add_lane(set.lane);
  engine_.negotiate([&] { negotiator_.add_lane(lane.id(), group, lane.table()); });
  return {};
}

// The same on all ranks: ok, or the reason of the lowest rank that failed.
Status Session::agree(const ProcessSet& set, const Status& mine) {
  const Deadline deadline = Deadline::after(parts_.config.start_timeout);
  wire::Request request;
  request.name = "roundelay.process_set." + std::to_string(set.serial);
  request.reduce_op = ReduceOp::kMin;
  std::vector<std::int64_t> failed = {mine.ok() ? parts_.rank_info.size : parts_.rank_info.rank};
  ROUNDELAY_RETURN_IF_ERROR(carry_out(request, failed, deadline));
  const auto culprit = static_cast<std::int32_t>(failed.front());
  if (culprit == parts_.rank_info.size) return {};

  std::vector<std::int64_t> text(kReasonWords, 0);
  std::memcpy(text.data(), mine.message().data(),
              std::min(mine.message().size(), (kReasonWords - 1) * sizeof(std::int64_t)));
  request.operation = Operation::kBroadcast;
  request.root = culprit;
  ROUNDELAY_RETURN_IF_ERROR(carry_out(request, text, deadline));
  return Status::unavailable(describe(set.ranks) + " could not be made: rank " + std::to_string(culprit) +
                             ": " + reinterpret_cast<const char*>(text.data()));
}

// In the world. A rank that cannot take part would leave the others with half a process set: that is a fault.
Status Session::carry_out(wire::Request request, std::vector<std::int64_t>& words, Deadline deadline) {
  Submission submission;
  auto* memory = reinterpret_cast<std::byte*>(words.data());
  request.dtype = DType::kInt64;
  request.shape = {static_cast<std::int64_t>(words.size())};
  request.cacheable = false;
  submission.request = std::move(request);
  submission.parts = {{DType::kInt64, memory, memory, words.size()}};
  const std::string prefix = "rank " + std::to_string(parts_.rank_info.rank) +
                             " could not agree with the other ranks about a process set: ";
  const Result<submit::Handle> handle = submit(std::move(submission));
  if (!handle.ok()) {
    if (handle.status().code() != StatusCode::kAborted) report_fault(prefix + handle.status().message());
    return handle.status();
  }
  std::optional<Status> status = wait(*handle, deadline);
  if (!status) {
    report_fault(prefix + "not all of them came within ROUNDELAY_START_TIMEOUT");
    status = wait(*handle, Deadline::never());
  }
  if (status->code() == StatusCode::kAborted) leak(std::move(words));
  return *status;
}

Status Session::drop_process_set(ProcessSetId id) {
  MutexLock changing(changing_);
  if (stopped_) return Status::aborted("this rank has called shutdown()");
  if (id == 0) return Status::invalid("process set 0, the world, cannot be removed");
  Result<ProcessSet> set = sets_.begin_removal(id);
  if (!set.ok()) return set.status();
  Status outcome = set->lane ? finish_lane(*set->lane, *set) : Status{};
  sets_.erase(id);
  close_lane(*set, Status::invalid("process set " + std::to_string(id) + " was removed"));
  return outcome;
}

// Until nothing is in flight in it on any rank.
Status Session::finish_lane(const Lane& lane, const ProcessSet& set) {
  engine_.negotiate([&] { negotiator_.begin_removal(lane.id()); });
  const Deadline deadline = Deadline::after(parts_.config.start_timeout);
  bool late = false;
  {
    MutexLock lock(mutex_);
    while (open_.contains(lane.id()) && !over_ && !late) {
      changed_.wait_until(mutex_, deadline);
      late = deadline.passed();
    }
    late = late && open_.contains(lane.id()) && !over_;
  }
  if (late) {
    report_fault("not all ranks removed " + describe(set.ranks) + " within ROUNDELAY_START_TIMEOUT");
    static_cast<void>(wait_until_closed(Deadline::never()));
  }
  // Each call has its own deadline.
  while (lane.has_work() && !abort_.raised()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return abort_.raised() ? complete::under_way(abort_.cause(), "remove_process_set()") : Status{};
}

void Session::close_lane(ProcessSet& set, const Status& why) {
  if (!set.lane) return;
  Lane& lane = *set.lane;
  completer_.fail_all(lane.table(), why);
  engine_.negotiate([&] { negotiator_.remove_lane(lane.id()); });
  engine_.remove_lane(lane);
  fail_what_is_left(lane);
  sets_.remove_lane(lane.id());
  close(lane.id());
  where_fabrics_live([&] { lane.close_fabric(); });
}

}  // namespace roundelay::runtime
