#include "platform/tcp/socket.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

namespace roundelay::platform {
namespace {

// Lies between the fourth and the fifth keepalive probe of an idle connection, so the fifth ends the
// connection 5 s after the peer's last answer. An attempt to connect without an answer ends after it, too.
constexpr int kLossMilliseconds = 4'900;

// A listener at several addresses needs one port that is free at all of them.
constexpr int kPortAttempts = 16;

// Linux has the option since 6.15. Older headers do not name it, and older kernels refuse it.
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

// Sets an option that only tunes: without it the socket works too.
void set_option(const Fd& fd, int level, int option, int value) {
  static_cast<void>(::setsockopt(fd.get(), level, option, &value, sizeof value));
}

void tune(const Fd& fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kLossMilliseconds);
  // The pauses between retransmissions double. Without a bound, a pause can be from 2.5 to 5 s, and miss a
  // link that comes back after 3 s. Kernels that refuse the bound have linear timeouts, for connections with
  // few packets under way and without BBR.
  set_option(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, 1'000);
  set_option(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
}

Transfer failed_transfer() {
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {Transfer::State::kWouldBlock, 0, 0};
  return {Transfer::State::kError, 0, errno};
}

Fd new_listener(bool v6) {
  return Fd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Listens, and sets the port of `at` if it is 0: the system chooses one then. Returns errno, or 0.
int listen_on(const Fd& fd, Endpoint& at, bool all_families) {
  sockaddr_storage address;
  socklen_t length = to_native(at, address);
  if (at.address.v6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, all_families ? 0 : 1);
  auto* const native = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), native, length) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) return errno;
  length = sizeof address;
  if (::getsockname(fd.get(), native, &length) != 0) return errno;
  // Both families have the port at the same position.
  sockaddr_in in{};
  std::memcpy(&in, &address, sizeof in);
  at.port = ntohs(in.sin_port);
  return 0;
}

Status not_listening(int error) { return errno_status("cannot listen on TCP", error); }

// Listens at the addresses, all at the port of the first one, and returns the port. Sets `taken` if another
// program has that port at another of the addresses.
Result<std::uint16_t> listen_at_all(std::span<const Address> addresses, std::vector<Fd>& fds, bool& taken) {
  Endpoint at;
  int error = EADDRNOTAVAIL;
  for (const Address& address : addresses) {
    at.address = address;
    Fd fd = new_listener(address.v6);
    const int failed = fd.valid() ? listen_on(fd, at, false) : errno;
    if (failed == 0) {
      fds.push_back(std::move(fd));
      continue;
    }
    error = failed;
    taken = at.port != 0 && failed == EADDRINUSE;
    if (taken) break;
  }
  if (taken || fds.empty()) return not_listening(error);
  return at.port;
}

}  // namespace

Result<Socket> Socket::start_connect(const Endpoint& to) {
  sockaddr_storage address;
  const socklen_t length = to_native(to, address);
  Fd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_status(to.to_string(), errno);
  tune(fd);
  const int done = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length);
  // A non-blocking connect continues in the background after EINTR, too.
  if (done != 0 && errno != EINPROGRESS && errno != EINTR) return errno_status(to.to_string(), errno);
  return Socket(std::move(fd));
}

int Socket::connect_error() const {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

Transfer Socket::read(ByteSpan into) const { return read(into, {}); }

Transfer Socket::read(ByteSpan first, ByteSpan then) const {
  std::array<iovec, 2> vectors = {iovec{first.data(), first.size()}, iovec{then.data(), then.size()}};
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = then.empty() ? 1 : 2;
  ssize_t got = 0;
  do {
    got = ::recvmsg(fd_.get(), &message, 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return failed_transfer();
  if (got == 0) return {Transfer::State::kEnd, 0, 0};
  return {Transfer::State::kSome, static_cast<std::size_t>(got), 0};
}

Transfer Socket::write(std::span<const ConstByteSpan> parts) const {
  assert(parts.size() <= kMostParts);
  std::array<iovec, kMostParts> vectors;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    // sendmsg does not write to the data, although its type is not const.
    vectors[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
  }
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = parts.size();
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return failed_transfer();
  return {Transfer::State::kSome, static_cast<std::size_t>(sent), 0};
}

void Socket::set_window_closed(bool closed) const {
  set_option(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, closed ? 0 : kLossMilliseconds);
}

void Socket::shutdown_output() const { ::shutdown(fd_.get(), SHUT_WR); }

int Socket::unacknowledged() const {
  int bytes = 0;
  return ::ioctl(fd_.get(), SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

bool Socket::held_back() const {
  int unsent = 0;
  return ::ioctl(fd_.get(), SIOCOUTQNSD, &unsent) == 0 && unsent > 0 && unsent == unacknowledged();
}

Result<Listener> Listener::create(std::span<const Address> addresses) {
  std::vector<Fd> fds;
  for (int attempt = 0; !addresses.empty(); ++attempt) {
    bool taken = false;
    fds.clear();
    const auto port = listen_at_all(addresses, fds, taken);
    if (port.ok()) return Listener(std::move(fds), *port);
    if (!taken || attempt == kPortAttempts) return port.status();
  }
  Endpoint any{.address = {.v6 = true}, .port = 0};
  Fd fd = new_listener(true);
  if (!fd.valid() || listen_on(fd, any, true) != 0) {  // the host has no IPv6
    any = {};
    fd = new_listener(false);
    const int error = fd.valid() ? listen_on(fd, any, false) : errno;
    if (error != 0) return not_listening(error);
  }
  fds.push_back(std::move(fd));
  return Listener(std::move(fds), any.port);
}

Result<std::optional<Socket>> Listener::accept() const {
  for (auto listening = fds_.begin(); listening != fds_.end();) {
    Fd fd(::accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      tune(fd);
      return std::optional<Socket>(std::move(fd));
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      ++listening;
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return errno_status("cannot accept a connection", errno);
    }
    // Any other error is about one connection that has already gone; the next one may work.
    if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) return errno_status("accept", errno);
  }
  return std::optional<Socket>();
}

}  // namespace roundelay::platform
