// The two ends of a stream between members, over a socket that takes and gives bytes in pieces of any size.
#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

#include "collective/tcp/in_stream.h"
#include "collective/tcp/out_stream.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/random_bytes.h"
#include "tests/cpp/socket_pair.h"

namespace roundelay::collective::tcp {
namespace {

using testing::random_bytes;
using testing::socket_pair;

std::size_t random_size(std::mt19937& random) {
  constexpr std::array<std::size_t, 7> kSizes = {0, 1, 17, 4096, kMostSmall - 1, kMostSmall, kMostSmall + 1};
  return random() % 4 == 0 ? kMostSmall + random() % 100'000 : kSizes[random() % kSizes.size()];
}

// Carries bytes from one socket to the other, in pieces of any size.
class Carrier {
 public:
  Carrier(platform::Socket from, platform::Socket to, std::mt19937& random)
      : from_(std::move(from)), to_(std::move(to)), random_(random) {}
  void move() {
    move(from_, to_, there_);
    move(to_, from_, back_);
  }

 private:
  void move(const platform::Socket& from, const platform::Socket& to, Bytes& queue) {
    Bytes piece(1 + random_() % 30'000);
    const platform::Transfer read = from.read(ByteSpan(piece));
    if (read.state == platform::Transfer::State::kSome)
      queue.insert(queue.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(read.bytes));
    const ConstByteSpan some =
        ConstByteSpan(queue).first(std::min<std::size_t>(queue.size(), random_() % 9'000));
    if (some.empty()) return;
    const platform::Transfer written = to.write(std::span(&some, 1));
    if (written.state == platform::Transfer::State::kSome)
      queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(written.bytes));
  }

  const platform::Socket from_, to_;
  std::mt19937& random_;
  Bytes there_, back_;
};

TEST_CASE("a stream carries every message to its receive, in pieces of any size", "[streams]") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    auto [sender, one] = socket_pair();
    auto [receiver, other] = socket_pair();
    Carrier carrier(std::move(one), std::move(other), random);
    OutStream out;
    InStream in;
    using Tag = std::uint64_t;
    std::map<Tag, std::vector<Bytes>> sent, received;
    const std::size_t messages = 1 + random() % 20;
    std::vector<Tag> order;
    for (std::size_t i = 0; i < messages; ++i) {
      const Tag tag = random() % 3;
      sent[tag].push_back(random_bytes(random, random_size(random)));
      received[tag].emplace_back(sent[tag].back().size());
      order.push_back(tag);
    }
    std::map<Tag, std::size_t> next_send, next_receive;
    std::vector<Tag> receive_order = order;
    std::ranges::shuffle(receive_order, random);
    std::vector<TransferId> sends_over, receives_over;
    std::size_t sends = 0, receives = 0;
    const std::size_t connects = random() % 40;
    for (std::size_t step = 0; sends_over.size() + receives_over.size() < 2 * messages; ++step) {
      REQUIRE(step < 1'000'000);
      if (sends < messages && random() % 3 == 0) {
        const Tag tag = order[sends++];
        const auto id = static_cast<TransferId>(sends);
        REQUIRE(out.send(id, sent[tag][next_send[tag]++], {tag, {}}).ok());
      }
      if (receives < messages && random() % 3 == 0) {
        const Tag tag = receive_order[receives++];
        const auto id = static_cast<TransferId>(receives);
        REQUIRE(in.receive(id, received[tag][next_receive[tag]++], {tag, {}}, receives_over).ok());
      }
      if (step == connects) {
        out.connect(std::move(sender));
        in.connect(std::move(receiver));
      }
      if (step < connects) continue;
      REQUIRE(out.write(sends_over).ok());
      REQUIRE(in.write_notices().ok());
      carrier.move();
      REQUIRE(out.read_notices().ok());
      REQUIRE(in.read(receives_over).ok());
    }
    CHECK(std::set(sends_over.begin(), sends_over.end()).size() == messages);
    CHECK(std::set(receives_over.begin(), receives_over.end()).size() == messages);
    CHECK(sent == received);
  }
}

TEST_CASE("a stream reads no more small messages than it may keep", "[streams]") {
  auto [here, there] = socket_pair();
  InStream in;
  in.connect(std::move(here));
  std::vector<TransferId> over;
  const Header header{kMostSmall, {0, {}}};
  const Bytes body(kMostSmall);
  const std::array<ConstByteSpan, 2> message = {std::as_bytes(std::span(&header, 1)), ConstByteSpan(body)};
  Bytes queue;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < 2 * InStream::kMostKept / kMostSmall; ++i) {
    for (const ConstByteSpan part : message) queue.insert(queue.end(), part.begin(), part.end());
  }
  const auto offer = [&] {
    while (true) {
      const ConstByteSpan rest = ConstByteSpan(queue).subspan(taken);
      const platform::Transfer written = there.write(std::span(&rest, 1));
      REQUIRE(in.read(over).ok());
      if (written.state != platform::Transfer::State::kSome) return;
      taken += written.bytes;
      if (taken == queue.size()) return;
    }
  };
  offer();
  CHECK_FALSE(in.wants_input());
  CHECK(taken < InStream::kMostKept + (1 << 20));
  Bytes memory(kMostSmall);
  for (TransferId id = 0; taken < queue.size(); ++id) {
    REQUIRE(in.receive(id, memory, {0, {}}, over).ok());
    offer();
  }
  CHECK(over.size() > InStream::kMostKept / kMostSmall / 2);
}

TEST_CASE("a stream refuses what nobody receives", "[streams]") {
  auto [here, there] = socket_pair();
  InStream in;
  in.connect(std::move(here));
  const Header header{GENERATE(std::uint64_t{kMostSmall + 1}, std::uint64_t{1} << 63U), {0, {}}};
  const ConstByteSpan bytes = std::as_bytes(std::span(&header, 1));
  REQUIRE(there.write(std::span(&bytes, 1)).bytes == sizeof header);
  std::vector<TransferId> over;
  CHECK(in.read(over).message() ==
        "it sends " + std::to_string(header.bytes) + " bytes that nobody receives");
}

Label label_of(std::uint64_t sequence, Operation operation, std::uint64_t bytes) {
  return {.tag = sequence % 2, .mark = {.sequence = sequence, .bytes = bytes, .operation = operation}};
}

// Connects a stream's ends.
struct Pair {
  OutStream out;
  InStream in;
  std::vector<TransferId> sent, received;

  Pair() {
    auto [here, there] = socket_pair();
    out.connect(std::move(here));
    in.connect(std::move(there));
  }
  // Moves everything. Returns the first error of each end.
  std::pair<Status, Status> move() {
    Status of_out, of_in;
    const auto keep = [](Status& first, const Status& next) {
      if (first.ok()) first = next;
    };
    for (int i = 0; i < 4; ++i) {
      if (of_in.ok()) keep(of_in, in.write_notices());
      if (of_out.ok()) keep(of_out, out.read_notices());
      if (of_out.ok()) keep(of_out, out.write(sent));
      if (of_in.ok()) keep(of_in, in.read(received));
    }
    return {of_out, of_in};
  }
};

TEST_CASE("a stream carries messages whose marks agree", "[streams]") {
  Pair pair;
  const auto size = GENERATE(std::size_t{8}, kMostSmall + 1);
  const Bytes data(size, std::byte{7});
  Bytes memory(size);
  REQUIRE(pair.out.send(0, data, label_of(1, Operation::kBroadcast, size)).ok());
  REQUIRE(pair.in.receive(0, memory, label_of(1, Operation::kBroadcast, size), pair.received).ok());
  const auto [of_out, of_in] = pair.move();
  CHECK(of_out.ok());
  CHECK(of_in.ok());
  CHECK(memory == data);
}

TEST_CASE("a stream refuses a message of another call, whoever comes first", "[streams]") {
  Pair pair;
  const auto sent = GENERATE(std::size_t{8}, kMostSmall + 1);
  const auto expected = GENERATE(std::size_t{8}, std::size_t{16}, kMostSmall + 1, kMostSmall + 2);
  const bool sends_first = GENERATE(true, false);
  const Bytes data(sent);
  Bytes memory(expected);
  const Label mine = label_of(1, Operation::kAllreduce, expected);
  const Label theirs = label_of(1, Operation::kBroadcast, sent);
  Status receive;
  if (sends_first) {
    REQUIRE(pair.out.send(0, data, theirs).ok());
    pair.move();
    receive = pair.in.receive(0, memory, mine, pair.received);
  } else {
    REQUIRE(pair.in.receive(0, memory, mine, pair.received).ok());
    pair.move();
    receive = pair.out.send(0, data, theirs);
  }
  const auto [of_out, of_in] = pair.move();
  const bool seen = receive.code() == StatusCode::kMismatch || of_out.code() == StatusCode::kMismatch ||
                    of_in.code() == StatusCode::kMismatch;
  CHECK(seen);
  CHECK(pair.received.empty());
}

TEST_CASE("a stream refuses what an earlier call has left behind", "[streams]") {
  Pair pair;
  const Bytes data(8);
  Bytes memory(8);
  REQUIRE(pair.out.send(0, data, label_of(1, Operation::kBroadcast, 8)).ok());
  pair.move();
  CHECK(pair.in.receive(0, memory, label_of(2, Operation::kBroadcast, 8), pair.received).code() ==
        StatusCode::kMismatch);
}

}  // namespace
}  // namespace roundelay::collective::tcp
