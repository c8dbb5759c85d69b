#include "lock/announced_schedule.h"

#include <utility>

namespace roundelay::lock {

void AnnouncedSchedule::begin(std::uint64_t number, const ScheduleLock::Operations& operations) {
  schedule_.begin(number, operations);
  announced_ = 0;
  watched_ = true;
  if (!can_lock()) schedule_.freeze();
  publish();
}

bool AnnouncedSchedule::file(const wire::Request& request, const std::string& values) {
  const bool filed = schedule_.file(request, values);
  if (filed) {
    if (!std::exchange(watched_, true)) flags_.unwatched.store(true, std::memory_order_relaxed);
    if (request.operation == Operation::kAgreement) {
      const LockedAgreement& agreement = *schedule_.agreement(request.name);
      announcements_->show(agreement.cell_number(), agreement.cell());
    }
  }
  publish();
  return filed;
}

void AnnouncedSchedule::freeze() {
  schedule_.freeze();
  publish();
}

std::optional<std::uint64_t> AnnouncedSchedule::frozen_after() const {
  if (!schedule_.active() || schedule_.open()) return std::nullopt;
  return schedule_.announced();
}

std::vector<wire::Submission> AnnouncedSchedule::end() {
  std::vector<wire::Submission> waiting = schedule_.end();
  publish();
  return waiting;
}

// Publishes the state to readers without the owner's lock, and newly announced positions to the members.
void AnnouncedSchedule::publish() {
  flags_.scheduled.store(schedule_.active(), std::memory_order_release);
  flags_.open.store(schedule_.open(), std::memory_order_release);
  if (schedule_.announced() == announced_ || !schedule_.active()) return;
  announced_ = schedule_.announced();
  announcements_->announce(announcement(schedule_.number(), announced_));
}

bool AnnouncedSchedule::all_announced(std::uint64_t until) const {
  return !schedule_.active() || until <= schedule_.entered() ||
         (can_lock() && announcements_->least(schedule_.number()) >= until);
}

bool AnnouncedSchedule::may_enter() const {
  return schedule_.active() && can_lock() && schedule_.may_enter(announcements_->least(schedule_.number()));
}

std::optional<Entered> AnnouncedSchedule::enter() {
  if (!schedule_.active() || !can_lock()) return std::nullopt;
  return with_result(schedule_.enter(announcements_->least(schedule_.number())));
}

// Adds the result of an agreement.
std::optional<Entered> AnnouncedSchedule::with_result(std::optional<ScheduleLock::Names> names) {
  if (!names) return std::nullopt;
  Entered entered{std::move(*names)};
  LockedAgreement* const agreement = schedule_.agreement(entered.names.front());
  if (agreement == nullptr) return entered;
  std::vector<Cell> cells;
  cells.reserve(ranks_.size());
  for (int member = 0; member < announcements_->members(); ++member)
    cells.push_back(announcements_->cell(member, agreement->cell_number()));
  Result<Agreed> agreed = agreement->enter(cells, ranks_);
  if (agreed.ok()) entered.agreed = std::move(*agreed);
  entered.fault = agreed.status();
  return entered;
}

Deadline AnnouncedSchedule::look(TimePoint now) {
  const Deadline next = schedule_.look(now);
  watched_ = next != Deadline::never();
  publish();
  return next;
}

}  // namespace roundelay::lock
