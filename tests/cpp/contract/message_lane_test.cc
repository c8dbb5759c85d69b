// A process group's lane of messages: who moves them when no caller waits.
#include "process_group/message_lane.h"

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/message_contract.h"
#include "tests/cpp/contract/message_transports.h"
#include "tests/cpp/in_time.h"

namespace roundelay::contract {
namespace {

using collective::TransferId;
using process_group::MessageLane;
using Kind = MessageLane::Message::Kind;

constexpr Duration kLimit = std::chrono::seconds(30);

// What a test does to a DialledTransport, and sees of it.
struct Line {
  std::atomic<bool> open{false};
  std::atomic<int> tests{0};
};

// A transport whose connections are still being made: what it sends starts when the line is open.
class DialledTransport final : public Transport {
 public:
  DialledTransport(std::unique_ptr<Transport> medium, std::shared_ptr<Line> line)
      : medium_(std::move(medium)), line_(std::move(line)) {}

  [[nodiscard]] int index() const override { return medium_->index(); }
  [[nodiscard]] int size() const override { return medium_->size(); }
  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override {
    transfers_.push_back({peer, data, tag, {}});
    return static_cast<TransferId>(transfers_.size() - 1);
  }
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override {
    const Result<TransferId> id = medium_->receive(peer, data, tag);
    if (!id.ok()) return id.status();
    transfers_.push_back({peer, data, tag, *id});
    return static_cast<TransferId>(transfers_.size() - 1);
  }
  Result<bool> test(TransferId id) override {
    ++line_->tests;
    Transfer& transfer = transfers_[id];
    if (!transfer.in_medium) {
      if (!line_->open) return false;
      const Result<TransferId> sent = medium_->send(transfer.peer, transfer.data, transfer.tag);
      if (!sent.ok()) return sent.status();
      transfer.in_medium = *sent;
    }
    return medium_->test(*transfer.in_medium);
  }

 private:
  struct Transfer {
    int peer;
    ConstByteSpan data;
    int tag;
    std::optional<TransferId> in_medium;  // nothing: it has not started
  };

  const std::unique_ptr<Transport> medium_;
  const std::shared_ptr<Line> line_;
  std::deque<Transfer> transfers_;
};

MessageLane::Session session_of(int rank, const std::atomic<bool>& failed) {
  return {.fault = [&failed] { return failed ? Status::aborted("a fault") : Status(); },
          .left_rank = [] { return -1; },
          .fail = [](const std::string&) {},
          .rank = rank};
}

// Posts a message, and waits until it is over.
void finish(MessageLane& lane, MessageLane::Message message) {
  std::atomic<bool> over = false;
  message.over = [&over](const Result<int>& peer) { over = peer.ok(); };
  REQUIRE(lane.post(std::move(message)).ok());
  lane.drive([&over] { return over.load(); }, Deadline::after(kLimit));
  REQUIRE(over);
}

// Member 0 has received a message over a line that is not open, and nobody calls its lane any more. The test
// steps member 1, which waits for the answer.
struct Received {
  Received() {
    sender.progress();
    finish(lane, {.kind = Kind::kReceive, .peer = 1, .memory = in, .tag = 1});
  }
  ~Received() { failed = true; }  // member 1 is not stepped any more: it does not leave

  const std::shared_ptr<Line> line = std::make_shared<Line>();
  const std::shared_ptr<collective::InprocHub> hub = std::make_shared<collective::InprocHub>(2);
  std::atomic<bool> failed = false;  // the session has
  Bytes out = Bytes(4), in = Bytes(4);
  PointToPoint sender{hub->transport(1), message_group(2, 1)};
  const MessageId sent = *sender.send(0, out, 1);
  MessageLane lane{std::make_unique<PointToPoint>(std::make_unique<DialledTransport>(hub->transport(0), line),
                                                  message_group(2, 0)),
                   session_of(0, failed)};
};

// Waits until nobody looks at transfers over the line.
void wait_for_rest(const Line& line) {
  const Deadline limit = Deadline::after(kLimit);
  for (int seen = -1; seen != line.tests; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    testing::expect_before(limit);
    seen = line.tests;
  }
}

TEST_CASE("the sender hears of a receive that was over before the answer could be sent", "[messages]") {
  Received received;
  received.line->open = true;
  CHECK(wait_for(received.sender, received.sent).status().message() == "");
  wait_for_rest(*received.line);
}

TEST_CASE("an answer that cannot be sent keeps no thread awake after a fault", "[messages]") {
  Received received;
  received.failed = true;
  wait_for_rest(*received.line);
}

// Lets this thread, and those that it makes, run on one core only.
class OneCore {
 public:
  OneCore() {
    REQUIRE(::sched_getaffinity(0, sizeof before_, &before_) == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  }
  ~OneCore() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

// On one core the thread, which waits for the caller's lock, runs before the caller goes on.
TEST_CASE("the thread goes on after callers that had nothing to wait for", "[messages]") {
  const OneCore core;
  Received received;  // its answer keeps the thread at work
  const auto done = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  };
  for (int i = 0; i < 100; ++i) {
    received.lane.drive(done, Deadline::never());
    const Deadline limit = Deadline::after(kLimit);
    for (const int seen = received.line->tests; received.line->tests == seen; std::this_thread::yield()) {
      testing::expect_before(limit);
    }
  }
}

TEST_CASE("nothing is unsent to a peer that is lost, nor after the end", "[messages]") {
  const auto hub = std::make_shared<collective::InprocHub>(2);
  PointToPoint member(std::make_unique<DialledTransport>(hub->transport(0), std::make_shared<Line>()),
                      message_group(2, 0));
  Bytes memory(4);
  CHECK_FALSE(member.has_unsent());
  REQUIRE(member.send(1, memory, 1).ok());
  CHECK(member.has_unsent());
  member.progress();
  CHECK(member.has_unsent());
  SECTION("lost") {
    hub->fail(1);
    member.progress();
  }
  SECTION("the end") { member.give_up(Status::aborted("the end")); }
  CHECK_FALSE(member.has_unsent());
}

// What a NappingTransport tells: whether a thread is in a long nap, or about to begin it, and how often one
// was to end.
struct Naps {
  std::atomic<bool> long_one = false;
  std::atomic<int> rings = 0;
};

class NappingTransport final : public Transport {
 public:
  NappingTransport(std::unique_ptr<Transport> medium, Naps& naps) : medium_(std::move(medium)), naps_(naps) {}

  [[nodiscard]] int index() const override { return medium_->index(); }
  [[nodiscard]] int size() const override { return medium_->size(); }
  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override {
    return medium_->send(peer, data, tag);
  }
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override {
    return medium_->receive(peer, data, tag);
  }
  Result<bool> test(TransferId id) override {
    naps_.long_one = false;
    return medium_->test(id);
  }
  [[nodiscard]] Nap nap(Backoff& backoff) override {
    const Nap nap = medium_->nap(backoff);
    naps_.long_one = nap.length() >= std::chrono::milliseconds(50);
    return nap;
  }
  void wake() override {
    ++naps_.rings;
    medium_->wake();
  }

 private:
  const std::unique_ptr<Transport> medium_;
  Naps& naps_;
};

// Two members with lanes, each with a receive that waits for ever.
struct Waiting {
  explicit Waiting(Transports transports) {
    for (int rank = 0; rank < 2; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      auto transport = std::make_unique<NappingTransport>(std::move(transports[at]), naps[at]);
      lanes.push_back(std::make_unique<MessageLane>(
          std::make_unique<PointToPoint>(std::move(transport), message_group(2, rank)),
          session_of(rank, failed)));
      MessageLane::Message open{.kind = Kind::kReceive, .peer = 1 - rank, .memory = never, .tag = 9};
      open.over = [](const Result<int>&) {};
      REQUIRE(lanes.back()->post(std::move(open)).ok());
    }
  }
  ~Waiting() { failed = true; }  // no goodbyes
  void wait_for_naps() const {
    const Deadline limit = Deadline::after(kLimit);
    while (!naps[0].long_one || !naps[1].long_one) {
      testing::expect_before(limit);
      std::this_thread::yield();
    }
  }

  std::atomic<bool> failed = false;
  std::array<Naps, 2> naps{};
  Bytes never = Bytes(4);
  std::vector<std::unique_ptr<MessageLane>> lanes;
};

// Each message is sent while both lanes' threads nap.
void check_that_messages_end_naps(Waiting& members) {
  for (int i = 0; i < 20; ++i) {
    const int from = i % 2, to = 1 - from;
    Bytes out(4), in(4);
    members.wait_for_naps();
    const int before[] = {members.naps[0].rings, members.naps[1].rings};
    std::atomic<bool> sent = false;
    MessageLane::Message send{.kind = Kind::kSend, .peer = to, .memory = out, .tag = 1};
    send.over = [&sent](const Result<int>&) { sent = true; };
    REQUIRE(members.lanes[static_cast<std::size_t>(from)]->post(std::move(send)).ok());
    finish(*members.lanes[static_cast<std::size_t>(to)],
           {.kind = Kind::kReceive, .peer = from, .memory = in, .tag = 1});
    members.lanes[static_cast<std::size_t>(from)]->drive([&sent] { return sent.load(); },
                                                         Deadline::after(kLimit));
    REQUIRE(sent);
    CHECK(members.naps[0].rings > before[0]);
    CHECK(members.naps[1].rings > before[1]);
  }
}

TEST_CASE("a message does not wait for the naps of a thread that waits for another one", "[messages]") {
  SECTION("over shared memory") {
    Waiting members(shm_transports(2));
    check_that_messages_end_naps(members);
  }
  SECTION("over tcp") {
    Waiting members(tcp_transports(2));
    check_that_messages_end_naps(members);
  }
}

}  // namespace
}  // namespace roundelay::contract
