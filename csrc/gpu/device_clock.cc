#include "gpu/device_clock.h"

#include <algorithm>
#include <utility>

namespace roundelay::gpu {
namespace {

constexpr Duration kRenewal = std::chrono::seconds(1);
constexpr int kDrift = 10000;  // the clocks drift by less than 1 / kDrift

}  // namespace

bool DeviceClock::wants_reference(TimePoint now) const {
  return !next_.point && (!reference_.point || now - asked_ >= kRenewal);
}

void DeviceClock::refer_to(Mark idle) {
  asked_ = idle.called;
  (reference_.point ? next_ : reference_) = std::move(idle);
}

// Makes `next_` the reference if the device has passed it. The old reference bounds its time, but for the
// drift.
void DeviceClock::take_reference() {
  if (!next_.point) return;
  const Result<Duration> apart = next_.point->since(*reference_.point);
  if (!apart.ok()) return;
  next_.called = std::max(next_.called, reference_.called + *apart - *apart / kDrift);
  reference_ = std::exchange(next_, {});
}

std::optional<TimePoint> DeviceClock::time_of(const Mark& mark) {
  if (!mark.point || !reference_.point) return std::nullopt;
  const Result<Duration> apart = mark.point->since(*reference_.point);
  if (!apart.ok()) return std::nullopt;
  reference_.called = std::max(reference_.called, mark.called - *apart);
  return reference_.called + *apart;
}

std::optional<DeviceClock::Span> DeviceClock::between(const Mark& begin, const Mark& end) {
  take_reference();
  static_cast<void>(time_of(end));  // may raise the reference's bound, which `begin` uses, too
  const auto from = time_of(begin);
  const auto to = time_of(end);
  if (!from || !to) return std::nullopt;
  Span span{std::max(*from, last_), {}};
  span.end = last_ = std::max(*to, span.begin);
  return span;
}

}  // namespace roundelay::gpu
