#include "execute/lane_schedule.h"

#include <utility>

#include "base/futex.h"
#include "lock/announcements.h"

namespace roundelay::execute {
namespace {

constexpr Duration kLongestNap = std::chrono::milliseconds(100);

}  // namespace

void LaneSchedule::begin(std::uint64_t sequence) {
  {
    MutexLock lock(entering_);
    sequence_ = sequence;
  }
  waker_.wake();  // the lane's thread sleeps on its doorbell from now on
}

void LaneSchedule::end(std::uint64_t from) {
  {
    MutexLock lock(entering_);
    while (auto entered = table_.enter_before(from)) run(std::move(*entered));
    table_.end_schedule();
  }
  waker_.wake();
}

bool LaneSchedule::enter() {
  if (!table_.scheduled()) return false;
  bool any = false;
  MutexLock lock(entering_);
  while (auto entered = table_.enter()) {
    run(std::move(*entered));
    any = true;
  }
  // The schedule is frozen: callers that wait for the operation already negotiate, asleep in the channel.
  if (any && !open()) reports_.wake_negotiator();
  return any;
}

void LaneSchedule::run(lock::Entered entered) {
  if (!entered.fault.ok()) {
    if (!std::exchange(faulted_, true)) reports_.fault(entered.fault);
    return;
  }
  recorder_.count_scheduled();
  negotiate::OrderedOperation ordered;
  ordered.names = std::move(entered.names);
  ordered.agreed = std::move(entered.agreed);
  queue_.enqueue(sequence_, ordered);
}

Nap LaneSchedule::driver_nap() {
  constexpr auto kWho = lock::Announcements::Sleeper::kDriver;
  const auto& announcements = waker_.announcements();
  const std::uint32_t seen = announcements->arm(kWho);
  if (may_enter() || !open()) return {};
  const auto look_again = look();
  if (!look_again) return {};
  const Deadline next = look_again->sooner(Deadline::after(kLongestNap));
  return {announcements->doorbell(kWho), seen, next.when() - steady_now()};
}

bool LaneSchedule::waits_for_messages() const {
  const auto& announcements = waker_.announcements();
  return announcements && announcements->told_by_messages() && open() && !queue_.has_work() && !may_enter();
}

Deadline LaneSchedule::message_deadline() {
  static_cast<void>(waker_.announcements()->arm(lock::Announcements::Sleeper::kDriver));
  const auto look_again = waits_for_messages() ? look() : std::nullopt;
  return look_again.value_or(Deadline::at(TimePoint::min()));
}

void LaneSchedule::sleep(const ProgressToken& token, Deadline deadline) {
  constexpr auto kWho = lock::Announcements::Sleeper::kBackground;
  const auto& announcements = waker_.announcements();
  const std::uint32_t seen = arm_unless_watched();
  if (waker_.take_woken() || !table_.scheduled()) return;
  if ((queue_.has_work() || may_enter()) && !token.driven()) return;
  const auto look_again = look();
  if (!look_again) return;
  futex_wait(announcements->doorbell(kWho), seen, look_again->sooner(deadline));
}

// Returns when to look again. Nothing: an operation has waited too long, and the schedule is to end. A driver
// calls it, too, before it sleeps: while it drives, it may keep the lane's thread from looking.
std::optional<Deadline> LaneSchedule::look() {
  const bool was_open = open();
  const Deadline next = table_.look(steady_now());
  if (!was_open || open()) return next;
  reports_.wake_negotiator();
  return std::nullopt;
}

void LaneSchedule::begin_watch() {
  watches_.fetch_add(1, std::memory_order_seq_cst);
  const auto& announcements = waker_.announcements();
  if (announcements && open()) announcements->set_background_wakeups(false);
}

// The operation may be done before its caller waits: then no other watch ends for it.
void LaneSchedule::leave_watch() {
  if (watches_.fetch_sub(1, std::memory_order_seq_cst) > 1) return;
  if (sleeps_spared_.exchange(false, std::memory_order_seq_cst)) stop_sparing();
}

void LaneSchedule::end_watch() {
  if (watches_.fetch_sub(1, std::memory_order_seq_cst) > 1) return;
  sleeps_spared_.store(false, std::memory_order_seq_cst);
  stop_sparing();
}

void LaneSchedule::stop_sparing() {
  const auto& announcements = waker_.announcements();
  if (!announcements || !table_.scheduled()) return;
  announcements->set_background_wakeups(true);
  if (may_enter()) waker_.wake();
}

// Armed in spite of a watch, the lane's thread would wake for every operation. Either it sees that the last
// watch is over, or who ends that one sees it asleep.
std::uint32_t LaneSchedule::arm_unless_watched() {
  constexpr auto kWho = lock::Announcements::Sleeper::kBackground;
  sleeps_spared_.store(true, std::memory_order_seq_cst);
  if (watches_.load(std::memory_order_seq_cst) > 0) return waker_.announcements()->rings(kWho);
  sleeps_spared_.store(false, std::memory_order_seq_cst);
  return waker_.announcements()->arm(kWho);
}

}  // namespace roundelay::execute
