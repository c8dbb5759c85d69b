// Servers by name and port, as an environment gives them (MASTER_ADDR, MASTER_PORT).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "platform/fd.h"
#include "platform/tcp/address.h"

namespace roundelay::platform {

// Errors: kUnavailable, "NAME has no address: ..."
Result<std::vector<Address>> resolve(const std::string& host);

// A socket that listens on `port` and is closed on exec. Where `host` is an address of this machine only
// there: nothing else can reach it. A name that this machine itself takes for the loopback (Debian's
// /etc/hosts) says nothing of how others see it: with `others_come` it listens everywhere. kUnavailable:
// taken, or not ours.
Result<Fd> listen_at(const std::string& host, std::uint16_t port, bool others_come);

// Whether `fd` is a socket of this process that listens on `port`.
bool listens_on(int fd, std::uint16_t port);

// Until somebody listens there. kUnavailable at the deadline: "nobody listens on HOST:PORT (cause)".
Status await_listener(const std::string& host, std::uint16_t port, Deadline deadline);

}  // namespace roundelay::platform
