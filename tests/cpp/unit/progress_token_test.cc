// The progress token, which decides which thread does the work.
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "execute/progress_token.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/threads.h"

namespace roundelay::execute {
namespace {

using std::chrono::milliseconds;

void wait_for(const std::atomic<bool>& flag) {
  while (!flag.load(std::memory_order_acquire)) std::this_thread::yield();
}

TEST_CASE("a driver keeps the background out until it leaves", "[token]") {
  ProgressToken token;
  std::atomic<bool> entered{false};
  std::optional<DriverHold> driver(std::in_place, token);
  REQUIRE(*driver);
  std::thread background([&] {
    BackgroundHold hold(token);
    entered = true;
  });
  std::this_thread::sleep_for(milliseconds(20));
  CHECK_FALSE(entered);
  driver.reset();
  background.join();
  CHECK(entered);
}

TEST_CASE("a driver waits for the background's step to end", "[token]") {
  ProgressToken token;
  std::atomic<bool> stepping{false}, ended{false};
  std::thread background([&] {
    BackgroundHold hold(token);
    stepping = true;
    std::this_thread::sleep_for(milliseconds(20));
    ended = true;
  });
  wait_for(stepping);
  DriverHold driver(token);
  CHECK(driver);
  CHECK(ended);
  background.join();
}

TEST_CASE("a background thread that tries is refused at once while there is a driver", "[token]") {
  ProgressToken token;
  {
    DriverHold driver(token);
    REQUIRE(driver);
    CHECK_FALSE(BackgroundTry(token));
  }
  CHECK(BackgroundTry(token));
}

TEST_CASE("a background thread that tries waits for the step of another", "[token]") {
  ProgressToken token;
  std::optional<BackgroundHold> step(std::in_place, token);
  std::atomic<bool> got{false};
  std::thread background([&] { got = static_cast<bool>(BackgroundTry(token)); });
  std::this_thread::sleep_for(milliseconds(20));
  CHECK_FALSE(got);
  step.reset();
  background.join();
  CHECK(got);
}

TEST_CASE("a background thread that waits for a step gives way to a driver", "[token]") {
  for (int round = 0; round < 100; ++round) {
    ProgressToken token;
    std::optional<BackgroundHold> step(std::in_place, token);
    std::atomic<bool> tried{false};
    std::thread driver([&] {
      DriverHold hold(token);
      wait_for(tried);  // would never come if the other waited for this driver
    });
    std::thread background([&] {
      static_cast<void>(BackgroundTry(token));
      tried = true;
    });
    step.reset();
    background.join();
    driver.join();
  }
}

TEST_CASE("a second driver is refused at once, also while the first still waits", "[token]") {
  ProgressToken token;
  {
    DriverHold first(token);
    REQUIRE(first);
    CHECK_FALSE(DriverHold(token));
    CHECK_FALSE(DriverHold(token));  // a refused one takes nothing and gives nothing back
  }
  CHECK(DriverHold(token));

  std::optional<BackgroundHold> background(std::in_place, token);
  std::atomic<bool> driving{false};
  std::atomic<pid_t> thread{0};
  std::thread first([&] {
    thread = ::gettid();
    DriverHold driver(token);
    driving = static_cast<bool>(driver);
  });
  // This driver must come after the first has queued, and so sleeps; otherwise it would wait for the
  // background thread itself.
  while (thread == 0) std::this_thread::yield();
  testing::wait_until_asleep(thread);
  CHECK_FALSE(driving);
  CHECK_FALSE(DriverHold(token));
  background.reset();
  first.join();
  CHECK(driving);
}

TEST_CASE("holders exclude each other and nobody is left asleep", "[token]") {
  constexpr int kRounds = 20000;
  ProgressToken token;
  int guarded = 0;  // not atomic: only the token keeps threads apart
  std::atomic<int> holds{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        BackgroundHold hold(token);
        ++guarded;
        ++holds;
      }
    });
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        DriverHold hold(token);
        if (!hold) continue;
        ++guarded;
        ++holds;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(guarded == holds);
  CHECK(guarded >= 2 * kRounds);
}

}  // namespace
}  // namespace roundelay::execute
