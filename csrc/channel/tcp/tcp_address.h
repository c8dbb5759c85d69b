// What a rank tells the others through the bootstrap, so that they can connect to it: its visiting TCP
// address.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "platform/tcp/address.h"
#include "platform/tcp/socket.h"

namespace roundelay::channel {

// Random, made for each listener: whoever cannot show it is a stranger.
using Token = std::array<std::byte, 16>;

struct TcpAddress {
  Token token{};
  std::uint16_t port = 0;
  std::string host;  // platform::host_identity()
  std::vector<platform::Address> addresses;
  friend bool operator==(const TcpAddress&, const TcpAddress&) = default;

  // Where to try, in this order: over loopback only on the same host.
  [[nodiscard]] std::vector<platform::Endpoint> endpoints(const std::string& own_host) const;
};

Bytes encode_tcp_address(const TcpAddress& tcp_address);
// Errors: kInternal.
Result<TcpAddress> decode_tcp_address(ConstByteSpan bytes);

// Made before the TCP addresses are exchanged: peers may connect at once, the kernel holds them until the
// channel is there.
struct TcpListener {
  // `interfaces`: names to be reached at, comma separated; "" means any that is up.
  static Result<TcpListener> listen(const std::string& interfaces);
  [[nodiscard]] Bytes address_bytes() const { return encode_tcp_address(tcp_address); }

  platform::Listener socket;
  TcpAddress tcp_address;
};

}  // namespace roundelay::channel
