// The tcp channel between processes, of which one is killed or stopped.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/channel_contract.h"
#include "tests/cpp/contract/tcp_world.h"
#include "tests/cpp/contract/usage.h"
#include "tests/cpp/in_time.h"

namespace roundelay::testing {
namespace {

using Catch::Matchers::Contains;
using channel::Incoming;
using channel::TcpChannel;
using namespace std::chrono_literals;

TEST_CASE("tcp: a killed process is seen at once, even if a child of it lives on") {
  int until_closed[2];
  REQUIRE(::pipe2(until_closed, O_CLOEXEC) == 0);
  ChildRank child([&](TcpChannel& channel) {
    ::close(until_closed[1]);
    static_cast<void>(channel.connect(0, Deadline::after(10s)));
    if (::fork() == 0) {
      // Acts like a data loader's worker: it has copies of its parent's descriptors and outlives the parent.
      char byte;
      static_cast<void>(!::read(until_closed[0], &byte, 1));
      ::_exit(0);
    }
    static_cast<void>(channel.send(0, to_bytes("forked")));
    while (true) channel.wait(Deadline::after(60s));
  });
  ::close(until_closed[0]);
  CHECK(receive_one(*child.parent).bytes == to_bytes("forked"));
  child.signal(SIGKILL);
  const Incoming loss = receive_one(*child.parent);  // and the worker still lives
  CHECK(loss.from == 1);
  CHECK_THAT(loss.lost.message(), Contains("connection to rank 1 was lost"));
  ::close(until_closed[1]);
}

TEST_CASE("tcp: a stopped process does not block send, and gets everything when it goes on") {
  constexpr int kMessages = 40;
  constexpr std::size_t kSize = 1 << 20;
  ChildRank child([](TcpChannel& channel) {
    static_cast<void>(channel.connect(0, Deadline::after(10s)));
    static_cast<void>(channel.send(0, to_bytes("ready")));
    bool good = true;
    for (std::uint32_t i = 0; i < kMessages; ++i)
      good = receive_one(channel).bytes == pattern(kSize, i) && good;
    static_cast<void>(channel.send(0, to_bytes(good ? "good" : "bad")));
    static_cast<void>(receive_one(channel));
  });
  TcpChannel& channel = *child.parent;
  CHECK(receive_one(channel).bytes == to_bytes("ready"));
  std::vector<Bytes> messages;  // made before: while they are sent nobody polls, and the connection has 5 s
  for (std::uint32_t i = 0; i < kMessages; ++i) messages.push_back(pattern(kSize, i));
  child.signal(SIGSTOP);
  const long sleeps = sleeps_so_far();
  for (const Bytes& message : messages) REQUIRE(channel.send(1, message).ok());
  CHECK(sleeps_so_far() - sleeps < kMessages / 4);
  channel.wait(Deadline::after(20ms));
  CHECK_FALSE(channel.receive().has_value());
  const double before = cpu_seconds();
  channel.wait(Deadline::after(200ms));
  CHECK(cpu_seconds() - before < 0.05);  // a full socket must not make it spin
  child.signal(SIGCONT);
  CHECK(receive_one(channel).bytes == to_bytes("good"));
}

TEST_CASE("tcp: a stopped process is not taken for lost, however much is on its way to it", "[slow]") {
  constexpr std::size_t kSize = 1000;
  const auto body = [](TcpChannel& channel) {
    static_cast<void>(channel.connect(0, Deadline::after(10s)));
    static_cast<void>(channel.send(0, to_bytes("ready")));
    while (receive_one(channel).bytes.size() == kSize) continue;
    static_cast<void>(channel.send(0, to_bytes("good")));
    static_cast<void>(receive_one(channel));
  };
  std::vector<std::unique_ptr<ChildRank>> children;
  const Bytes message = pattern(kSize, 1);
  // The peer's window has room; is closed; is closed, and this side's buffer is full too.
  for (const int messages : {1, 300, 40'000}) {
    ChildRank& child = *children.emplace_back(std::make_unique<ChildRank>(body));
    CHECK(receive_one(*child.parent).bytes == to_bytes("ready"));
    child.signal(SIGSTOP);
    for (int i = 0; i < messages; ++i) REQUIRE(child.parent->send(1, message).ok());
  }
  const Deadline long_enough = Deadline::after(7s);  // an unreachable host is lost after 5 s
  while (!long_enough.passed()) {
    for (const auto& child : children) {
      child->parent->wait(Deadline::after(50ms));
      REQUIRE_FALSE(child->parent->receive().has_value());
    }
  }
  for (const auto& child : children) {
    child->signal(SIGCONT);
    REQUIRE(child->parent->send(1, to_bytes("end")).ok());
    CHECK(receive_one(*child->parent).bytes == to_bytes("good"));
  }
}

TEST_CASE("tcp: close gives up on a stopped process at its deadline") {
  ChildRank child([](TcpChannel& channel) {
    static_cast<void>(channel.send(0, to_bytes("ready")));
    while (true) channel.wait(Deadline::after(60s));
  });
  CHECK(receive_one(*child.parent).bytes == to_bytes("ready"));
  child.signal(SIGSTOP);
  for (std::uint32_t i = 0; i < 20; ++i) REQUIRE(child.parent->send(1, pattern(1 << 20, i)).ok());
  const TimePoint start = steady_now();
  child.parent->close(Deadline::after(100ms));
  CHECK(steady_now() - start >= 100ms);
  expect_within(5s, steady_now() - start);
  CHECK(child.parent->send(1, to_bytes("x")).code() == StatusCode::kUnavailable);
}

}  // namespace
}  // namespace roundelay::testing
