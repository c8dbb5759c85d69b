// The device's clock in the host's time, tested with timestamps of known times.
#include "gpu/device_clock.h"

#include <memory>

#include "tests/cpp/catch.h"

namespace roundelay::gpu {
namespace {

using Mark = DeviceClock::Mark;
using std::chrono::seconds;

TimePoint at(Duration::rep nanoseconds) { return TimePoint(Duration(nanoseconds)); }
TimePoint at(Duration since) { return TimePoint(since); }

// A device whose clock differs from the host's.
class Stamp final : public GpuTimestamp {
 public:
  explicit Stamp(std::optional<Duration> reached) : reached_(reached) {}
  [[nodiscard]] Result<Duration> since(const GpuTimestamp& earlier) const override {
    const auto& from = static_cast<const Stamp&>(earlier).reached_;
    if (!reached_ || !from) return Status::unavailable("not there");
    return *reached_ - *from;
  }

 private:
  const std::optional<Duration> reached_;
};

constexpr Duration kAhead(777'777);

// Makes a timestamp whose call came at `called`, and which the device reached at `reached`, both in host
// time.
Mark mark(Duration::rep called, Duration::rep reached) {
  return {std::make_shared<Stamp>(Duration(reached) + kAhead), at(called)};
}
Mark never(Duration::rep called) { return {std::make_shared<Stamp>(std::nullopt), at(called)}; }

TEST_CASE("a span is where it was, early by what the reference took", "[device clock]") {
  DeviceClock clock;
  REQUIRE(clock.wants_reference(at(100)));
  clock.refer_to(mark(100, 105));
  CHECK(!clock.wants_reference(at(100)));
  const auto span = clock.between(mark(110, 500), mark(120, 900));
  REQUIRE(span);
  CHECK(span->begin == at(495));
  CHECK(span->end == at(895));
}

TEST_CASE("nothing comes before it was asked for, and that tells where the reference was", "[device clock]") {
  DeviceClock clock;
  clock.refer_to(mark(100, 300));  // the stream was not idle enough
  const auto idle = clock.between(mark(1000, 1005), mark(1010, 2000));
  REQUIRE(idle);
  CHECK(idle->begin == at(1000));
  CHECK(idle->end == at(1995));
  const auto busy = clock.between(mark(1020, 5000), mark(1030, 6000));
  REQUIRE(busy);
  CHECK(busy->begin == at(4995));
  CHECK(busy->end == at(5995));
  const auto fast = clock.between(mark(6990, 7001), mark(6999, 7002));
  REQUIRE(fast);
  CHECK(fast->begin == at(6998));  // its end is known
  CHECK(fast->end == at(6999));
}

TEST_CASE("what the device has not reached has no time", "[device clock]") {
  DeviceClock clock;
  CHECK(!clock.between(mark(1, 2), mark(3, 4)));
  clock.refer_to(never(100));
  CHECK(!clock.between(mark(110, 500), mark(120, 900)));
  DeviceClock other;
  other.refer_to(mark(100, 105));
  CHECK(!other.between(mark(110, 500), never(120)));
  CHECK(!other.between(Mark{nullptr, at(1)}, mark(120, 900)));
}

TEST_CASE("a reference is made anew now and then, and keeps what is known", "[device clock]") {
  DeviceClock clock;
  clock.refer_to(mark(0, 5));
  const Duration::rep second = Duration(seconds(1)).count();
  CHECK(!clock.wants_reference(at(second - 1)));
  REQUIRE(clock.wants_reference(at(second)));

  clock.refer_to(never(second));
  CHECK(!clock.wants_reference(at(seconds(5))));  // a reference is under way
  const auto before = clock.between(mark(second, second + 500), mark(second, second + 900));
  REQUIRE(before);
  CHECK(before->begin == at(second + 495));

  DeviceClock other;
  other.refer_to(mark(0, 5));
  other.refer_to(mark(second, 2 * second));  // very late: the earlier one is better, except for the drift
  const auto span = other.between(mark(second, 2 * second), mark(second, 2 * second + 100));
  REQUIRE(span);
  const Duration drift = (Duration(2 * second) - Duration(5)) / 10000;
  CHECK(span->begin == at(Duration(2 * second) - Duration(5) - drift));
  CHECK(span->end - span->begin == Duration(100));
}

TEST_CASE("spans of a stream follow each other, though the clocks' distance is another one",
          "[device clock]") {
  DeviceClock clock;
  clock.refer_to(mark(1'000'000'000, 1'000'000'000));
  const auto first = clock.between(mark(0, 1'900'000'000), mark(0, 2'000'000'000));
  clock.refer_to(mark(1'999'000'000, 2'000'000'500));  // seems to be earlier than it was
  const auto second = clock.between(mark(0, 2'000'000'001), mark(0, 2'000'001'000));
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->end == at(2'000'000'000));
  CHECK(second->begin == first->end);
  CHECK(second->end == first->end);
}

}  // namespace
}  // namespace roundelay::gpu
