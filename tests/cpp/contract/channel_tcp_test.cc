#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

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

// A foreign program: a plain, blocking socket.
class Foreigner {
 public:
  explicit Foreigner(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) throw std::runtime_error("connect");
  }
  ~Foreigner() { ::close(fd_); }
  Foreigner(const Foreigner&) = delete;
  Foreigner& operator=(const Foreigner&) = delete;

  void say(ConstByteSpan bytes) const {
    static_cast<void>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  // Sends a frame.
  void say_frame(ConstByteSpan bytes) const {
    say(wire::frame_header(bytes.size()));
    say(bytes);
  }
  // Goes through the handshake as a rank would, and returns all that it has said. `channel` works meanwhile.
  Bytes call(TcpChannel& channel, connect::Handshake claim) const {
    claim.challenge.caller.fill(std::byte{9});
    const Bytes opening = connect::encode_opening(claim);
    say_frame(opening);
    Bytes answer(wire::kFrameHeader + 2 * trust::kTrustBytes + 4);
    ssize_t got = 0;
    for (const Deadline deadline = Deadline::after(5s); got <= 0 && !deadline.passed();) {
      channel.wait(Deadline::after(5ms));
      got = ::recv(fd_, answer.data(), answer.size(), MSG_DONTWAIT);
      if (got == 0) return {};
    }
    static_cast<void>(connect::decode_answer(ConstByteSpan(answer).subspan(wire::kFrameHeader), claim));
    const Bytes greeting = connect::encode_greeting(claim, trust::Role::kCall, hello_of(claim.dialler));
    say_frame(greeting);
    Bytes all;
    for (const Bytes& frame : {opening, greeting}) {
      const auto header = wire::frame_header(frame.size());
      all.insert(all.end(), header.begin(), header.end());
      all.insert(all.end(), frame.begin(), frame.end());
    }
    return all;
  }
  // Returns whether the other side hung up, while `channel` works.
  [[nodiscard]] bool turned_away(TcpChannel& channel) const {
    for (const Deadline deadline = Deadline::after(5s); !deadline.passed();) {
      channel.wait(Deadline::after(5ms));
      std::byte byte;
      const ssize_t got = ::recv(fd_, &byte, 1, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    }
    return false;
  }

 private:
  int fd_;
};

// Returns the next arrival at one channel, while the other works too.
Incoming receive_beside(TcpChannel& receiver, TcpChannel& other) {
  for (const Deadline deadline = Deadline::after(10s); !deadline.passed();) {
    if (auto got = receiver.receive()) return std::move(*got);
    other.wait(Deadline::after(1ms));
  }
  throw std::runtime_error("nothing arrived in 10 s");
}

void check_that_they_talk(TcpChannel& a, int rank_a, TcpChannel& b, int rank_b) {
  REQUIRE(a.send(rank_b, to_bytes("to b")).ok());
  const Incoming at_b = receive_beside(b, a);
  CHECK(at_b.from == rank_a);
  CHECK(at_b.bytes == to_bytes("to b"));
  REQUIRE(b.send(rank_a, to_bytes("to a")).ok());
  CHECK(receive_one(a).bytes == to_bytes("to a"));
}

std::uint16_t port_of(const Bytes& tcp_address) { return connect::decode_tcp_address(tcp_address)->port; }

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

TEST_CASE("channel contract: tcp") {
  check_channel([](int size) {
    TcpWorld world(size);
    Channels channels;
    for (int rank = 0; rank < size; ++rank) channels.push_back(world.channel(rank));
    return channels;
  });
}

TEST_CASE("tcp: strangers are turned away and harm nobody") {
  TcpWorld world(2);
  auto zero = world.channel(0);
  auto one = world.channel(1);
  const std::uint16_t port = port_of(world.tcp_addresses[0]);
  Foreigner silent(port);
  Foreigner half(port);
  half.say(to_bytes(std::string_view("\x20\0\0\0RD", 6)));

  SECTION("garbage") {
    Foreigner browser(port);
    browser.say(to_bytes("GET / HTTP/1.1\r\n\r\n"));
    CHECK(browser.turned_away(*zero));
    Foreigner noise(port);
    noise.say(pattern(100'000, 1));
    CHECK(noise.turned_away(*zero));
  }
  SECTION("well-formed, with another job's token, or meant for another rank") {
    const auto tcp_address = connect::decode_tcp_address(world.tcp_addresses[0]);
    const trust::Key right = connect::connection_key({}, tcp_address->token);
    connect::Token other = tcp_address->token;
    other.back() ^= std::byte{1};
    const trust::Key wrong = connect::connection_key({}, other);
    for (const connect::Handshake& claim :
         {connect::Handshake{right, 1, 1}, connect::Handshake{right, 0, 0}, connect::Handshake{right, 2, 0},
          connect::Handshake{right, -1, 0}, connect::Handshake{wrong, 1, 0}}) {
      Foreigner imposter(port);
      imposter.call(*zero, claim);
      CHECK(imposter.turned_away(*zero));
    }
  }
  SECTION("what a rank of this job has said before") {
    const auto tcp_address = connect::decode_tcp_address(world.tcp_addresses[0]);
    connect::Handshake known{connect::connection_key({}, tcp_address->token), 1, 0};
    Foreigner first(port);
    const Bytes said = first.call(*zero, known);
    for (int i = 0; i < 100; ++i) zero->wait(Deadline::after(1ms));  // as a rank, it would be admitted
    Foreigner again(port);
    again.say(said);
    CHECK(again.turned_away(*zero));
    return;  // rank 1's place is taken
  }
  SECTION("a crowd that says nothing makes room") {
    std::vector<std::unique_ptr<Foreigner>> crowd;
    for (int i = 0; i < 100; ++i) crowd.push_back(std::make_unique<Foreigner>(port));
    CHECK(silent.turned_away(*zero));
  }
  CHECK_FALSE(zero->receive().has_value());
  check_that_they_talk(*one, 1, *zero, 0);
}

TEST_CASE("tcp: a rank whose token for its peer is wrong loses the peer, which does not notice") {
  TcpWorld world(2);
  auto zero = world.channel(0);
  world.tcp_addresses[0][0] ^= std::byte{1};
  auto one = world.channel(1);
  REQUIRE(one->send(0, to_bytes("hello?")).ok());
  std::optional<Incoming> loss;
  while (!(loss = one->receive())) zero->wait(Deadline::after(1ms));
  CHECK_THAT(loss->lost.message(), Contains("cannot connect to rank 0"));
  CHECK_FALSE(zero->receive().has_value());
}

TEST_CASE("tcp: ranks talk only if they have the same secret") {
  const trust::Key secret = {std::byte{1}};
  for (const trust::Key& other : {trust::Key{}, trust::Key{std::byte{2}}, secret}) {
    TcpWorld world(2);
    auto zero = world.channel(0, hello_of(0), secret);
    auto one = world.channel(1, hello_of(1), other);
    if (other == secret) {
      check_that_they_talk(*one, 1, *zero, 0);
      continue;
    }
    const std::uint64_t before = trust::strangers_dropped();
    REQUIRE(one->send(0, to_bytes("hello?")).ok());
    std::optional<Incoming> loss;
    while (!(loss = one->receive())) zero->wait(Deadline::after(1ms));
    CHECK_THAT(loss->lost.message(), Contains("cannot connect to rank 0") && Contains("another secret"));
    REQUIRE(zero->send(1, to_bytes("hello?")).ok());
    while (!(loss = zero->receive())) one->wait(Deadline::after(1ms));
    CHECK_THAT(loss->lost.message(), Contains("cannot connect to rank 1") && Contains("another secret"));
    CHECK(trust::strangers_dropped() == before);  // both asked for the other's proof first
  }
}

TEST_CASE("tcp: a handshake takes less than a millisecond", "[slow]") {
  constexpr int kRounds = 50;
  constexpr trust::Key secret = {std::byte{1}};
  Duration best = 1s;  // a busy machine makes others longer
  for (int round = 0; round < kRounds; ++round) {
    TcpWorld world(2);
    auto zero = world.channel(0, hello_of(0), secret);
    auto one = world.channel(1, hello_of(1), secret);
    std::thread acceptor([&] { static_cast<void>(receive_one(*zero)); });
    const TimePoint start = steady_now();
    REQUIRE(one->connect(0, Deadline::after(10s)).ok());
    best = std::min<Duration>(best, steady_now() - start);
    one.reset();
    acceptor.join();
  }
  CHECK(best < 1ms);
}

void check_mismatch(const wire::Hello& other, bool both_dial, const std::vector<std::string>& named) {
  TcpWorld world(2);
  auto zero = world.channel(0);
  auto one = world.channel(1, other);
  REQUIRE(one->send(0, to_bytes("x")).ok());
  if (both_dial) REQUIRE(zero->send(1, to_bytes("x")).ok());
  std::optional<Incoming> at_zero;
  std::optional<Incoming> at_one;
  const Deadline deadline = Deadline::after(10s);
  while ((!at_zero || !at_one) && !deadline.passed()) {
    if (!at_zero) at_zero = zero->receive();
    if (!at_one) at_one = one->receive();
  }
  REQUIRE((at_zero && at_one));
  CHECK(at_zero->from == 1);
  CHECK(at_one->from == 0);
  for (const std::string& text : named) CHECK_THAT(at_zero->lost.message(), Contains(text));
  CHECK(at_one->lost == at_zero->lost);
  CHECK_FALSE(zero->receive().has_value());
  CHECK_FALSE(one->receive().has_value());
}

TEST_CASE("tcp: builds and configurations that differ are one error, the same on both sides") {
  for (const bool both_dial : {false, true}) {
    CAPTURE(both_dial);
    wire::Hello other = hello_of(1);
    other.version = "1.1+test";
    check_mismatch(other, both_dial,
                   {"different builds", "rank 0 has \"1.0+test\"", "rank 1 has \"1.1+test\""});
    other = hello_of(1);
    other.settings = {"ROUNDELAY_THETA=\"1001\"", "ROUNDELAY_GRADIENT_POOL=\"0\""};
    check_mismatch(
        other, both_dial,
        {"different configurations", "rank 0 has ROUNDELAY_THETA=\"auto\" and ROUNDELAY_GRADIENT_POOL=\"1\"",
         "rank 1 has ROUNDELAY_THETA=\"1001\" and ROUNDELAY_GRADIENT_POOL=\"0\""});
    other = hello_of(1);
    other.generation = 2;
    check_mismatch(other, both_dial, {"different inits", "rank 0 has number 1", "rank 1 has number 2"});
  }
}

TEST_CASE("tcp: two ranks that dial each other at once end up with one connection") {
  for (int round = 0; round < 200; ++round) {
    TcpWorld world(2);
    auto zero = world.channel(0);
    auto one = world.channel(1);
    // Both ranks dial before either handles what arrived, each time: the worst case.
    for (const char* text : {"1", "2", "3"}) {
      REQUIRE(zero->send(1, to_bytes(text)).ok());
      REQUIRE(one->send(0, to_bytes(text)).ok());
    }
    const bool zero_first = round % 2 == 0;
    std::string at_zero;
    std::string at_one;
    const Deadline deadline = Deadline::after(10s);
    while (at_zero.size() + at_one.size() < 6 && !deadline.passed()) {
      for (const bool turn : {zero_first, !zero_first}) {
        auto incoming = (turn ? zero : one)->receive();
        if (!incoming) continue;
        REQUIRE(incoming->lost.ok());
        (turn ? at_zero : at_one) += static_cast<char>(incoming->bytes.at(0));
      }
    }
    REQUIRE(at_zero == "123");
    REQUIRE(at_one == "123");
  }
}

TEST_CASE("tcp: a parked connection is taken when one's own attempt fails") {
  TcpWorld world(2);
  // Rank 0 believes that this is rank 1, but here the kernel accepts and nobody answers.
  std::optional<platform::Listener> mute = std::move(platform::Listener::create()).value();
  const Bytes right = world.tcp_addresses[1];
  auto tcp_address = connect::decode_tcp_address(right);
  tcp_address->port = mute->port();
  std::erase_if(tcp_address->addresses,
                [](const platform::Address& address) { return address.v6 || !address.loopback; });
  world.tcp_addresses[1] = connect::encode_tcp_address(*tcp_address);
  auto zero = world.channel(0);
  world.tcp_addresses[1] = right;
  auto one = world.channel(1);

  REQUIRE(zero->send(1, to_bytes("from 0")).ok());
  REQUIRE(one->send(0, to_bytes("from 1")).ok());
  for (int i = 0; i < 20; ++i) {
    CHECK_FALSE(zero->receive().has_value());
    CHECK_FALSE(one->receive().has_value());
    zero->wait(Deadline::after(1ms));
  }
  mute.reset();
  CHECK(receive_beside(*one, *zero).bytes == to_bytes("from 0"));
  CHECK(receive_one(*zero).bytes == to_bytes("from 1"));
}

TEST_CASE("tcp: connect makes losses visible and has a deadline") {
  TcpWorld world(3);
  auto zero = world.channel(0);
  auto one = world.channel(1);
  SECTION("both ends stand after it") {
    std::thread acceptor([&] { CHECK(receive_one(*zero).from == 1); });
    const Status connected = one->connect(0, Deadline::after(10s));
    one.reset();
    acceptor.join();
    CHECK(connected.ok());
  }
  SECTION("nobody answers") {
    const TimePoint start = steady_now();
    const Status late = one->connect(0, Deadline::after(50ms));
    CHECK(late.code() == StatusCode::kAborted);
    CHECK_THAT(late.message(), Contains("rank 0"));
    expect_within(5s, steady_now() - start);
  }
  SECTION("nobody listens") {
    world.listeners[2].reset();
    const Status refused = one->connect(2, Deadline::after(10s));
    CHECK(refused.code() == StatusCode::kAborted);
    CHECK_THAT(refused.message(), Contains("rank 2") && Contains("connection refused"));
    CHECK(receive_one(*one).from == 2);
  }
  SECTION("to oneself") { CHECK(one->connect(1, Deadline::after(1s)).ok()); }
}

TEST_CASE("tcp: no descriptor is left behind") {
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 100; ++i) {
    TcpWorld world(2);
    auto zero = world.channel(0);
    auto one = world.channel(1);
    check_that_they_talk(*one, 1, *zero, 0);
    if (i % 2 == 0) zero->close(Deadline::after(1s));
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("tcp: waiting costs no CPU") {
  TcpWorld world(2);
  auto zero = world.channel(0);
  auto one = world.channel(1);
  check_that_they_talk(*one, 1, *zero, 0);
  while (zero->receive() || one->receive()) {
  }
  const double before = cpu_seconds();
  const TimePoint start = steady_now();
  int waits = 0;
  while (steady_now() - start < 1s) {
    zero->wait(Deadline::at(start + 1s));
    ++waits;
  }
  CHECK(cpu_seconds() - before < 0.005);
  CHECK(waits <= 2);
}

}  // namespace
}  // namespace roundelay::testing
