#include "runtime/session/open_lanes.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cpp/catch.h"

namespace roundelay::runtime {
namespace {

constexpr LaneId kWorld{};
constexpr LaneId kSet{.process_set = 1, .device = LaneId::kCpu};

Deadline now() { return Deadline::at(steady_now()); }

TEST_CASE("a lane is closed when its last order has come, and all are when none is left", "[open lanes]") {
  OpenLanes lanes;
  CHECK(lanes.wait_until_all_closed(now()));
  lanes.add(kWorld);
  lanes.add(kSet);
  CHECK_FALSE(lanes.wait_until_closed(kSet, now()));
  lanes.close(kSet);
  CHECK(lanes.wait_until_closed(kSet, Deadline::never()));
  CHECK_FALSE(lanes.wait_until_all_closed(now()));
  std::thread closer([&] { lanes.close(kWorld); });
  CHECK(lanes.wait_until_all_closed(Deadline::never()));
  closer.join();
}

TEST_CASE("an abort ends all waits for lanes", "[open lanes]") {
  OpenLanes lanes;
  lanes.add(kWorld);
  std::thread aborter([&] { lanes.abort(); });
  CHECK(lanes.wait_until_all_closed(Deadline::never()));
  aborter.join();
  CHECK(lanes.wait_until_closed(kWorld, Deadline::never()));
  lanes.wait_while([] { return true; }, Deadline::never());
}

TEST_CASE("a wait for idle lanes ends at its deadline", "[open lanes]") {
  OpenLanes lanes;
  int asked = 0;
  lanes.wait_while([&] { return ++asked > 0; }, now());
  CHECK(asked == 1);
}

// A lost wake-up hangs here: the work ends in every position relative to the waiter's first look.
TEST_CASE("a waiter for idle lanes does not miss the end of the last work", "[open lanes]") {
  OpenLanes lanes;
  constexpr int kRounds = 5000;
  std::atomic<int> begun{0};
  std::atomic<int> work{0};
  std::thread lane([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (begun.load(std::memory_order_acquire) < round) std::this_thread::yield();
      for (int pause = 0; pause < round % 64; ++pause) static_cast<void>(begun.load());
      work.fetch_sub(1, std::memory_order_release);
      lanes.note_idle();
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    work.fetch_add(1, std::memory_order_release);
    begun.store(round, std::memory_order_release);
    lanes.wait_while([&] { return work.load(std::memory_order_acquire) > 0; }, Deadline::never());
    REQUIRE(work == 0);
  }
  lane.join();
}

}  // namespace
}  // namespace roundelay::runtime
