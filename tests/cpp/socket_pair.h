#pragma once

#include <sys/socket.h>

#include <array>
#include <stdexcept>

#include "platform/tcp/socket.h"

namespace roundelay::testing {

// Returns two connected sockets, which do not block.
inline std::array<platform::Socket, 2> socket_pair() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) != 0)
    throw std::runtime_error("socketpair");
  return {platform::Socket(platform::Fd(fds[0])), platform::Socket(platform::Fd(fds[1]))};
}

}  // namespace roundelay::testing
