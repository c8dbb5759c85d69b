// The threads of a program that wait at once.
#include "runtime/session/waiters.h"

#include <thread>

#include "tests/cpp/catch.h"

namespace roundelay::runtime {
namespace {

TEST_CASE("a thread that waits alone does not gather", "[waiters]") {
  Waiters waiters;
  CHECK_FALSE(waiters.several());
  for (int wait = 0; wait < 2; ++wait) {
    const Waiters::Scope waiting(waiters);
    CHECK_FALSE(waiters.several());
    CHECK_FALSE(waiters.others());
    waiters.gather();
    CHECK_FALSE(waiters.several());
  }
}

TEST_CASE("threads that waited at once are several until fewer come", "[waiters]") {
  Waiters waiters;
  {
    const Waiters::Scope first(waiters);
    const Waiters::Scope second(waiters);
    CHECK(waiters.several());
    CHECK(waiters.others());
    waiters.gather();
    CHECK(waiters.several());
  }
  CHECK(waiters.several());  // nobody has looked
  const Waiters::Scope alone(waiters);
  CHECK_FALSE(waiters.others());
  waiters.gather();
  CHECK_FALSE(waiters.several());
}

TEST_CASE("a number of threads is expected only as long as it comes", "[waiters]") {
  Waiters waiters;
  {
    const Waiters::Scope first(waiters);
    const Waiters::Scope second(waiters);
    const Waiters::Scope third(waiters);
  }
  const Waiters::Scope first(waiters);
  {
    const Waiters::Scope second(waiters);
    waiters.gather();
    CHECK(waiters.several());
  }
  waiters.gather();
  CHECK_FALSE(waiters.several());
}

TEST_CASE("threads that come and go at once are counted", "[waiters]") {
  Waiters waiters;
  const auto wait_often = [&] {
    for (int wait = 0; wait < 10'000; ++wait) {
      const Waiters::Scope waiting(waiters);
      if (wait % 16 == 0) waiters.gather();
    }
  };
  std::thread other(wait_often);
  wait_often();
  other.join();
  const Waiters::Scope alone(waiters);
  waiters.gather();
  CHECK_FALSE(waiters.several());
}

}  // namespace
}  // namespace roundelay::runtime
