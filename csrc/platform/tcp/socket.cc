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

Result<std::uint16_t> listen_on(const Fd& fd, bool v6) {
  Endpoint any;
  any.address.v6 = v6;
  sockaddr_storage address;
  socklen_t length = to_native(any, address);
  if (v6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    return errno_status("bind", errno);
  if (::listen(fd.get(), SOMAXCONN) != 0) return errno_status("listen", errno);
  length = sizeof address;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return errno_status("getsockname", errno);
  }
  // Both families have the port at the same position.
  sockaddr_in in{};
  std::memcpy(&in, &address, sizeof in);
  return ntohs(in.sin_port);
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

Transfer Socket::read(ByteSpan into) const {
  ssize_t got = 0;
  do {
    got = ::recv(fd_.get(), into.data(), into.size(), 0);
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

Result<Listener> Listener::create() {
  for (const bool v6 : {true, false}) {
    Fd fd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid() && v6) continue;
    if (!fd.valid()) return errno_status("cannot make a TCP socket", errno);
    const Result<std::uint16_t> port = listen_on(fd, v6);
    if (port.ok()) return Listener(std::move(fd), *port);
    if (!v6) return Status::unavailable("cannot listen on TCP: " + port.status().message());
  }
  return Status::internal("unreachable");
}

Result<std::optional<Socket>> Listener::accept() const {
  while (true) {
    Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      tune(fd);
      return std::optional<Socket>(std::move(fd));
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<Socket>();
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return errno_status("cannot accept a connection", errno);
    }
    // Any other error is about one connection that has already gone; the next one may work.
    if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) return errno_status("accept", errno);
  }
}

}  // namespace roundelay::platform
