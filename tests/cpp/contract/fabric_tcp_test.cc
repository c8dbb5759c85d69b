// The fabric contract over TCP connections of the loopback. Faults: a member dies, never answers, is a
// stranger, or gives up in the middle of a message.
#include <algorithm>
#include <array>
#include <random>

#include "base/abort.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/contract/lone_broadcast.h"
#include "tests/cpp/contract/tcp_planes.h"
#include "tests/cpp/random_bytes.h"

namespace roundelay::contract {
namespace {

using collective::PendingCall;
using collective::TransferId;
using collective::tcp::kMostSmall;
using collective::tcp::TcpTransport;
using testing::random_bytes;

class TcpMedium final : public Medium {
 public:
  [[nodiscard]] int largest_group() const override { return std::min(largest_of_threads(), 4); }
  std::string run(int size, Select select, const Part& part) override {
    const TcpPlanes planes(size, size == 3 ? 4 : 1);
    return run_on_threads(planes.fabrics(select), part);
  }
};

TEST_CASE("tcp keeps the fabric contract", "[fabric][slow]") {
  for (const Test& test : fabric_contract()) {
    SECTION(test.name) {
      TcpMedium medium;
      for (int size = 1; size <= medium.largest_group(); ++size) {
        INFO(test.name << ", " << size << " members");
        CHECK(test.run(medium, size) == "");
      }
    }
  }
}

TEST_CASE("tcp carries out every algorithm", "[fabric]") {
  for (const Test& test : algorithm_contract()) {
    SECTION(test.name) {
      TcpMedium medium;
      INFO(test.name << ", 3 members");
      CHECK(test.run(medium, 3) == "");
    }
  }
}

// Tests the transfers of both ends in turn until all are over.
void finish(std::vector<std::pair<TcpTransport*, TransferId>> transfers) {
  const auto deadline = Deadline::after(std::chrono::seconds(60));
  while (!transfers.empty() && !deadline.passed()) {
    std::erase_if(transfers, [](const auto& one) {
      const auto over = one.first->test(one.second);
      REQUIRE(over.ok());
      return *over;
    });
  }
  REQUIRE(transfers.empty());
}

TEST_CASE("tcp: messages of one tag match in order, whichever side is first", "[fabric]") {
  const TcpPlanes planes(2, GENERATE(1U, 3U, 8U));
  const auto a = planes.transport(0), b = planes.transport(1);
  std::mt19937 random(7);
  const std::array<std::size_t, 8> sizes = {0,    1,   kMostSmall - 1, kMostSmall, kMostSmall + 1, 3 << 20,
                                            4096, 4097};
  for (int round = 0; round < 40; ++round) {
    struct Message {
      int tag;
      Bytes sent, received;
    };
    std::vector<Message> messages;
    for (int i = 0; i < 12; ++i) {
      Bytes sent = random_bytes(random, sizes[random() % sizes.size()]);
      Bytes received(sent.size());
      messages.push_back({static_cast<int>(random() % 3), std::move(sent), std::move(received)});
    }
    Bytes end(1), end_received(1);
    const TransferId last = *b->receive(0, end_received, 9);
    std::vector<std::pair<TcpTransport*, TransferId>> transfers;
    const auto send_all = [&] {
      for (const Message& one : messages) transfers.emplace_back(a.get(), *a->send(1, one.sent, one.tag));
    };
    const auto receive_all = [&] {  // by tags: the order between tags is free
      for (int tag = 2; tag >= 0; --tag) {
        for (Message& one : messages) {
          if (one.tag == tag) transfers.emplace_back(b.get(), *b->receive(0, one.received, tag));
        }
      }
    };
    if (round % 2 == 0) send_all();
    // What is small arrives before its receive is posted.
    for (int i = 0; round % 4 == 0 && i < 50; ++i) REQUIRE_FALSE(*b->test(last));
    receive_all();
    if (round % 2 == 1) send_all();
    transfers.emplace_back(a.get(), *a->send(1, end, 9));
    transfers.emplace_back(b.get(), last);
    finish(transfers);
    for (const Message& one : messages) REQUIRE(one.sent == one.received);
  }
}

TEST_CASE("tcp: what is under way arrives though the sender has left", "[fabric]") {
  const TcpPlanes planes(2, 4);
  auto a = planes.transport(0);
  const auto b = planes.transport(1);
  std::mt19937 random(7);
  const Bytes sent = random_bytes(random, 1 << 20);
  Bytes received(sent.size());
  finish({{a.get(), *a->send(1, sent, 0)}, {b.get(), *b->receive(0, received, 0)}});  // all have connections
  std::ranges::fill(received, std::byte{0});
  const TransferId receives = *b->receive(0, received, 0);
  finish({{a.get(), *a->send(1, sent, 0)}});
  a.reset();
  finish({{b.get(), receives}});
  CHECK(sent == received);
  const Result<bool> more = b->test(*b->receive(0, received, 0));
  CHECK(more.status().message() == "the connection to rank 0 failed: closed by the peer");
}

TEST_CASE("tcp: nobody sleeps while another test has ended a transfer", "[fabric]") {
  const TcpPlanes planes(2);
  const auto a = planes.transport(0), b = planes.transport(1);
  Bytes sent(1), first(1), second(1);
  const TransferId sends = *a->send(1, sent, 0);
  const TransferId ended = *b->receive(0, first, 0), waits = *b->receive(0, second, 1);
  REQUIRE_FALSE(*b->test(ended));
  finish({{a.get(), sends}});
  Backoff backoff(true);
  while (!backoff.next().sleeps()) {
  }
  const auto deadline = Deadline::after(std::chrono::seconds(30));
  do {
    REQUIRE_FALSE(*b->test(waits));
  } while (b->nap(backoff).sleeps() && !deadline.passed());
  CHECK(*b->test(ended));
  CHECK(b->nap(backoff).sleeps());
}

TEST_CASE("tcp: another size than the sender's is an error that names both", "[fabric]") {
  const TcpPlanes planes(2);
  const auto a = planes.transport(0), b = planes.transport(1);
  const std::array<std::size_t, 2> sizes =
      GENERATE(std::array<std::size_t, 2>{8, 16}, std::array<std::size_t, 2>{kMostSmall + 1, kMostSmall + 2});
  const Bytes sent(sizes[0]);
  Bytes received(sizes[1]);
  const TransferId sends = *a->send(1, sent, 0), receives = *b->receive(0, received, 0);
  Result<bool> over = false;
  while (over.ok() && !*over) {
    static_cast<void>(a->test(sends));
    over = b->test(receives);
  }
  CHECK(over.status().message() == "the connection to rank 0 failed: it sends " + std::to_string(sizes[0]) +
                                       " bytes where " + std::to_string(sizes[1]) + " are expected");
}

TEST_CASE("tcp: a dead member ends the call at once, by its rank", "[fabric]") {
  TcpPlanes planes(2);
  auto fabrics = planes.fabrics();
  // All members have connections then.
  REQUIRE(run_on_threads(fabrics, [](Fabric& fabric) { return run_call(fabric, patient<BarrierCall>()); }) ==
          "");
  std::vector<std::vector<std::byte>> memory(2, std::vector<std::byte>(64 << 20));
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (const auto& fabric : fabrics) {
    std::vector<std::byte>& data = memory[calls.size()];
    auto started = fabric->start(allreduce_over(data.data(), data.size()));
    REQUIRE(started.ok());
    calls.push_back(std::move(*started));
  }
  for (const auto& call : calls) REQUIRE_FALSE(*call->test());
  calls.pop_back();
  fabrics.pop_back();
  const Status ended = calls[0]->wait();
  CHECK(ended.message().starts_with("the connection to rank 1 failed: "));
  CHECK(fabrics[0]->poisoned());
}

TEST_CASE("tcp: after members gave up in the middle of a message, new groups work", "[fabric]") {
  const TcpPlanes planes(3);
  std::vector<std::vector<std::byte>> memory(2, std::vector<std::byte>(16 << 20));
  for (int generation = 0; generation < 5; ++generation) {
    auto fabrics = planes.fabrics();
    AbortToken abort;
    std::vector<std::unique_ptr<PendingCall>> calls;  // of members 0 and 1, which member 2 keeps from ending
    for (std::vector<std::byte>& one : memory) {
      AllreduceCall call = allreduce_over(one.data(), one.size());
      call.abort = &abort;
      auto started = fabrics[calls.size()]->start(call);
      REQUIRE(started.ok());
      calls.push_back(std::move(*started));
    }
    for (int i = 0; i < 40 * generation; ++i) {
      for (const auto& call : calls) REQUIRE_FALSE(*call->test());
    }
    abort.raise(Status::aborted("enough"));
    for (const auto& call : calls) CHECK(call->wait().message().find("enough") != std::string::npos);
  }
  const auto works = [](Fabric& fabric) { return run_call(fabric, patient<BarrierCall>()); };
  CHECK(run_on_threads(planes.fabrics(), works) == "");
}

TEST_CASE("tcp: strangers at the port are sent away, and the group works", "[fabric]") {
  const TcpPlanes planes(2);
  const auto address = connect::decode_tcp_address(planes.addresses[1]);
  REQUIRE(address.ok());
  std::mt19937 random(3);
  Bytes huge(8, std::byte{0xff}), garbage = random_bytes(random, 5000);
  for (const Bytes& first : {huge, garbage, Bytes(100)}) {
    const auto socket = platform::Socket::start_connect(address->endpoints(address->host).front());
    REQUIRE(socket.ok());
    const ConstByteSpan bytes(first);
    const auto deadline = Deadline::after(std::chrono::seconds(30));
    while (socket->write(std::span(&bytes, 1)).state == platform::Transfer::State::kWouldBlock) {
    }
    std::array<std::byte, 64> answer;
    platform::Transfer read;
    do {
      read = socket->read(ByteSpan(answer));
    } while (read.state == platform::Transfer::State::kWouldBlock && !deadline.passed());
    CHECK(read.state != platform::Transfer::State::kSome);
    CHECK(read.state != platform::Transfer::State::kWouldBlock);
  }
  const auto works = [](Fabric& fabric) { return run_call(fabric, patient<BarrierCall>()); };
  CHECK(run_on_threads(planes.fabrics(), works) == "");
}

TEST_CASE("tcp: a silent member is named at the deadline", "[fabric]") {
  const TcpPlanes planes(3);
  auto fabrics = planes.fabrics();
  std::vector<std::byte> data(64);
  const auto deadline = Deadline::after(std::chrono::milliseconds(100));
  const Status ended = start_broadcast(*fabrics[0], data, deadline)->wait();
  CHECK(ended.message().find("made no progress until its deadline, waiting for rank 2") != std::string::npos);
  CHECK(fabrics[0]->poisoned());
}

}  // namespace
}  // namespace roundelay::contract
