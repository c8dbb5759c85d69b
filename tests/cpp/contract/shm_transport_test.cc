// The transport within a node: what its header says of rings, notices, sleeps and members that go.
#include "collective/shm/shm_transport.h"

#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/message_contract.h"
#include "tests/cpp/contract/message_transports.h"
#include "tests/cpp/in_time.h"
#include "tests/cpp/threads.h"

namespace roundelay::contract {
namespace {

using collective::ShmTransport;
using collective::TransferId;
using collective::shm::PairRings;

// Tests the transfers in turn until all are over.
void finish(std::vector<std::pair<Transport*, TransferId>> open) {
  for (int turns = 0; !open.empty(); ++turns) {
    REQUIRE(turns < 1'000'000);
    const auto at = open.begin() + turns % static_cast<std::ptrdiff_t>(open.size());
    const Result<bool> done = at->first->test(at->second);
    REQUIRE(done.ok());
    if (*done) open.erase(at);
  }
}

TEST_CASE("shm transport: messages of all sizes, many times around the ring", "[messages]") {
  const auto members = shm_transports(2);
  for (const std::size_t around :
       {std::size_t{0}, std::size_t{64} << 10U, PairRings::kRingBytes, 5 * PairRings::kRingBytes}) {
    for (std::size_t bytes = around < 17 ? 0 : around - 17; bytes <= around + 1; ++bytes) {
      const Bytes out = stamped(bytes, 0, 1, 2, static_cast<unsigned>(bytes));
      Bytes in(bytes);
      finish({{members[0].get(), *members[0]->send(1, out, 2)},
              {members[1].get(), *members[1]->receive(0, in, 2)}});
      REQUIRE(in == out);
    }
  }
}

TEST_CASE("shm transport: a message without a receive blocks no other tag", "[messages]") {
  const auto members = shm_transports(2);
  Transport &first = *members[0], &second = *members[1];
  const Bytes large = stamped(3 * PairRings::kRingBytes, 0, 1, 1, 0), small = stamped(10, 0, 1, 2, 0);
  Bytes large_in(large.size()), small_in(small.size());
  const TransferId early = *first.send(1, large, 1);
  finish({{&first, *first.send(1, small, 2)}, {&second, *second.receive(0, small_in, 2)}});
  CHECK(small_in == small);
  CHECK_FALSE(*first.test(early));
  finish({{&first, early}, {&second, *second.receive(0, large_in, 1)}});
  CHECK(large_in == large);
}

TEST_CASE("shm transport: more receives may be posted than there is room for notices", "[messages]") {
  constexpr unsigned kMany = 1000;
  const auto members = shm_transports(2);
  std::vector<Bytes> out, in(kMany, Bytes(8));
  std::vector<std::pair<Transport*, TransferId>> open;
  for (unsigned i = 0; i < kMany; ++i) out.push_back(stamped(8, 0, 1, i % 7, i));
  for (unsigned i = 0; i < kMany; ++i)
    open.emplace_back(members[1].get(), *members[1]->receive(0, in[i], static_cast<int>(i % 7)));
  for (unsigned i = 0; i < kMany; ++i)
    open.emplace_back(members[0].get(), *members[0]->send(1, out[i], static_cast<int>(i % 7)));
  finish(std::move(open));
  CHECK(in == out);
}

TEST_CASE("shm transport: memory is allocated only for pairs that talk", "[messages]") {
  const auto memory = pair_rings_memory(3);
  std::vector<ByteRange> allocated;
  Status refusal;
  const auto allocate = [&](ByteRange part) {
    allocated.push_back(part);
    return refusal;
  };
  Transports members;
  for (int i = 0; i < 3; ++i)
    members.push_back(std::make_unique<ShmTransport>(memory, message_group(3, i), allocate));
  Bytes out(8), in(8);
  for (int i = 0; i < 2; ++i)
    finish({{members[0].get(), *members[0]->send(2, out, 1)},
            {members[2].get(), *members[2]->receive(0, in, 1)}});
  REQUIRE(allocated.size() == 1);
  CHECK(allocated[0].offset == PairRings::ring_of(0, 2, 3).offset);
  CHECK(allocated[0].bytes == 4096);
  Bytes large(2 * PairRings::kRingBytes), large_in(large.size());
  finish({{members[0].get(), *members[0]->send(2, large, 1)},
          {members[2].get(), *members[2]->receive(0, large_in, 1)}});
  std::size_t end = PairRings::ring_of(0, 2, 3).offset;
  for (const ByteRange part : allocated) {
    CHECK(part.offset == end);
    end += part.bytes;
  }
  CHECK(end == PairRings::ring_of(0, 2, 3).offset + PairRings::kRingBytes);

  refusal = Status::unavailable("no space left");
  REQUIRE(members[1]->receive(0, in, 1).ok());
  const TransferId refused = *members[0]->send(1, out, 1);
  CHECK(members[0]->test(refused).status().message() == "shared memory with rank 11: no space left");
}

TEST_CASE("shm transport: a disagreement on a size is an error", "[messages]") {
  const auto members = shm_transports(2);
  Bytes out(8), in(9);
  const TransferId received = *members[1]->receive(0, in, 1);
  finish({{members[0].get(), *members[0]->send(1, out, 1)}});
  CHECK(members[1]->test(received).status().code() == StatusCode::kInternal);
}

TEST_CASE("shm transport: a member that goes is seen, after all that it has sent", "[messages]") {
  auto members = shm_transports(3);
  Bytes out(100), in(100), more(1), large(2 * PairRings::kRingBytes);
  const TransferId all = *members[0]->receive(1, in, 1), none = *members[0]->receive(1, more, 2);
  const TransferId half = *members[0]->send(1, large, 3);
  REQUIRE(members[1]->receive(0, large, 3).ok());
  REQUIRE_FALSE(*members[0]->test(half));
  finish({{members[1].get(), *members[1]->send(0, out, 1)}});
  members[1].reset();
  finish({{members[0].get(), all}});
  const std::string text = "shared memory with rank 11: it has closed its end";
  for (const TransferId id : {none, half}) {
    CHECK_FALSE(members[0]->test(id).ok());
    CHECK(members[0]->test(id).status().message() == text);
    CHECK(members[0]->test(id).status().code() == StatusCode::kAborted);
  }
  finish(
      {{members[0].get(), *members[0]->send(2, out, 1)}, {members[2].get(), *members[2]->receive(0, in, 1)}});
}

// A member that sleeps in a nap until `act` ends it. A nap that nobody ends lasts 100 ms, so that many in a
// row take long.
template <typename Wait, typename Act>
void expect_wakeups(const Wait& wait, const Act& act) {
  constexpr int kRounds = 20;
  const TimePoint begin = steady_now();
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<pid_t> sleeper{0};
    std::thread thread([&] {
      sleeper = ::gettid();
      wait();
    });
    while (sleeper == 0) std::this_thread::yield();
    testing::wait_until_asleep(sleeper);
    act();
    thread.join();
  }
  testing::expect_within(kRounds * std::chrono::milliseconds(80), steady_now() - begin);
}

// The backoff of a member that has found nothing for long: the next nap is a sleep.
Backoff long_idle() {
  Backoff backoff(true);
  while (!backoff.next().sleeps()) continue;
  return backoff;
}

void nap_until_done(Transport& transport, TransferId id) {
  while (true) {
    const Result<bool> done = transport.test(id);
    if (!done.ok() || *done) return;
    Backoff backoff = long_idle();
    transport.nap(backoff).wait();
  }
}

TEST_CASE("shm transport: a peer ends sleeps, by bytes, by receives and by room", "[messages]") {
  auto members = shm_transports(2);
  Transport &first = *members[0], &second = *members[1];
  const std::size_t sizes[] = {8, 4 * PairRings::kRingBytes};
  for (const std::size_t bytes : sizes) {
    Bytes out(bytes), in(bytes);
    TransferId id = 0;
    expect_wakeups(
        [&] {
          id = *first.receive(1, in, 1);
          nap_until_done(first, id);
        },
        [&] { nap_until_done(second, *second.send(0, out, 1)); });
    expect_wakeups([&] { nap_until_done(first, *first.send(1, out, 2)); },
                   [&] { nap_until_done(second, *second.receive(0, in, 2)); });
  }
}

TEST_CASE("shm transport: who reads makes the doorbell of a writer without room ring", "[messages]") {
  const auto memory = pair_rings_memory(2);
  const auto allocate = [](ByteRange) { return Status(); };
  ShmTransport first(memory, message_group(2, 0), allocate), second(memory, message_group(2, 1), allocate);
  const FutexWord& rings = PairRings(memory.get(), 2).doorbell(0).rings;
  Bytes out(3 * PairRings::kRingBytes), in(out.size());
  const TransferId received = *second.receive(0, in, 1), sent = *first.send(1, out, 1);
  REQUIRE_FALSE(*first.test(sent));  // the ring is full
  Nap nap;
  while (!nap.sleeps()) {
    Backoff backoff = long_idle();
    nap = first.nap(backoff);
  }
  const std::uint32_t before = rings.load();
  REQUIRE_FALSE(*second.test(received));
  CHECK(rings.load() == before + 1);
  REQUIRE_FALSE(*second.test(received));  // nobody sleeps
  CHECK(rings.load() == before + 1);
}

TEST_CASE("shm transport: sleeps end when the owner asks, and when the peer goes", "[messages]") {
  auto members = shm_transports(2);
  Bytes in(8);
  auto& first = dynamic_cast<ShmTransport&>(*members[0]);
  const TransferId id = *first.receive(1, in, 1);
  expect_wakeups(
      [&] {
        REQUIRE_FALSE(*first.test(id));
        Nap nap;
        while (!nap.sleeps()) {
          Backoff backoff = long_idle();
          nap = first.nap(backoff);
        }
        nap.wait();
      },
      [&] { first.wake(); });
  std::thread thread([&] { nap_until_done(first, id); });
  members[1].reset();
  thread.join();
  CHECK_FALSE(first.test(id).ok());
}

TEST_CASE("shm transport: nobody sleeps long while a transfer is over that nobody has tested", "[messages]") {
  const auto members = shm_transports(2);
  Bytes out(8), in(8), more(8);
  const TransferId one = *members[0]->receive(1, in, 1), other = *members[0]->receive(1, more, 2);
  finish({{members[1].get(), *members[1]->send(0, out, 1)}});
  REQUIRE_FALSE(*members[0]->test(other));  // moves the bytes of the other transfer
  Backoff backoff = long_idle();
  static_cast<void>(members[0]->nap(backoff));  // bytes have moved: begins again
  backoff = long_idle();
  CHECK(members[0]->nap(backoff).length() <= Backoff::kLongest);
  CHECK(*members[0]->test(one));
  backoff = long_idle();
  CHECK(members[0]->nap(backoff).length() > Backoff::kLongest);
}

}  // namespace
}  // namespace roundelay::contract
