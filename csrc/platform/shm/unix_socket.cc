#include "platform/shm/unix_socket.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

#include "trust/trust.h"

namespace roundelay::platform {
namespace {

constexpr std::string_view kPrefix = "roundelay-";
constexpr std::size_t kRandomBytes = 16;

Fd new_socket() { return Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// An abstract address: its first byte is zero.
struct Address {
  explicit Address(const std::string& text) {
    native.sun_family = AF_UNIX;
    const std::size_t bytes = std::min(text.size(), sizeof native.sun_path - 1);
    std::memcpy(native.sun_path + 1, text.data(), bytes);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&native); }

  sockaddr_un native{};
  socklen_t length = 0;
};

Result<ucred> peer_of(const Fd& fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return errno_status("SO_PEERCRED", errno);
  }
  return peer;
}

Status same_user(const Fd& fd) {
  const Result<ucred> peer = peer_of(fd);
  if (!peer.ok()) return peer.status();
  if (peer->uid == ::geteuid()) return {};
  return Status::aborted("a process of user " + std::to_string(peer->uid) + " is at the other end, not of " +
                         std::to_string(::geteuid()) + ": another user has taken a rank's place");
}

// Returns true when the descriptor is readable, false at the deadline.
Result<bool> wait_readable(const Fd& fd, Deadline deadline) {
  while (true) {
    pollfd one{fd.get(), POLLIN, 0};
    const int ready = ::poll(&one, 1, deadline.poll_milliseconds(steady_now()));
    if (ready > 0) return true;
    if (ready == 0 && deadline.passed()) return false;
    if (ready < 0 && errno != EINTR) return errno_status("poll", errno);
  }
}

}  // namespace

Result<std::optional<UnixSocket>> UnixSocket::try_connect(const std::string& address) {
  Fd fd = new_socket();
  if (!fd.valid()) return errno_status("socket", errno);
  const Address to(address);
  if (::connect(fd.get(), to.get(), to.length) != 0) {
    if (errno == EAGAIN) return std::optional<UnixSocket>();
    return errno_status("connect", errno);
  }
  ROUNDELAY_RETURN_IF_ERROR(same_user(fd));
  return std::optional<UnixSocket>(UnixSocket(std::move(fd)));
}

Result<UnixSocket> UnixSocket::connect(const std::string& address, Deadline deadline) {
  while (true) {
    auto socket = try_connect(address);
    if (!socket.ok()) return socket.status();
    if (*socket) return std::move(**socket);
    // No event tells that the queue has room again.
    if (deadline.passed()) return Status::unavailable("too many callers wait at " + address);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

pid_t UnixSocket::process() const {
  const Result<ucred> peer = peer_of(fd_);
  return peer.ok() ? peer->pid : 0;
}

Status UnixSocket::send(ConstByteSpan bytes, const Fd* fd) const {
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = fd->get();
    std::memcpy(CMSG_DATA(header), &number, sizeof number);
  }
  if (::sendmsg(fd_.get(), &message, MSG_NOSIGNAL) < 0) return errno_status("sendmsg", errno);
  return {};
}

Result<Packet> UnixSocket::receive(Deadline deadline) const {
  const Result<bool> readable = wait_readable(fd_, deadline);
  if (!readable.ok()) return readable.status();
  if (!*readable) return Status::unavailable("no answer in time");
  Packet packet;
  packet.bytes.resize(kLongestPacket);
  iovec data{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return errno_status("recvmsg", errno);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(header), sizeof number);
    packet.fd = Fd(number);
  }
  if (got == 0) return Status::unavailable("the connection was closed");
  packet.bytes.resize(static_cast<std::size_t>(got));
  return packet;
}

Result<UnixListener> UnixListener::open() {
  std::array<unsigned char, kRandomBytes> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return errno_status("getrandom", errno);
  }
  std::string address(kPrefix);
  for (const unsigned char byte : random) {
    address += "0123456789abcdef"[byte >> 4U];
    address += "0123456789abcdef"[byte & 15U];
  }
  Fd fd = new_socket();
  if (!fd.valid()) return errno_status("socket", errno);
  const Address at(address);
  if (::bind(fd.get(), at.get(), at.length) != 0) return errno_status("bind", errno);
  if (::listen(fd.get(), SOMAXCONN) != 0) return errno_status("listen", errno);
  return UnixListener(std::move(fd), std::move(address));
}

Result<std::optional<UnixSocket>> UnixListener::accept(Deadline deadline) const {
  while (true) {
    const Result<bool> readable = wait_readable(fd_, deadline);
    if (!readable.ok()) return readable.status();
    if (!*readable) return std::optional<UnixSocket>();
    Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() && errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) {
      return errno_status("accept", errno);
    }
    if (!fd.valid()) continue;
    if (same_user(fd).ok()) return std::optional<UnixSocket>(UnixSocket(std::move(fd)));
    trust::count_stranger("another user called a socket of this rank");
  }
}

}  // namespace roundelay::platform
