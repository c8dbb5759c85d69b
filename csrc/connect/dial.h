// The attempts to reach one rank, at one of its addresses after the other.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "connect/tcp_address.h"
#include "platform/tcp/socket.h"

namespace roundelay::connect {

// One thread at a time may use it.
class Dial {
 public:
  // `own_host`: see TcpAddress::endpoints().
  Dial(const TcpAddress& to, const std::string& own_host)
      : host_(to.host), endpoints_(to.endpoints(own_host)) {}

  // Lets the attempts begin at this address, modulo their number, and go round.
  void begin_at(std::size_t address);
  // Starts an attempt at the next address. Returns nothing if none is left.
  std::optional<platform::Socket> next();
  // Notes why the attempt that next() started has failed. `again`: the other side hung up, so that next()
  // tries the same address once more: a peer that many strangers call may have dropped this rank among them.
  void failed(const std::string& why, bool again);

  // Returns the host's name.
  [[nodiscard]] std::string_view host() const { return std::string_view(host_).substr(0, host_.find('/')); }
  // Returns why the last attempt failed; "" if none has.
  [[nodiscard]] const std::string& last_failure() const { return last_failure_; }
  // Returns the error when no address is left. `rank`: the one that was called.
  [[nodiscard]] Status unreachable(int rank) const;

 private:
  static constexpr int kMostRepeats = 20;

  std::string host_;
  std::vector<platform::Endpoint> endpoints_;
  std::size_t next_ = 0;
  int repeats_ = 0;  // of attempts at an address that was reached, but hung up
  std::string last_failure_;
};

}  // namespace roundelay::connect
