// Members whose calls differ, or of which one has left: whoever would use wrong bytes gets an error instead.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/contract/shm_world.h"
#include "tests/cpp/contract/tcp_planes.h"
#include "tests/cpp/socket_pair.h"

namespace roundelay::contract {
namespace {

using collective::AlltoallCall;
using collective::CallMark;

using Fabrics = std::vector<std::unique_ptr<Fabric>>;

// A member's calls and their buffers.
class Caller {
 public:
  explicit Caller(Fabric& fabric, Duration limit = std::chrono::seconds(20))
      : fabric_(fabric), limit_(limit) {}

  Status allreduce(std::size_t count) {
    values_.assign(count, 1);
    AllreduceCall call;
    call.buffer = {reinterpret_cast<std::byte*>(values_.data()), 0, 4 * count};
    return make(call, {.bytes = 4 * count, .operation = Operation::kAllreduce});
  }
  Status broadcast(std::size_t count, int root) {
    values_.assign(count, static_cast<float>(fabric_.group().index));
    BroadcastCall call;
    call.buffer = std::as_writable_bytes(std::span(values_));
    call.root = root;
    return make(call, {.bytes = 4 * count, .detail = root, .operation = Operation::kBroadcast});
  }
  Status alltoall(std::vector<std::size_t> send, std::vector<std::size_t> receive) {
    AlltoallCall call;
    std::size_t sends = 0, receives = 0;
    for (const std::size_t bytes : send) sends += bytes;
    for (const std::size_t bytes : receive) receives += bytes;
    given_.assign(sends, std::byte{3});
    taken_.assign(receives, std::byte{9});
    call.input = given_.data();
    call.output = taken_;
    call.send_bytes = std::move(send);
    call.receive_bytes = std::move(receive);
    return make(call, {.operation = Operation::kAlltoall});
  }
  [[nodiscard]] float first() const { return values_.front(); }
  [[nodiscard]] bool all_taken() const {
    return std::ranges::all_of(taken_, [](std::byte one) { return one == std::byte{3}; });
  }

 private:
  template <class Kind>
  Status make(Kind call, CallMark mark) {
    call.mark = mark;
    call.mark.sequence = ++calls_;
    call.deadline = Deadline::after(limit_);
    auto pending = fabric_.start(call);
    return pending.ok() ? (*pending)->wait() : pending.status();
  }

  Fabric& fabric_;
  const Duration limit_;
  std::uint64_t calls_ = 0;
  std::vector<float> values_;
  std::vector<std::byte> given_, taken_;
};

Fabrics fabrics_of(const std::string& medium, int size) {
  if (medium == "shm") return shm_fabrics(size, 0);
  return TcpPlanes(size).fabrics();
}

// Runs each member's part in a thread of its own.
void on_all(Fabrics& fabrics, const Part& part) { CHECK(run_on_threads(fabrics, part) == ""); }

TEST_CASE("calls with equal marks go on", "[marks]") {
  Fabrics fabrics = fabrics_of(GENERATE("shm", "tcp"), 3);
  on_all(fabrics, [](Fabric& fabric) -> std::string {
    Caller caller(fabric);
    for (const std::size_t count : {1, 100, 50'000, 7}) {
      if (Status status = caller.allreduce(count); !status.ok()) return status.message();
      if (caller.first() != 3) return "a wrong sum";
      if (Status status = caller.broadcast(count, 2); !status.ok()) return status.message();
      if (caller.first() != 2) return "wrong bytes";
      const std::size_t mine = count + static_cast<std::size_t>(fabric.group().index);
      if (Status status = caller.alltoall({mine, mine, mine}, {count, count + 1, count + 2}); !status.ok())
        return status.message();
      if (!caller.all_taken()) return "parts are missing";
    }
    return "";
  });
}

TEST_CASE("members in different calls get an error that names both", "[marks]") {
  const std::string medium = GENERATE("shm", "tcp");
  Fabrics fabrics = fabrics_of(medium, 2);
  const std::size_t count = GENERATE(3, 40'000);
  const int kind = GENERATE(0, 1);
  std::atomic<int> seen{0};
  on_all(fabrics, [&](Fabric& fabric) -> std::string {
    Caller caller(fabric, std::chrono::seconds(3));
    const bool differs = fabric.group().index == 1;
    if (Status status = caller.allreduce(5); !status.ok()) return status.message();
    const Status status = !differs    ? caller.allreduce(count)
                          : kind == 0 ? caller.allreduce(count + 1)
                                      : caller.broadcast(count, 0);
    if (status.code() != StatusCode::kMismatch) return "";
    ++seen;
    const std::string other =
        "rank " + std::to_string(1 - fabric.group().index) + " has called something else";
    return status.message().starts_with(other) ? "" : status.message();
  });
  CHECK(seen > 0);
}

// It would tell rank 0 of a lost connection, and rank 0 might take that for the cause.
TEST_CASE("over tcp a third member sees no connection end when two calls differ", "[marks]") {
  Fabrics fabrics = fabrics_of("tcp", 3);
  std::atomic<int> seen{0};
  on_all(fabrics, [&](Fabric& fabric) -> std::string {
    Caller caller(fabric, std::chrono::seconds(1));
    if (Status status = caller.allreduce(5); !status.ok()) return status.message();  // all are connected
    Status status;
    if (fabric.group().index == 2) {  // its own parts are right; then it waits until its time is over
      status = caller.alltoall({8, 8, 0}, {8, 8, 0});
      if (status.ok()) status = caller.broadcast(5, 0);
      return status.message().find("closed") == std::string::npos ? "" : status.message();
    }
    const bool differs = fabric.group().index == 0;  // it expects less than the other one sends
    status = differs ? caller.alltoall({0, 8, 8}, {0, 4, 8}) : caller.alltoall({8, 0, 8}, {8, 0, 8});
    if (status.code() == StatusCode::kMismatch) ++seen;
    return "";
  });
  CHECK(seen > 0);
}

TEST_CASE("a connection that comes after two calls have differed stays open", "[marks]") {
  const TcpPlanes planes(2);
  auto ends = collective::tcp::StreamEnds::create().value();
  const auto transport =
      collective::tcp::TcpTransport::create(planes.planes[0], planes.group(0), 0, ends).value();
  std::array<std::byte, 8> bytes{};
  const auto receives = *transport->receive(1, bytes, 0);
  const bool differ = GENERATE(true, false);
  transport->give_up(differ ? Status::mismatch("other calls") : Status::aborted("a loss"));
  auto [mine, peers] = testing::socket_pair();
  ends->put({.rank = 1, .incoming = true, .socket = std::move(mine)});
  CHECK(!transport->test(receives).ok());  // takes the connection
  CHECK((peers.read(bytes).state == platform::Transfer::State::kWouldBlock) == differ);
}

TEST_CASE("two roots are found by a later call", "[marks]") {
  Fabrics fabrics = fabrics_of(GENERATE("shm", "tcp"), 2);
  std::atomic<int> seen{0};
  on_all(fabrics, [&](Fabric& fabric) -> std::string {
    Caller caller(fabric, std::chrono::seconds(3));
    Status status = caller.broadcast(3, fabric.group().index);
    if (status.ok()) status = caller.allreduce(3);
    if (status.code() == StatusCode::kMismatch) ++seen;
    return "";
  });
  CHECK(seen > 0);
}

AllreduceCall sum_of(std::vector<float>& values, std::uint64_t number) {
  AllreduceCall call;
  call.buffer = {reinterpret_cast<std::byte*>(values.data()), 0, 4 * values.size()};
  call.mark = {.sequence = number, .bytes = call.buffer.bytes, .operation = Operation::kAllreduce};
  call.deadline = Deadline::after(std::chrono::seconds(20));
  return call;
}

// They wait for nobody: without a limit a mark would be gone when its peer comes.
TEST_CASE("a late member finds the mark of a call of no bytes", "[marks]") {
  Fabrics fabrics = shm_fabrics(2, 0);
  std::vector<float> nothing, some(3, 1), late(3, 1);
  std::vector<std::unique_ptr<collective::PendingCall>> ahead;
  for (std::uint64_t number = 1; number <= 8; ++number) {
    ahead.push_back(fabrics[0]->start(sum_of(number < 8 ? nothing : some, number)).value());
    CHECK(ahead.back()->test().ok());
  }
  const auto pending = fabrics[1]->start(sum_of(late, 1)).value();
  CHECK(pending->wait().code() == StatusCode::kMismatch);
  CHECK(late.front() == 1);
}

TEST_CASE("members make many calls of no bytes", "[marks]") {
  Fabrics fabrics = fabrics_of(GENERATE("shm", "tcp"), 3);
  on_all(fabrics, [](Fabric& fabric) -> std::string {
    Caller caller(fabric);
    for (int i = 0; i < 50; ++i) {
      if (Status status = caller.allreduce(i % 10 == 9 ? 3 : 0); !status.ok()) return status.message();
    }
    return caller.first() == 3 ? "" : "a wrong sum";
  });
}

TEST_CASE("who waits for a member that has left after calls of no bytes hears of it", "[marks]") {
  Fabrics fabrics = shm_fabrics(2, 0);
  Caller caller(*fabrics.front()), other(*fabrics.back());
  CHECK(caller.allreduce(0).ok());
  CHECK(other.allreduce(0).ok());
  fabrics.back().reset();
  Status status;
  for (int more = 0; status.ok() && more < 8; ++more) status = caller.allreduce(0);
  CHECK(status.message() == "allreduce waits in vain: rank 1 has left the group");
}

TEST_CASE("parts of another size than is expected are an error", "[marks]") {
  const std::string medium = GENERATE("shm", "tcp");
  Fabrics fabrics = fabrics_of(medium, 2);
  const std::size_t sent = GENERATE(0, 8, 300'000);
  const std::size_t expected = GENERATE(0, 4, 70'000, 300'001);
  if (sent == expected) return;
  std::atomic<int> seen{0};
  on_all(fabrics, [&](Fabric& fabric) -> std::string {
    Caller caller(fabric, std::chrono::seconds(3));
    const bool sends = fabric.group().index == 0;
    const Status status = sends ? caller.alltoall({0, sent}, {0, 0}) : caller.alltoall({0, 0}, {expected, 0});
    if (status.code() == StatusCode::kMismatch) ++seen;
    return "";
  });
  CHECK((medium == "shm" ? seen == 1 : seen > 0));  // over tcp the sender may hear of it too
}

TEST_CASE("who waits for a member that has left hears of it", "[marks]") {
  Fabrics fabrics = shm_fabrics(2, 0);
  fabrics.back().reset();
  Caller caller(*fabrics.front());
  const Status status = caller.allreduce(3);
  CHECK(status.message() == "allreduce waits in vain: rank 1 has left the group");
}

}  // namespace
}  // namespace roundelay::contract
