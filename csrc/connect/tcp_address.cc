#include "connect/tcp_address.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace roundelay::connect {
namespace {

constexpr std::size_t kLongestHost = 1024;
constexpr std::size_t kMostAddresses = 255;

void append(Bytes& out, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + size);
}

// Removes `size` bytes from the front; returns false if there are fewer.
bool read_bytes(ConstByteSpan& in, void* out, std::size_t size) {
  if (in.size() < size) return false;
  std::memcpy(out, in.data(), size);
  in = in.subspan(size);
  return true;
}

// Returns whether no other host has this address for this one: 127.0.0.1, ::1. A loopback interface may have
// others.
bool is_own_alone(const platform::Address& address) {
  constexpr std::array<std::uint8_t, 16> kLoopback6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return address.v6 ? address.octets == kLoopback6 : address.octets[0] == 127;
}

}  // namespace

std::vector<platform::Endpoint> TcpAddress::endpoints(const std::string& own_host) const {
  const bool same_host = host == own_host;
  std::vector<platform::Endpoint> ordered;
  for (const platform::Address& address : addresses) {
    if (address.loopback && same_host) ordered.push_back({address, port});
  }
  for (const platform::Address& address : addresses) {
    if (!address.loopback) ordered.push_back({address, port});
  }
  return ordered;
}

Bytes encode_tcp_address(const TcpAddress& tcp_address) {
  Bytes out;
  append(out, tcp_address.token.data(), tcp_address.token.size());
  append(out, &tcp_address.port, sizeof tcp_address.port);
  const auto host_size = static_cast<std::uint16_t>(std::min(tcp_address.host.size(), kLongestHost));
  append(out, &host_size, sizeof host_size);
  append(out, tcp_address.host.data(), host_size);
  const auto count = static_cast<std::uint8_t>(std::min(tcp_address.addresses.size(), kMostAddresses));
  append(out, &count, sizeof count);
  for (std::size_t i = 0; i < count; ++i) {
    const platform::Address& address = tcp_address.addresses[i];
    const auto flags = static_cast<std::uint8_t>((address.v6 ? 1 : 0) | (address.loopback ? 2 : 0));
    append(out, &flags, sizeof flags);
    append(out, address.octets.data(), address.width());
  }
  return out;
}

Result<TcpAddress> decode_tcp_address(ConstByteSpan bytes) {
  const Status broken = Status::internal("a rank's TCP address does not decode");
  TcpAddress tcp_address;
  std::uint16_t host_size = 0;
  std::uint8_t count = 0;
  if (!read_bytes(bytes, tcp_address.token.data(), tcp_address.token.size()) ||
      !read_bytes(bytes, &tcp_address.port, sizeof tcp_address.port) ||
      !read_bytes(bytes, &host_size, sizeof host_size) || host_size > kLongestHost ||
      bytes.size() < host_size) {
    return broken;
  }
  tcp_address.host.resize(host_size);
  if (!read_bytes(bytes, tcp_address.host.data(), host_size) || !read_bytes(bytes, &count, sizeof count))
    return broken;
  for (int i = 0; i < count; ++i) {
    platform::Address address;
    std::uint8_t flags = 0;
    if (!read_bytes(bytes, &flags, sizeof flags) || flags > 3) return broken;
    address.v6 = (flags & 1) != 0;
    address.loopback = (flags & 2) != 0;
    if (!read_bytes(bytes, address.octets.data(), address.width())) return broken;
    tcp_address.addresses.push_back(address);
  }
  if (!bytes.empty()) return broken;
  return tcp_address;
}

Result<TcpListener> TcpListener::listen(const std::string& interfaces, bool one_host) {
  auto addresses = platform::local_addresses(interfaces);
  if (!addresses.ok()) return addresses.status();
  if (one_host && std::ranges::any_of(*addresses, is_own_alone)) {
    std::erase_if(*addresses, std::not_fn(is_own_alone));
  }
  auto token = trust::new_nonce();
  if (!token.ok()) return token.status();
  const bool everywhere = !one_host && interfaces.empty();
  auto socket = everywhere ? platform::Listener::create() : platform::Listener::create(*addresses);
  if (!socket.ok()) return socket.status();
  TcpAddress tcp_address{*token, socket->port(), platform::host_identity(), std::move(addresses).value()};
  return TcpListener{std::move(socket).value(), std::move(tcp_address)};
}

}  // namespace roundelay::connect
