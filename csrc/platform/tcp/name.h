// Servers by host name and port, as MASTER_ADDR and MASTER_PORT give them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "platform/fd.h"
#include "platform/tcp/address.h"

namespace roundelay::platform {

// Returns the addresses of a host name. Blocks as long as getaddrinfo(3) does, which has no deadline. Errors:
// kUnavailable, "NAME has no address: ...".
Result<std::vector<Address>> resolve(const std::string& host);

// Returns a socket that listens on `port` and is closed on exec. If `host` is an address of this machine, it
// listens on that address only. With `others_come`, a name that resolves to the loopback here (Debian's
// /etc/hosts) makes it listen everywhere, because other machines resolve the name differently. Errors:
// kUnavailable (the port is taken, or the address is not this machine's).
Result<Fd> listen_at(const std::string& host, std::uint16_t port, bool others_come);

// Returns whether it is for the port, and not for the address, that listen_at() has failed with this error.
bool port_is_refused(const Status& error);

// Returns whether `fd` is a socket of this process that listens on `port`.
bool listens_on(int fd, std::uint16_t port);

// Waits until a server listens there. Errors: kUnavailable at the deadline, "nobody listens on HOST:PORT
// (cause)".
Status await_listener(const std::string& host, std::uint16_t port, Deadline deadline);

}  // namespace roundelay::platform
