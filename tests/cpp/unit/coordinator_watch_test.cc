#include "negotiate/coordinator_watch.h"

#include "negotiate/watchdog.h"
#include "tests/cpp/catch.h"

namespace roundelay::negotiate {
namespace {

using std::chrono::seconds;
using Action = CoordinatorWatch::Action;

const TimePoint kStart{seconds(1000)};

}  // namespace

TEST_CASE("a silent coordinator is asked, named and given up", "[watch]") {
  CoordinatorWatch watch(seconds(10), seconds(30));
  CHECK(watch.next_due() == Deadline::never());
  CHECK(watch.check(true, kStart) == Action::kNothing);
  CHECK(watch.next_due() == Deadline::at(kStart + seconds(10)));
  CHECK(watch.check(true, kStart + seconds(9)) == Action::kNothing);
  CHECK(watch.check(true, kStart + seconds(10)) == Action::kPing);
  CHECK(watch.check(true, kStart + seconds(11)) == Action::kNothing);
  CHECK(watch.check(true, kStart + seconds(10) + kArbiterTimeout) == Action::kWarn);
  CHECK(watch.check(true, kStart + seconds(20)) == Action::kNothing);
  CHECK(watch.next_due() == Deadline::at(kStart + seconds(30)));
  CHECK(watch.check(true, kStart + seconds(30)) == Action::kAbort);
}

TEST_CASE("a coordinator that answers is never blamed", "[watch]") {
  CoordinatorWatch watch(seconds(10), seconds(30));
  TimePoint now = kStart;
  CHECK(watch.check(true, now) == Action::kNothing);
  for (int i = 0; i < 10; ++i) {
    now += seconds(10);
    CHECK(watch.check(true, now) == Action::kPing);
    watch.on_heard(now + seconds(1));
    now += seconds(1);
  }
}

TEST_CASE("the watch runs only while this rank waits", "[watch]") {
  CoordinatorWatch watch(seconds(10), Duration{0});
  CHECK(watch.check(true, kStart) == Action::kNothing);
  CHECK(watch.check(false, kStart + seconds(20)) == Action::kNothing);
  CHECK(watch.next_due() == Deadline::never());
  CHECK(watch.check(true, kStart + seconds(21)) == Action::kNothing);
  CHECK(watch.check(true, kStart + seconds(31)) == Action::kPing);
  CHECK(watch.check(true, kStart + seconds(34)) == Action::kWarn);
  CHECK(watch.check(true, kStart + seconds(9999)) == Action::kNothing);  // it warned once and never aborts
}

TEST_CASE("both times zero turn the watch off; abort alone asks first", "[watch]") {
  CoordinatorWatch off(Duration{0}, Duration{0});
  CHECK(off.check(true, kStart) == Action::kNothing);
  CHECK(off.check(true, kStart + seconds(9999)) == Action::kNothing);
  CHECK(off.next_due() == Deadline::never());

  CoordinatorWatch abort_only(Duration{0}, seconds(5));
  CHECK(abort_only.check(true, kStart) == Action::kNothing);
  CHECK(abort_only.check(true, kStart + seconds(5)) == Action::kPing);
  CHECK(abort_only.check(true, kStart + seconds(7)) == Action::kNothing);
  CHECK(abort_only.check(true, kStart + seconds(5) + kArbiterTimeout) == Action::kAbort);
}

}  // namespace roundelay::negotiate
