// Which rank is blamed when a collective does not end.
#include <string>

#include "negotiate/watchdog.h"
#include "tests/cpp/catch.h"

namespace roundelay::negotiate {
namespace {

using std::chrono::milliseconds;

const TimePoint kStart{std::chrono::hours(1)};

wire::Stuck stuck_for(int waiting_for) { return {{}, 7, waiting_for, "allreduce of 'w' (16 bytes)"}; }

Watchdog of_world(int rank, int size) {
  Group group{0, {}, rank};
  for (int member = 0; member < size; ++member) group.ranks.push_back(member);
  return Watchdog(group);
}

TEST_CASE("nobody is blamed while nobody is stuck", "[watchdog]") {
  Watchdog watchdog = of_world(0, 3);
  CHECK(watchdog.next_due() == Deadline::never());
  CHECK_FALSE(watchdog.take_fault(kStart + std::chrono::hours(24)));
}

TEST_CASE("rank 0 blames the rank that answers no ping", "[watchdog]") {
  Watchdog watchdog = of_world(0, 4);
  CHECK(watchdog.on_stuck(0, stuck_for(3), kStart));
  CHECK_FALSE(
      watchdog.on_stuck(3, stuck_for(2), kStart + milliseconds(10)));  // only one liveness check at a time
  watchdog.on_sign_of_life(1);
  CHECK(watchdog.next_due() == Deadline::at(kStart + kLivenessCheckTime));
  CHECK_FALSE(watchdog.take_fault(kStart + kLivenessCheckTime - milliseconds(1)));
  const auto fault = watchdog.take_fault(kStart + kLivenessCheckTime);
  REQUIRE(fault);
  CHECK(fault->culprit == 2);
  CHECK(fault->text.find("rank 2 entered allreduce of 'w' (16 bytes) and then stopped") == 0);
  CHECK_FALSE(watchdog.take_fault(kStart + kLivenessCheckTime * 2));
  CHECK(watchdog.next_due() == Deadline::never());
}

TEST_CASE("an liveness check begins with a peer's report too, and rank 0 itself counts as alive",
          "[watchdog]") {
  Watchdog watchdog = of_world(0, 3);
  CHECK(watchdog.on_stuck(1, stuck_for(2), kStart));
  const auto fault = watchdog.take_fault(kStart + kLivenessCheckTime);
  REQUIRE(fault);
  CHECK(fault->culprit == 2);
}

TEST_CASE("a chain of waiting ranks leads to the one that waits for none", "[watchdog]") {
  Watchdog watchdog = of_world(0, 4);  // 0 waits for 1, 1 for 2, 2 for 3; 3 answers but does not move
  REQUIRE(watchdog.on_stuck(0, stuck_for(1), kStart));
  watchdog.on_stuck(2, stuck_for(3), kStart);
  watchdog.on_stuck(1, stuck_for(2), kStart);
  watchdog.on_sign_of_life(3);
  CHECK_FALSE(watchdog.take_fault(kStart + milliseconds(500)));  // rank 3 may still report itself stuck
  const auto fault = watchdog.take_fault(kStart + kLivenessCheckTime);
  REQUIRE(fault);
  CHECK(fault->culprit == 3);
  CHECK(fault->text == "rank 3 made no progress inside allreduce of 'w' (16 bytes)");
}

TEST_CASE("all alive and all stuck: nobody is blamed, and at once", "[watchdog]") {
  Watchdog watchdog = of_world(0, 3);
  REQUIRE(watchdog.on_stuck(0, stuck_for(1), kStart));
  watchdog.on_stuck(1, stuck_for(2), kStart);
  CHECK_FALSE(watchdog.take_fault(kStart + milliseconds(1)));
  watchdog.on_stuck(2, stuck_for(0), kStart);
  const auto fault = watchdog.take_fault(kStart + milliseconds(1));
  REQUIRE(fault);
  CHECK(fault->culprit == -1);
  CHECK(fault->text ==
        "no rank made progress inside allreduce of 'w' (16 bytes), though all of them are alive");
}

TEST_CASE("who waits for someone unknown blames nobody", "[watchdog]") {
  Watchdog watchdog = of_world(0, 2);
  REQUIRE(watchdog.on_stuck(0, stuck_for(-1), kStart));
  watchdog.on_sign_of_life(1);
  const auto fault = watchdog.take_fault(kStart + kLivenessCheckTime);
  REQUIRE(fault);
  CHECK(fault->culprit == -1);
}

TEST_CASE("others give rank 0 time for its fault and then blame it", "[watchdog]") {
  Watchdog watchdog = of_world(2, 3);
  CHECK_FALSE(watchdog.on_stuck(2, stuck_for(1), kStart));
  CHECK(watchdog.next_due() == Deadline::at(kStart + kArbiterTimeout));
  CHECK_FALSE(watchdog.take_fault(kStart + kLivenessCheckTime));
  CHECK_FALSE(watchdog.take_fault(kStart + kArbiterTimeout - milliseconds(1)));
  const auto fault = watchdog.take_fault(kStart + kArbiterTimeout);
  REQUIRE(fault);
  CHECK(fault->culprit == 0);
  CHECK(fault->text.find("rank 0 entered allreduce of 'w'") == 0);
  CHECK(kArbiterTimeout > kLivenessCheckTime);
}

TEST_CASE("in a process set its first rank judges, and only members are asked and blamed", "[watchdog]") {
  const std::vector<int> ranks = {1, 3, 4};
  Watchdog arbiter(Group{2, ranks, 0});
  REQUIRE(arbiter.on_stuck(3, stuck_for(4), kStart));
  arbiter.on_sign_of_life(0);
  arbiter.on_sign_of_life(2);
  const auto fault = arbiter.take_fault(kStart + kLivenessCheckTime);
  REQUIRE(fault);
  CHECK(fault->culprit == 4);
  CHECK(fault->text.find("rank 4 entered allreduce of 'w' (16 bytes) and then stopped") == 0);

  Watchdog member(Group{2, ranks, 1});
  CHECK_FALSE(member.on_stuck(3, stuck_for(4), kStart));
  const auto silent_arbiter = member.take_fault(kStart + kArbiterTimeout);
  REQUIRE(silent_arbiter);
  CHECK(silent_arbiter->culprit == 1);
}

TEST_CASE("in a set that members may have left, silence is no guilt: who is waited for is", "[watchdog]") {
  for (const int index : {0, 1}) {
    Watchdog watchdog(Group{2, {1, 3, 4}, index});
    watchdog.on_stuck(index == 0 ? 1 : 3, stuck_for(4), kStart);
    watchdog.on_closed();
    const auto fault = watchdog.take_fault(kStart + kArbiterTimeout);
    REQUIRE(fault);
    CHECK(fault->culprit == 4);
    CHECK(fault->text == "rank 4 made no progress inside allreduce of 'w' (16 bytes)");
  }
}

}  // namespace
}  // namespace roundelay::negotiate
