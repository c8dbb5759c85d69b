#include "negotiate/coordinator_watch.h"

#include <algorithm>

#include "negotiate/watchdog.h"

namespace roundelay::negotiate {

CoordinatorWatch::CoordinatorWatch(Duration warning, Duration abort)
    : ask_after_(warning == Duration{0} || abort == Duration{0} ? std::max(warning, abort)
                                                                : std::min(warning, abort)),
      warning_(warning),
      abort_(abort) {}

void CoordinatorWatch::on_heard(TimePoint now) {
  heard_ = now;
  asked_ = warned_ = false;
}

CoordinatorWatch::Action CoordinatorWatch::check(bool waiting, TimePoint now) {
  if (ask_after_ == Duration{0}) return Action::kNothing;
  if (!waiting || !waiting_) {
    waiting_ = waiting;
    on_heard(now);
    return Action::kNothing;
  }
  if (!asked_) {
    if (now - heard_ < ask_after_) return Action::kNothing;
    asked_ = true;
    asked_at_ = now;
    return Action::kPing;
  }
  if (abort_due().passed(now)) return Action::kAbort;
  if (warned_ || warning_ == Duration{0} || now - asked_at_ < kArbiterTimeout) return Action::kNothing;
  warned_ = true;
  return Action::kWarn;
}

Deadline CoordinatorWatch::abort_due() const {
  if (abort_ == Duration{0}) return Deadline::never();
  return Deadline::at(std::max(heard_ + abort_, asked_at_ + kArbiterTimeout));
}

Deadline CoordinatorWatch::next_due() const {
  if (!waiting_) return Deadline::never();
  if (!asked_) return Deadline::at(heard_ + ask_after_);
  if (warned_ || warning_ == Duration{0}) return abort_due();
  return abort_due().sooner(Deadline::at(asked_at_ + kArbiterTimeout));
}

}  // namespace roundelay::negotiate
