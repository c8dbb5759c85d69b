// Where a process can be reached over TCP.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace roundelay::platform {

// An IP address without port. Link-local addresses are left out everywhere: they mean nothing on another
// machine.
struct Address {
  bool v6 = false;
  std::array<std::uint8_t, 16> octets{};  // network order; IPv4 uses the first four
  bool loopback = false;

  [[nodiscard]] std::size_t width() const { return v6 ? 16 : 4; }
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Address&, const Address&) = default;
};

struct Endpoint {
  Address address;
  std::uint16_t port = 0;
  [[nodiscard]] std::string to_string() const;  // 10.0.0.1:80, [fd00::1]:80
};

// A sockaddr for system calls; the length is returned.
socklen_t to_native(const Endpoint& endpoint, sockaddr_storage& storage);

// Addresses of the interfaces that are up and running, IPv4 before IPv6, loopback last (always there).
// `interfaces`: names, comma separated; "" means any.
// Errors: kInvalidArgument when a name is not there, listing those that are.
Result<std::vector<Address>> local_addresses(std::string_view interfaces);

// Equal for processes that share a loopback: hostname, boot id and network namespace.
std::string host_identity();

}  // namespace roundelay::platform
