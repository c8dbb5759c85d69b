// The data with which other ranks connect to this one (its TCP address). The bootstrap distributes the TCP
// addresses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "platform/tcp/address.h"
#include "platform/tcp/socket.h"
#include "trust/trust.h"

namespace roundelay::connect {

// Random bytes of one listener. Callers prove that they know them (greeting.h).
using Token = trust::Nonce;

// One rank's TCP address.
struct TcpAddress {
  Token token{};
  std::uint16_t port = 0;
  std::string host;  // the result of platform::host_identity()
  std::vector<platform::Address> addresses;
  friend bool operator==(const TcpAddress&, const TcpAddress&) = default;

  // Returns the endpoints to try, in this order. Loopback is among them only on the same host.
  [[nodiscard]] std::vector<platform::Endpoint> endpoints(const std::string& own_host) const;
};

Bytes encode_tcp_address(const TcpAddress& tcp_address);
// Parses a TCP address. Errors: kInternal.
Result<TcpAddress> decode_tcp_address(ConstByteSpan bytes);

// A listening socket and its TCP address. It is made before the TCP addresses are exchanged: peers may
// connect at once, and the kernel holds their connections until the channel exists.
struct TcpListener {
  // Listens where the job's ranks are: on the loopback if all are on this host; else at the addresses of the
  // named interfaces (comma separated) and on the loopback, or, with "", on all interfaces. Errors:
  // kInvalidArgument (no such interface), kUnavailable.
  static Result<TcpListener> listen(const std::string& interfaces, bool one_host);
  [[nodiscard]] Bytes address_bytes() const { return encode_tcp_address(tcp_address); }

  platform::Listener socket;
  TcpAddress tcp_address;
};

}  // namespace roundelay::connect
