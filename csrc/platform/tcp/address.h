// The addresses at which other processes can reach this one over TCP.
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

// An IP address without a port. Link-local addresses never appear: they have no meaning on another machine.
struct Address {
  bool v6 = false;
  std::array<std::uint8_t, 16> octets{};  // in network order; IPv4 uses the first four
  bool loopback = false;

  [[nodiscard]] std::size_t width() const { return v6 ? 16 : 4; }  // in bytes
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Address&, const Address&) = default;
};

struct Endpoint {
  Address address;
  std::uint16_t port = 0;
  [[nodiscard]] std::string to_string() const;  // returns "10.0.0.1:80" or "[fd00::1]:80"
};

// Fills in the sockaddr for system calls and returns its length.
socklen_t to_native(const Endpoint& endpoint, sockaddr_storage& storage);

// Returns the addresses of the interfaces that are up: IPv4 before IPv6, loopback last (it is always there).
// `interfaces` limits them to the interfaces of these names and to the addresses in these prefixes
// (10.1.0.0/16), comma separated; "" means any. Errors: kInvalidArgument, with the interfaces that there are,
// if an entry fits none.
Result<std::vector<Address>> local_addresses(std::string_view interfaces);

// Returns a text of hostname, boot id and network namespace. Processes with the same text share a loopback.
std::string host_identity();
// Returns a text that differs between kernels: containers and emulated nodes of one machine have the same.
// Empty: not known.
std::string machine_identity();

}  // namespace roundelay::platform
