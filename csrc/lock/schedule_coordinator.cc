#include "lock/schedule_coordinator.h"

#include <utility>
#include <vector>

#include "wire/describe.h"

namespace roundelay::lock {

// A schedule consists of operations that every member knows by id alone.
bool ScheduleCoordinator::on_order(const wire::Order& order) {
  bool plain = order.failures.empty() && order.evicted.empty() && !order.joined && !order.tickets;
  for (const wire::FusedOperation& operation : order.operations) {
    ScheduleFinder::Ids ids;
    plain = plain && operation.extents.empty() && operation.absent.empty();
    for (const wire::FusedTensor& tensor : operation.tensors) {
      plain = plain && tensor.name.empty();
      ids.push_back(tensor.id);
    }
    if (!plain) break;
    finder_.saw(ids);
  }
  if (!plain) interrupt();
  return plain;
}

void ScheduleCoordinator::interrupt() { finder_.interrupted(); }

bool ScheduleCoordinator::begin_if_periodic(wire::Order& order,
                                            const std::function<bool(const Operations& period)>& lockable) {
  std::optional<Operations> period = finder_.period();
  if (!period || !lockable(*period)) return false;
  period_ = period->size();
  locked_by_ = order.sequence;
  keeper_.begin(static_cast<std::size_t>(group_.size()));
  order.lock = wire::Lock{keeper_.number(), std::move(*period)};
  return true;
}

Status ScheduleCoordinator::on_report(std::span<const int> members, const wire::Report& report,
                                      TimePoint now) {
  const std::string who = "rank " + std::to_string(group_.ranks[static_cast<std::size_t>(members.front())]);
  if (!report.requests.empty() || !report.cached.empty() || report.leaving || report.removing)
    return Status::internal(who + " reports operations while the schedule is locked");
  if (!report.frozen) return {};
  for (const int member : members) {
    const bool first_time = keeper_.on_frozen(static_cast<std::size_t>(member), *report.frozen, now);
    if (!first_time && members.size() == 1) return Status::internal(who + " has frozen twice");
  }
  warned_ = keeper_.asked();
  return {};
}

bool ScheduleCoordinator::write(wire::Order& order) {
  order.freeze = keeper_.take_freeze();
  order.unlock = keeper_.take_unlock();
  if (order.unlock) unlocked(*order.unlock);
  return order.freeze || order.unlock;
}

void ScheduleCoordinator::unlocked(std::uint64_t positions) {
  finder_.unlocked(period_, positions);
  interrupt();
}

Deadline ScheduleCoordinator::next_due() const {
  Deadline due = Deadline::never();
  if (keeper_.silent().empty()) return due;
  if (limits_.warning > Duration{0}) due = Deadline::at(warned_ + limits_.warning);
  if (limits_.abort > Duration{0}) due = due.sooner(Deadline::at(keeper_.asked() + limits_.abort));
  return due;
}

std::vector<int> ScheduleCoordinator::silent_ranks() const {
  std::vector<int> ranks;
  for (const int member : keeper_.silent()) ranks.push_back(group_.ranks[static_cast<std::size_t>(member)]);
  return ranks;
}

std::string ScheduleCoordinator::silence(TimePoint now) const {
  return wire::describe_ranks(silent_ranks()) + " answered nothing for " +
         seconds_text(now - keeper_.asked());
}

// The text names no operation: silent members have not said which positions they have announced.
std::optional<std::string> ScheduleCoordinator::take_warning(TimePoint now, std::set<int>& late) {
  if (limits_.warning <= Duration{0}) return std::nullopt;
  const std::vector<int> silent = silent_ranks();
  if (silent.empty() || now - warned_ < limits_.warning) return std::nullopt;
  warned_ = now;
  late.insert(silent.begin(), silent.end());
  return silence(now) + " while other ranks wait: stopped, overloaded or unreachable";
}

std::optional<wire::Abort> ScheduleCoordinator::fault(TimePoint now) const {
  if (limits_.abort <= Duration{0}) return std::nullopt;
  const std::vector<int> silent = silent_ranks();
  if (silent.empty() || now - keeper_.asked() < limits_.abort) return std::nullopt;
  return wire::Abort{silent.front(), silence(now) +
                                         " (ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS) while other ranks wait: "
                                         "stopped, overloaded or unreachable"};
}

}  // namespace roundelay::lock
