#include "tests/cpp/contract/channel_contract.h"

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/cpp/catch.h"
#include "wire/frames.h"

namespace roundelay::testing {

using channel::Channel;
using channel::Incoming;
using namespace std::chrono_literals;

Bytes to_bytes(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(data, data + text.size());
}

Bytes pattern(std::size_t size, std::uint32_t seed) {
  Bytes bytes(size);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

Incoming receive_one(Channel& channel) {
  const Deadline deadline = Deadline::after(kForgotten);
  while (!deadline.passed()) {
    if (auto incoming = channel.receive()) return std::move(*incoming);
    channel.wait(deadline);
  }
  throw std::runtime_error("nothing arrived in 60 s");
}

std::string talk_to_all(Channel& mine, int rank, int size) {
  const std::vector<std::size_t> sizes = {0,     1,     3,     4096, 64 << 10, 5 << 20, 2, (64 << 10) + 1,
                                          16379, 16380, 16381, 16,   0,        7};
  const auto seed = [](int from, std::size_t i) {
    return static_cast<std::uint32_t>(from) * 64 + static_cast<std::uint32_t>(i);
  };
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (int to = 0; to < size; ++to) {
      const Status sent = mine.send(to, pattern(sizes[i], seed(rank, i)));
      if (!sent.ok()) return "send to " + std::to_string(to) + ": " + sent.message();
    }
  }
  // A member that has received everything says so in a last message; after these nothing is in transit.
  std::vector<std::size_t> got(static_cast<std::size_t>(size), 0);
  std::size_t missing = got.size() * sizes.size();
  std::size_t unfinished = got.size();
  while (unfinished > 0) {
    const Incoming incoming = receive_one(mine);
    const auto from = static_cast<std::size_t>(incoming.from);
    if (!incoming.lost.ok()) return incoming.lost.message();
    if (from >= got.size()) return "a message from rank " + std::to_string(incoming.from);
    const std::size_t i = got[from]++;
    if (i == sizes.size()) {
      if (incoming.bytes != to_bytes("done")) return "one message too many";
      --unfinished;
      continue;
    }
    if (i > sizes.size() || incoming.bytes != pattern(sizes[i], seed(incoming.from, i))) {
      return "message " + std::to_string(i) + " from rank " + std::to_string(incoming.from) + " is wrong";
    }
    if (--missing > 0) continue;
    for (int to = 0; to < size; ++to) {
      if (const Status sent = mine.send(to, to_bytes("done")); !sent.ok()) return "done: " + sent.message();
    }
  }
  return mine.receive().has_value() ? "something after the end" : "";
}

namespace {

// Threads must not use Catch's macros. They collect errors, and the main thread checks them.
struct Counted {
  std::uint32_t sender;
  std::uint32_t number;
};

Bytes counted(std::uint32_t sender, std::uint32_t number) {
  const Counted value{sender, number};
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

void to_oneself(const MakeChannels& make) {
  auto ranks = make(2);
  CHECK(ranks[1]->send(1, to_bytes("first")).ok());
  CHECK(ranks[1]->send(1, to_bytes("second")).ok());
  const Incoming first = receive_one(*ranks[1]);
  CHECK(first.from == 1);
  CHECK(first.bytes == to_bytes("first"));
  CHECK(receive_one(*ranks[1]).bytes == to_bytes("second"));
  CHECK_FALSE(ranks[1]->receive().has_value());
}

void wrong_rank(const MakeChannels& make) {
  auto ranks = make(2);
  CHECK(ranks[0]->send(2, to_bytes("x")).code() == StatusCode::kInvalidArgument);
  CHECK(ranks[0]->send(-1, to_bytes("x")).code() == StatusCode::kInvalidArgument);
}

void too_long_or_closed(const MakeChannels& make) {
  auto ranks = make(2);
  const Bytes too_long(wire::kLongestFrame + 1);
  CHECK(ranks[0]->send(1, too_long).code() == StatusCode::kInvalidArgument);
  ranks[0]->close(Deadline::after(20s));
  CHECK(ranks[0]->send(1, to_bytes("x")).code() == StatusCode::kUnavailable);
}

// Three senders with two threads each send to one receiver: messages arrive exactly once, and in order per
// thread.
void many_senders(const MakeChannels& make) {
  constexpr std::uint32_t kMessages = 2000;
  constexpr std::uint32_t kThreads = 6;
  auto ranks = make(4);
  std::atomic<int> failed{0};
  std::atomic<bool> received{false};
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Channel& mine = *ranks[1 + thread / 2];
      for (std::uint32_t i = 0; i < kMessages; ++i) failed += mine.send(0, counted(thread, i)).ok() ? 0 : 1;
      if (thread % 2 != 0) return;
      while (!received) {
        if (!mine.receive()) mine.wait(Deadline::after(1s));
      }
    });
  }
  std::vector<std::uint32_t> next(kThreads, 0);
  bool in_order = true;
  for (std::uint32_t i = 0; i < kThreads * kMessages; ++i) {
    const Incoming incoming = receive_one(*ranks[0]);
    Counted value{};
    if (incoming.bytes.size() != sizeof value) break;
    std::memcpy(&value, incoming.bytes.data(), sizeof value);
    in_order = in_order && incoming.from == static_cast<int>(1 + value.sender / 2) &&
               value.number == next[value.sender]++;
  }
  received = true;
  for (int rank = 1; rank < 4; ++rank) ranks[static_cast<std::size_t>(rank)]->wake();
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(in_order);
  CHECK(next == std::vector<std::uint32_t>(kThreads, kMessages));
}

void everyone_talks_to_all(const MakeChannels& make, int size) {
  auto ranks = make(size);
  std::vector<std::string> wrong(ranks.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    threads.emplace_back([&, rank, i] { wrong[i] = talk_to_all(*ranks[i], rank, size); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>(ranks.size()));
}

void wake_ends_waits(const MakeChannels& make) {
  auto ranks = make(2);
  Channel& channel = *ranks[0];
  SECTION("a wake before the wait is kept") {
    channel.wake();
    const Deadline deadline = Deadline::after(kForgotten);
    channel.wait(deadline);
    CHECK_FALSE(deadline.passed());
  }
  SECTION("all waits in progress end, on any thread") {
    if (!channel.any_thread()) return;
    const Deadline deadline = Deadline::after(kForgotten);
    std::atomic<int> started{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        ++started;
        while (!stop) channel.wait(deadline);
      });
    }
    while (started < 4) std::this_thread::yield();
    stop = true;
    channel.wake();
    static_cast<void>(channel.receive());  // must not take the wake-up from threads that already wait
    // A thread that had not reached its wait needs another wake-up.
    std::thread late([&] {
      std::this_thread::sleep_for(500ms);
      channel.wake();
    });
    for (std::thread& thread : threads) thread.join();
    late.join();
    CHECK_FALSE(deadline.passed());
  }
  SECTION("a receive takes the wake, and the next wait sleeps until its deadline") {
    channel.wake();
    CHECK_FALSE(channel.receive().has_value());
    const Deadline deadline = Deadline::after(100ms);
    int waits = 0;
    for (; !deadline.passed(); ++waits) channel.wait(deadline);
    CHECK(waits <= 10);
  }
}

void message_ends_wait(const MakeChannels& make) {
  auto ranks = make(2);
  std::thread sender([&] {
    std::this_thread::sleep_for(50ms);
    static_cast<void>(ranks[0]->send(1, to_bytes("now")));
    static_cast<void>(receive_one(*ranks[0]));
  });
  CHECK(receive_one(*ranks[1]).bytes == to_bytes("now"));
  CHECK(ranks[1]->send(0, to_bytes("thanks")).ok());
  ranks[1]->wait(Deadline::after(0s));
  sender.join();
}

// Both ranks have exchanged a message, so each notices the other's loss.
void acquaint(Channel& a, int rank_a, Channel& b, int rank_b) {
  std::thread other([&] {
    static_cast<void>(receive_one(b));
    static_cast<void>(b.send(rank_a, to_bytes("hello")));
  });
  REQUIRE(a.send(rank_b, to_bytes("hello")).ok());
  CHECK(receive_one(a).bytes == to_bytes("hello"));
  other.join();
}

// One thread polls, sleeps and leaves without the message, as a caller does whose operation is over.
void what_a_poller_leaves_ends_a_wait(const MakeChannels& make) {
  auto ranks = make(2);
  acquaint(*ranks[0], 0, *ranks[1], 1);
  Channel& mine = *ranks[1];
  for (int round = 0; round < 20; ++round) {
    const Deadline deadline = Deadline::after(kForgotten);
    mine.set_polling(true);
    std::thread background([&] { mine.wait(deadline); });
    std::thread sender([&] { static_cast<void>(ranks[0]->send(1, to_bytes("now"))); });
    if (round % 2 == 0) mine.wait_polling(deadline, Duration{0});
    mine.set_polling(false);
    background.join();
    CHECK_FALSE(deadline.passed());
    CHECK(receive_one(mine).bytes == to_bytes("now"));
    sender.join();
  }
}

void loss_is_reported_once(const MakeChannels& make) {
  auto ranks = make(3);
  acquaint(*ranks[0], 0, *ranks[1], 1);
  acquaint(*ranks[0], 0, *ranks[2], 2);
  ranks[1].reset();  // says no goodbye

  const Incoming loss = receive_one(*ranks[0]);
  CHECK(loss.from == 1);
  CHECK(loss.bytes.empty());
  CHECK(loss.lost.code() == StatusCode::kAborted);
  CHECK_THAT(loss.lost.message(), Catch::Matchers::Contains("rank 1"));
  CHECK(ranks[0]->send(1, to_bytes("anyone?")).code() == StatusCode::kAborted);
  ranks[0]->wait(Deadline::after(50ms));
  CHECK_FALSE(ranks[0]->receive().has_value());

  acquaint(*ranks[0], 0, *ranks[2], 2);  // the others are not affected
}

void close_flushes(const MakeChannels& make) {
  auto ranks = make(2);
  acquaint(*ranks[0], 0, *ranks[1], 1);
  REQUIRE(ranks[1]->send(0, to_bytes("never read, must not harm")).ok());
  REQUIRE(ranks[0]->send(1, pattern(5 << 20, 1)).ok());
  REQUIRE(ranks[0]->send(1, to_bytes("last")).ok());
  std::thread closer([&] {
    ranks[0]->close(Deadline::after(20s));
    ranks[0].reset();
  });
  CHECK((receive_one(*ranks[1]).bytes == pattern(5 << 20, 1)));
  CHECK(receive_one(*ranks[1]).bytes == to_bytes("last"));
  closer.join();
}

// A rank that closes leaves in order: its messages arrive, its end is no loss, messages to it are dropped.
void goodbye_is_no_loss(const MakeChannels& make) {
  auto ranks = make(3);
  acquaint(*ranks[0], 0, *ranks[1], 1);
  acquaint(*ranks[0], 0, *ranks[2], 2);
  REQUIRE(ranks[1]->send(0, to_bytes("last words")).ok());
  std::thread closer([&] {
    ranks[1]->close(Deadline::after(20s));
    ranks[1].reset();
  });
  CHECK(receive_one(*ranks[0]).bytes == to_bytes("last words"));
  bool heard = false;
  for (int i = 0; i < 20 && !heard; ++i) {  // before the goodbye is read, and after it
    CHECK(ranks[0]->send(1, to_bytes("anyone?")).ok());
    ranks[0]->wait(Deadline::after(5ms));
    heard = ranks[0]->receive().has_value();
  }
  CHECK_FALSE(heard);
  closer.join();
  CHECK(ranks[0]->send(1, to_bytes("anyone?")).ok());
  acquaint(*ranks[0], 0, *ranks[2], 2);  // nothing arrived in between
}

}  // namespace

void check_channel(const MakeChannels& make) {
  SECTION("messages of all sizes arrive once and in order: 2 ranks") { everyone_talks_to_all(make, 2); }
  SECTION("messages of all sizes arrive once and in order: 4 ranks") { everyone_talks_to_all(make, 4); }
  SECTION("messages to oneself loop back") { to_oneself(make); }
  SECTION("a rank that does not exist is an error") { wrong_rank(make); }
  SECTION("a message that is too long, or comes after close, is an error") { too_long_or_closed(make); }
  SECTION("many senders") { many_senders(make); }
  SECTION("wake") { wake_ends_waits(make); }
  SECTION("a message ends a wait") { message_ends_wait(make); }
  SECTION("what a poller leaves ends a wait") { what_a_poller_leaves_ends_a_wait(make); }
  SECTION("a loss is reported once and is final") { loss_is_reported_once(make); }
  SECTION("close sends what is queued") { close_flushes(make); }
  SECTION("a goodbye is no loss") { goodbye_is_no_loss(make); }
}

}  // namespace roundelay::testing
