#include "platform/tcp/name.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "base/within.h"
#include "platform/tcp/socket.h"

namespace roundelay::platform {
namespace {

constexpr Duration kRetry = std::chrono::milliseconds(50);

bool is_literal(const std::string& host) {
  in6_addr unused;
  return ::inet_pton(AF_INET, host.c_str(), &unused) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &unused) == 1;
}

Address address_of(const sockaddr* native) {
  Address address;
  address.v6 = native->sa_family == AF_INET6;
  if (address.v6) {
    sockaddr_in6 in{};
    std::memcpy(&in, native, sizeof in);
    std::memcpy(address.octets.data(), &in.sin6_addr, 16);
    address.loopback = IN6_IS_ADDR_LOOPBACK(&in.sin6_addr);
  } else {
    sockaddr_in in{};
    std::memcpy(&in, native, sizeof in);
    std::memcpy(address.octets.data(), &in.sin_addr, 4);
    address.loopback = address.octets[0] == 127;
  }
  return address;
}

std::string named(const std::string& host, std::uint16_t port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

Result<Fd> bind_and_listen(const Endpoint& at) {
  Fd fd(::socket(at.address.v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_status("socket", errno);
  const int reuse = 1;  // allows the port although connections of an earlier job still time out
  static_cast<void>(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse));
  sockaddr_storage native;
  const socklen_t length = to_native(at, native);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&native), length) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return errno_status("cannot listen on " + at.to_string(), errno);
  }
  return fd;
}

// Returns the result of resolve(), or an error at the deadline.
Result<std::vector<Address>> resolve_within(const std::string& host, Deadline deadline) {
  if (is_literal(host)) return resolve(host);
  using Found = Result<std::vector<Address>>;
  auto found = within<Found>(deadline, [host] { return resolve(host); });
  if (!found) return Status::unavailable("the lookup of \"" + host + "\" takes too long");
  return std::move(*found);
}

// Tries to connect. Returns 0 or errno.
int try_connect(const Endpoint& to, Deadline deadline) {
  auto socket = Socket::start_connect(to);
  if (!socket.ok()) return ECONNREFUSED;
  pollfd ready{socket->fd().get(), POLLOUT, 0};
  while (::poll(&ready, 1, deadline.poll_milliseconds(steady_now())) == 0) {
    if (deadline.passed()) return ETIMEDOUT;
  }
  return socket->connect_error();
}

}  // namespace

Result<std::vector<Address>> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    return Status::unavailable("\"" + host + "\" has no address: " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<Address> found;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6) {
      found.push_back(address_of(entry->ai_addr));
    }
  }
  if (found.empty()) return Status::unavailable("\"" + host + "\" has no IP address");
  return found;
}

Result<Fd> listen_at(const std::string& host, std::uint16_t port, bool others_come) {
  auto addresses = resolve(host);
  if (!addresses.ok()) return addresses.status();
  // IPv4 first: if a name has both ::1 and 127.0.0.1, clients try both.
  std::stable_sort(addresses->begin(), addresses->end(),
                   [](const Address& a, const Address& b) { return a.v6 < b.v6; });
  Endpoint at{addresses->front(), port};
  if (others_come && at.address.loopback && !is_literal(host)) at.address = Address{};
  return bind_and_listen(at);
}

bool port_is_refused(const Status& error) {
  return error.message().ends_with(errno_text(EADDRINUSE)) || error.message().ends_with(errno_text(EACCES));
}

bool listens_on(int fd, std::uint16_t port) {
  int listening = 0;
  socklen_t length = sizeof listening;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0) return false;
  sockaddr_storage native;
  length = sizeof native;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&native), &length) != 0) return false;
  sockaddr_in in{};  // both families have the port at the same position
  std::memcpy(&in, &native, sizeof in);
  return (native.ss_family == AF_INET || native.ss_family == AF_INET6) && ntohs(in.sin_port) == port;
}

Status await_listener(const std::string& host, std::uint16_t port, Deadline deadline) {
  while (true) {
    const auto addresses = resolve_within(host, deadline);
    std::string cause = addresses.status().message();
    if (addresses.ok()) {
      for (const Address& address : *addresses) {
        const int error = try_connect({address, port}, deadline);
        if (error == 0) return {};
        cause = address.to_string() + ": " + errno_text(error);
      }
    }
    if (deadline.passed()) {
      return Status::unavailable("nobody listens on " + named(host, port) + " (" + cause + ")");
    }
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace roundelay::platform
