// The contract of point to point with threads over each transport, and what only a hub can show: faults, and
// messages larger than this machine's memory.
#include <sys/mman.h>

#include <utility>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/contract/message_contract.h"
#include "tests/cpp/contract/message_transports.h"

namespace roundelay::contract {
namespace {

using collective::InprocHub;
using collective::PeerLink;

class ThreadMedium final : public MessageMedium {
 public:
  explicit ThreadMedium(std::function<Transports(int size)> make) : make_(std::move(make)) {}
  [[nodiscard]] int largest_group() const override { return largest_of_threads(); }
  std::string run(int size, const MemberPart& part) override {
    return run_members_on_threads(make_(size), part);
  }

 private:
  const std::function<Transports(int size)> make_;
};

void check_contract(MessageMedium& medium) {
  for (const MessageTest& test : message_contract()) {
    for (const int size : {2, 3, 8}) {
      if (size > medium.largest_group()) continue;
      INFO(test.name << ", " << size << " members");
      CHECK(medium.run(size, test.part) == "");
    }
  }
}

TEST_CASE("messages keep their contract over a hub", "[messages]") {
  ThreadMedium medium([](int size) { return hub_transports(size); });
  check_contract(medium);
}

TEST_CASE("messages keep their contract over tcp", "[messages]") {
  ThreadMedium medium(tcp_transports);
  check_contract(medium);
}

TEST_CASE("messages keep their contract over shared memory", "[messages]") {
  ThreadMedium medium(shm_transports);
  check_contract(medium);
}

TEST_CASE("messages keep their contract over shared memory and a hub between nodes", "[messages]") {
  ThreadMedium medium(split_transports);
  check_contract(medium);
}

TEST_CASE("a group of one has nobody to talk to", "[messages]") {
  const auto nothing = [](Member& member) {
    Bytes memory(1);
    return member.messages.receive_any(memory, 0).ok() ? std::string("a receive from any waits") : "";
  };
  CHECK(run_members_on_threads(hub_transports(1), nothing) == "");
}

// Members over a hub, which one thread steps.
struct HubWorld {
  explicit HubWorld(int size) : hub(std::make_shared<InprocHub>(size)) {
    for (int i = 0; i < size; ++i)
      members.push_back(std::make_unique<PointToPoint>(hub->transport(i), message_group(size, i)));
  }
  void step(int times = 20) {
    for (int i = 0; i < times; ++i)
      for (const auto& member : members) member->progress();
  }

  std::shared_ptr<InprocHub> hub;
  std::vector<std::unique_ptr<PointToPoint>> members;
};

// Messages of member 0 in all states, which none of them leaves by itself.
struct InFlight {
  explicit InFlight(HubWorld& world) : memory(100), large(100'000) {
    PointToPoint& first = *world.members[0];
    ids.push_back(*first.send(1, memory, 1));  // the peer has it, and no receive
    ids.push_back(*first.send(2, large, 1));   // offered
    ids.push_back(*first.receive(1, memory, 2));
    ids.push_back(*first.receive_any(memory, 3));
    REQUIRE(world.members[2]->send(0, large_of_peer, 4).ok());
    world.step();
    ids.push_back(*first.receive(2, large_in, 4));  // matched, and the peer is not stepped any more
    first.progress();
    ids.push_back(*first.send(1, memory, 5));  // not yet offered
  }

  Bytes memory, large, large_of_peer = Bytes(200'000), large_in = Bytes(200'000);
  std::vector<MessageId> ids;
};

void expect_cause(PointToPoint& messages, const std::vector<MessageId>& ids, const std::string& cause) {
  Bytes memory(1);
  for (const MessageId id : ids) {
    const Status error = messages.test(id).status();
    CHECK(error.code() == StatusCode::kAborted);
    CHECK(error.message() == cause);
  }
  CHECK(messages.send(1, memory, 1).status().message() == cause);
  CHECK(messages.receive_any(memory, 1).status().message() == cause);
  CHECK(messages.leave().status().message() == cause);
}

TEST_CASE("when a peer is lost, its messages fail with the cause, and the others go on", "[messages]") {
  const std::string cause = "the connection to member 2 was lost";
  HubWorld world(3);
  const InFlight in_flight(world);
  PointToPoint& first = *world.members[0];
  Bytes memory(100), unasked(100'000);
  REQUIRE(world.members[2]->send(0, unasked, 9).ok());  // large: only its offer comes
  const MessageId unmatched = *first.receive(2, memory, 8);
  world.members[2]->progress();
  first.progress();
  world.hub->fail(2);
  first.progress();
  CHECK(first.test(in_flight.ids[1]).status().message() == cause);  // offered
  CHECK(first.test(unmatched).status().message() == cause);
  CHECK(first.send(2, memory, 1).status().message() == cause);
  CHECK(first.receive(2, memory, 1).status().message() == cause);
  const Result<MessageId> late = first.receive_any(unasked, 9);
  REQUIRE(late.ok());
  CHECK(first.test(*late).status().message() == cause);

  Bytes got(100);
  const MessageId answer = *world.members[1]->receive(0, got, 1);
  REQUIRE(world.members[1]->send(0, memory, 2).ok());
  REQUIRE(world.members[1]->send(0, memory, 3).ok());
  for (int i = 0; i < 20; ++i) {
    first.progress();
    world.members[1]->progress();
  }
  CHECK(*world.members[1]->look(answer) == 0);
  CHECK(*first.look(in_flight.ids[2]) == 1);
  CHECK(*first.look(in_flight.ids[3]) == 1);  // from any
}

TEST_CASE("a receive from any fails when every peer is lost", "[messages]") {
  HubWorld world(3);
  Bytes memory(1);
  const MessageId any = *world.members[0]->receive_any(memory, 1);
  for (const int peer : {1, 2}) {
    CHECK_FALSE(world.members[0]->look(any)->has_value());
    world.hub->fail(peer);
    world.members[0]->progress();
  }
  CHECK(world.members[0]->look(any).status().code() == StatusCode::kAborted);
}

TEST_CASE("a member that gives up fails every message with its cause", "[messages]") {
  HubWorld world(3);
  const InFlight in_flight(world);
  for (const MessageId id : in_flight.ids) CHECK_FALSE(world.members[0]->look(id)->has_value());
  world.members[0]->give_up(Status::aborted("the first cause"));
  world.hub->fail(2);
  expect_cause(*world.members[0], in_flight.ids, "the first cause");
}

TEST_CASE("a member with open messages cannot leave", "[messages]") {
  HubWorld world(2);
  Bytes memory(1);
  const MessageId id = *world.members[0]->receive(1, memory, 1);
  CHECK(world.members[0]->leave().status().message() == "this rank cannot leave: 1 messages are not over");
  REQUIRE(world.members[1]->send(0, memory, 1).ok());
  world.step();
  CHECK(*world.members[0]->look(id) == 1);
  CHECK_FALSE(*world.members[0]->leave());
  CHECK(world.members[0]->send(1, memory, 1).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("messages that wait for a peer that leaves fail, and so do receives from any", "[messages]") {
  HubWorld world(2);
  Bytes memory(1), large(10'000);
  PointToPoint& first = *world.members[0];
  const MessageId ids[] = {*first.send(1, memory, 1), *first.send(1, large, 1), *first.receive(1, memory, 1),
                           *first.receive_any(memory, 2)};
  world.step();
  CHECK_FALSE(*world.members[1]->leave());
  world.step();
  for (const MessageId id : ids) CHECK(first.look(id).status().message() == "rank 11 has left");
  CHECK(first.receive_any(memory, 2).status().message() == "every other rank has left");
  CHECK(*first.leave());
  CHECK(*world.members[1]->leave());
}

TEST_CASE("a member that has said goodbye may go, and the others go on", "[messages]") {
  Transports transports = shm_transports(3);
  std::vector<std::unique_ptr<PointToPoint>> members;
  for (int i = 0; i < 3; ++i) {
    members.push_back(std::make_unique<PointToPoint>(std::move(transports[static_cast<std::size_t>(i)]),
                                                     message_group(3, i)));
  }
  for (int i = 0; i < 5; ++i) {
    for (const auto& member : members) member->progress();
    CHECK_FALSE(*members[0]->leave());
  }
  members[0].reset();
  Bytes out(100'000, std::byte{1}), in(out.size());
  const MessageId sent = *members[1]->send(2, out, 1), received = *members[2]->receive(1, in, 1);
  for (std::size_t i = 0; i < 100; ++i) members[1 + i % 2]->progress();
  CHECK(*members[1]->look(sent) == 2);
  CHECK(*members[2]->look(received) == 1);
  CHECK(in == out);
  CHECK_FALSE(*members[1]->leave());
  for (int i = 0; i < 5; ++i) REQUIRE(members[2]->leave().ok());
  CHECK(*members[1]->leave());
  CHECK(*members[2]->leave());
}

TEST_CASE("a message says whom it waits for", "[messages]") {
  HubWorld world(3);
  Bytes memory(1000);
  PointToPoint& first = *world.members[0];
  CHECK(first.waiting_for(*first.send(2, memory, 1)) == 2);
  CHECK(first.waiting_for(*first.receive(1, memory, 1)) == 1);
  const MessageId any = *first.receive_any(memory, 2);
  CHECK(first.waiting_for(any) == collective::kAnyPeer);
  REQUIRE(world.members[2]->send(0, memory, 2).ok());
  world.members[2]->progress();
  first.progress();
  CHECK_FALSE(first.look(any)->has_value());
  CHECK(first.waiting_for(any) == 2);
}

// Counts the receives of data.
class Counting final : public Transport {
 public:
  explicit Counting(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] int index() const override { return inner_->index(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  Result<collective::TransferId> send(int peer, ConstByteSpan data, int tag) override {
    return inner_->send(peer, data, tag);
  }
  Result<collective::TransferId> receive(int peer, ByteSpan data, int tag) override {
    posted += data.size() == collective::kControlBytes ? 0U : 1U;
    return inner_->receive(peer, data, tag);
  }
  Result<bool> test(collective::TransferId id) override { return inner_->test(id); }
  std::size_t posted = 0;

 private:
  std::unique_ptr<Transport> inner_;
};

TEST_CASE("few messages move at once, whatever users have posted", "[messages]") {
  constexpr int kMany = 50;
  const auto hub = std::make_shared<InprocHub>(2);
  auto counting = std::make_unique<Counting>(hub->transport(0));
  const Counting& counted = *counting;
  PointToPoint receiver(std::move(counting), message_group(2, 0));
  PointToPoint sender(hub->transport(1), message_group(2, 1));
  const auto step = [&] {
    for (int i = 0; i < 4 * kMany; ++i) {
      receiver.progress();
      sender.progress();
    }
  };
  Bytes out(1000), in(1000);
  std::vector<MessageId> sent, received;
  for (int i = 0; i < kMany; ++i) sent.push_back(*sender.send(0, out, 1));
  step();
  for (int i = 0; i < kMany; ++i) received.push_back(*receiver.receive(1, in, 1));
  receiver.progress();
  CHECK(counted.posted == PeerLink::kMostMoving);
  step();
  for (const MessageId id : sent) CHECK(sender.look(id)->has_value());
  for (const MessageId id : received) CHECK(receiver.look(id)->has_value());
}

// Address space of which only what is touched costs memory.
struct Reserved {
  explicit Reserved(std::size_t size)
      : bytes(size),
        data(static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (data == MAP_FAILED) throw std::bad_alloc();
  }
  ~Reserved() { ::munmap(data, bytes); }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  [[nodiscard]] ByteSpan span() const { return {data, bytes}; }

  std::size_t bytes;
  std::byte* data;
};

TEST_CASE("sizes have 64 bits", "[messages]") {
  constexpr std::size_t kGiB = std::size_t{1} << 30U;
  HubWorld world(2);
  const Reserved large(5 * kGiB), small(kGiB);  // equal in the lower 32 bits
  const MessageId sent = *world.members[0]->send(1, large.span(), 6);
  const MessageId received = *world.members[1]->receive(0, small.span(), 6);
  world.step();
  const std::string text =
      "rank 10 sends 5368709120 bytes with tag 6 to rank 11, which receives 1073741824 bytes with that tag";
  CHECK(world.members[0]->look(sent).status().message() == text);
  CHECK(world.members[1]->look(received).status().message() == text);
}

}  // namespace
}  // namespace roundelay::contract
