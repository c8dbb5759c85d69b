#include "connect/tcp_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <utility>

#include "platform/tcp/prefix.h"
#include "tests/cpp/catch.h"

namespace roundelay::connect {
namespace {

using Catch::Matchers::Contains;
using platform::Address;

TcpAddress example() {
  TcpAddress tcp_address;
  tcp_address.token.fill(std::byte{7});
  tcp_address.port = 4711;
  tcp_address.host = "node1/boot/1";
  tcp_address.addresses = {Address{false, {10, 0, 0, 1}, false}, Address{true, {0xfd, 1}, false},
                           Address{false, {127, 0, 0, 1}, true}};
  return tcp_address;
}

TEST_CASE("TCP address: survives encoding; every shorter or longer text is an error") {
  const Bytes bytes = encode_tcp_address(example());
  const auto decoded = decode_tcp_address(bytes);
  REQUIRE(decoded.ok());
  CHECK((*decoded == example()));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_FALSE(decode_tcp_address(ConstByteSpan(bytes).first(size)).ok());
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decode_tcp_address(longer).ok());
}

TEST_CASE("TCP address: loopback comes first on the same host and never from another") {
  const auto near = example().endpoints("node1/boot/1");
  REQUIRE(near.size() == 3);
  CHECK(near[0].to_string() == "127.0.0.1:4711");
  CHECK(near[1].to_string() == "10.0.0.1:4711");
  CHECK(near[2].to_string() == "[fd01::]:4711");
  const auto far = example().endpoints("node2/boot/1");
  REQUIRE(far.size() == 2);
  CHECK(far[0].to_string() == "10.0.0.1:4711");
}

TEST_CASE("tcp listener: interfaces are checked, tokens differ") {
  const auto wrong = TcpListener::listen("no-such-interface0", true);
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.status().code() == StatusCode::kInvalidArgument);
  CHECK_THAT(wrong.status().message(), Contains("no-such-interface0") && Contains("lo"));
  const auto one = TcpListener::listen("lo", false);
  const auto two = TcpListener::listen("", false);
  REQUIRE(one.ok());
  REQUIRE(two.ok());
  CHECK(one->tcp_address.token != two->tcp_address.token);
  CHECK(one->tcp_address.addresses.front().loopback);
}

// Returns the addresses at which a listener's sockets are bound.
std::vector<std::string> bound_at(const TcpListener& listener) {
  std::vector<std::string> found;
  for (const platform::Fd& fd : listener.socket.fds()) {
    sockaddr_storage native{};
    socklen_t length = sizeof native;
    REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&native), &length) == 0);
    std::array<char, 64> text{};
    REQUIRE(::getnameinfo(reinterpret_cast<sockaddr*>(&native), length, text.data(), text.size(), nullptr, 0,
                          NI_NUMERICHOST) == 0);
    found.emplace_back(text.data());
  }
  return found;
}

TEST_CASE("tcp listener: it listens only where the job is") {
  const auto here = TcpListener::listen("", true);
  const auto everywhere = TcpListener::listen("", false);
  const auto chosen = TcpListener::listen("lo", false);
  REQUIRE((here.ok() && everywhere.ok() && chosen.ok()));
  for (const std::string& at : bound_at(*here)) CHECK((at == "127.0.0.1" || at == "::1"));
  for (const platform::Address& address : here->tcp_address.addresses) CHECK(address.loopback);
  const auto all = bound_at(*everywhere);
  CHECK((all == std::vector<std::string>{"::"} || all == std::vector<std::string>{"0.0.0.0"}));
  for (const std::string& at : bound_at(*chosen)) CHECK((at != "::" && at != "0.0.0.0"));
}

TEST_CASE("tcp listener: a prefix chooses the addresses in it, and an entry that fits nothing is named") {
  const auto chosen = TcpListener::listen("127.0.0.0/8", false);
  REQUIRE(chosen.ok());
  for (const std::string& at : bound_at(*chosen)) CHECK((at == "127.0.0.1" || at == "::1"));
  for (const auto& [entry, said] :
       {std::pair("127.0.0.0/8,240.1.2.0/24", "has an address in 240.1.2.0/24; there are:"),
        std::pair("2001:db8::/32", "has an address in 2001:db8::/32; there are:"),
        std::pair("lo,eth77", "network interface \"eth77\" is not there or not up; there are:"),
        std::pair("10.1/16", "\"10.1/16\" is no prefix of IP addresses")}) {
    const auto listener = TcpListener::listen(entry, false);
    REQUIRE_FALSE(listener.ok());
    CHECK(listener.status().code() == StatusCode::kInvalidArgument);
    CHECK_THAT(listener.status().message(), Contains(said));
  }
  CHECK_THAT(TcpListener::listen("240.1.2.0/24", false).status().message(), Contains("lo (127.0.0.1)"));
}

TEST_CASE("prefix: it contains the addresses that begin alike") {
  const Address ours{false, {10, 1, 130, 7}, false}, v6{true, {0xfd, 0, 0, 1, 0x80}, false};
  const auto contains = [](const char* text, const Address& address) {
    const auto prefix = platform::Prefix::parse(text);
    REQUIRE(prefix.has_value());
    return prefix->contains(address);
  };
  for (const char* text : {"10.1.0.0/16", "10.1.130.7/32", "10.1.128.0/17", "10.1.2.3/16", "0.0.0.0/0"})
    CHECK(contains(text, ours));
  for (const char* text : {"10.2.0.0/16", "10.1.0.0/17", "10.1.130.6/32", "::/0"})
    CHECK_FALSE(contains(text, ours));
  for (const char* text : {"fd00:1::/32", "fd00::/8", "::/0", "fd00:1:8000::/33"}) CHECK(contains(text, v6));
  for (const char* text : {"fd00:2::/32", "fd00:1::/33", "0.0.0.0/0"}) CHECK_FALSE(contains(text, v6));
  for (const char* text :
       {"10.1.0.0", "10.1.0.0/33", "10.1.0.0/", "10.1.0.0/1x", "/8", "fd00::/129", "eth0/8"})
    CHECK_FALSE(platform::Prefix::parse(text).has_value());
}

}  // namespace
}  // namespace roundelay::connect
