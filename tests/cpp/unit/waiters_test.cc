// The threads of a program that wait at once.
#include "runtime/session/waiters.h"

#include <deque>
#include <iterator>
#include <thread>

#include "tests/cpp/catch.h"

namespace roundelay::runtime {
namespace {

using Scope = Waiters::Scope;

// So many threads wait at once, and have all gone when this returns.
void wait_together(Waiters& waiters, int threads) {
  std::deque<Scope> waits;
  while (std::ssize(waits) < threads) waits.emplace_back(waiters);
}

// Returns whether a thread that comes expects others.
bool expects_others(Waiters& waiters) { return Scope(waiters).others_come(); }

// A thread comes, expects others, and sleeps in vain.
void miss(Waiters& waiters) {
  Scope alone(waiters);
  REQUIRE(alone.others_come());
  alone.missed();
}

TEST_CASE("a thread that waits alone expects nobody", "[waiters]") {
  Waiters waiters;
  for (int wait = 0; wait < 3; ++wait) {
    const Scope waiting(waiters);
    CHECK_FALSE(waiting.others_come());
    CHECK_FALSE(waiters.others());
    CHECK_FALSE(waiters.several());
  }
}

TEST_CASE("the first threads to come expect the rest, the last one does not", "[waiters]") {
  Waiters waiters;
  wait_together(waiters, 3);
  CHECK(waiters.several());
  for (int round = 0; round < 5; ++round) {
    const Scope first(waiters);
    CHECK(first.others_come());
    CHECK_FALSE(waiters.others());
    const Scope second(waiters);
    CHECK(second.others_come());
    CHECK(waiters.others());
    const Scope third(waiters);
    CHECK_FALSE(third.others_come());
  }
}

TEST_CASE("a number of threads is expected only as long as it comes", "[waiters]") {
  Waiters waiters;
  wait_together(waiters, 3);
  Scope first(waiters);
  {
    Scope second(waiters);
    CHECK(second.others_come());
    second.missed();
    CHECK(waiters.several());
  }
  first.missed();
  CHECK_FALSE(waiters.several());
}

TEST_CASE("who has slept in vain is not believed when the others have come meanwhile", "[waiters]") {
  Waiters waiters;
  wait_together(waiters, 2);
  Scope first(waiters);
  CHECK(first.others_come());
  {
    const Scope second(waiters);
    first.missed();
  }
  CHECK(waiters.several());
}

TEST_CASE("threads that meet by chance sleep in vain less and less often", "[waiters]") {
  Waiters waiters;
  for (const int waits : {1, 2, 4, 8, 16}) {
    wait_together(waiters, 2);
    for (int wait = 1; wait < waits; ++wait) CHECK_FALSE(expects_others(waiters));
    miss(waiters);
  }
}

TEST_CASE("threads of the operating system that come and go are counted", "[waiters]") {
  Waiters waiters;
  const auto wait_often = [&] {
    for (int wait = 0; wait < 10'000; ++wait) {
      Scope waiting(waiters);
      if (wait % 16 == 0 && waiting.others_come()) waiting.missed();
    }
  };
  std::thread other(wait_often);
  wait_often();
  other.join();
  const Scope alone(waiters);
  CHECK_FALSE(waiters.others());
}

}  // namespace
}  // namespace roundelay::runtime
