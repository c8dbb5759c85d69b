// TcpChannel while one of its threads polls.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/channel_contract.h"
#include "tests/cpp/contract/tcp_world.h"

namespace roundelay::testing {
namespace {

using namespace std::chrono_literals;

TEST_CASE("tcp: messages and wake-ups end the sleep of the thread that polls, and no other") {
  TcpWorld world(2);
  auto zero = world.channel(0);
  auto one = world.channel(1);
  REQUIRE(one->send(0, to_bytes("hello")).ok());
  while (!zero->receive()) one->wait(Deadline::after(1ms));
  zero->set_polling(true);
  const Deadline deadline = Deadline::after(200ms);
  std::atomic<bool> early{false};
  std::thread background([&] {
    zero->wait(deadline);
    early = !deadline.passed();
  });
  for (int i = 0; i < 50; ++i) {
    CHECK(one->send(0, to_bytes("for who polls")).ok());
    while (!zero->receive()) zero->wait_polling(Deadline::after(kForgotten), Duration{0});
    zero->wake();
    zero->wait_polling(Deadline::after(kForgotten), Duration{0});
  }
  background.join();
  CHECK_FALSE(early);
  zero->set_polling(false);
}

TEST_CASE("tcp: a wake-up that nobody took ends a wait when the one who polled has left") {
  TcpWorld world(1);
  auto zero = world.channel(0);
  zero->set_polling(true);
  zero->wake();
  const Deadline deadline = Deadline::after(kForgotten);
  std::thread background([&] { zero->wait(deadline); });
  zero->set_polling(false);
  background.join();
  CHECK_FALSE(deadline.passed());
}

}  // namespace
}  // namespace roundelay::testing
