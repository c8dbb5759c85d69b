// The prototype over plain TCP sockets: frames of a header and bytes. Who connects proves the job's secret.
#include <arpa/inet.h>
#include <blake2/blake2.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

#include "common.h"

namespace wires {
namespace {

constexpr std::size_t kMostSmall = std::size_t{64} << 10;  // of a message that goes before its receive
constexpr int kGreetMilliseconds = 2'000;
using Proof = std::array<unsigned char, 32>;

// A closed descriptor has -1.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// Connections fail 6 s after an idle peer was last heard of, as those of collective/tcp.
void tune(const Fd& fd) {
  const auto set = [&](int level, int name, int value) {
    static_cast<void>(::setsockopt(fd.get(), level, name, &value, sizeof value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 5);
}

Proof proof_of(const Proof& nonce) {
  const char* secret = std::getenv("WIRES_SECRET");
  Proof made;
  blake2b(made.data(), made.size(), nonce.data(), nonce.size(), secret, std::strlen(secret));
  return made;
}

struct Header {
  std::uint64_t bytes;
  std::uint64_t is_notice;  // the receive of a large message is posted
};

// A proven connection. After an error it has no descriptor's events to offer.
class Connection {
 public:
  explicit Connection(Fd fd) : fd_(std::move(fd)) {}
  [[nodiscard]] pollfd events() const {
    const bool reads = !held_, writes = !notices_.empty() || may_send();
    return {.fd = fd_.get(),
            .events = static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)),
            .revents = 0};
  }
  [[nodiscard]] bool sending() const { return sends_; }
  [[nodiscard]] bool receiving() const { return receives_; }

  void send(const std::byte* data, std::size_t bytes) {
    out_ = {data, bytes};
    out_header_ = {.bytes = bytes, .is_notice = 0};
    header_sent_ = 0;
    sends_ = true;
  }
  void receive(std::byte* data, std::size_t bytes) {
    in_ = {data, bytes};
    receives_ = true;
    held_ = false;
    if (bytes > kMostSmall) notices_.push_back({.bytes = 0, .is_notice = 1});
  }
  // Returns whether something moved; sets `error` if the connection is over.
  bool step(std::string& error) { return write(error) || read(error); }

 private:
  [[nodiscard]] bool may_send() const {
    return sends_ && (out_header_.bytes <= kMostSmall || header_sent_ > 0 || peer_ready_);
  }
  static bool failed(ssize_t moved, std::string& error) {
    if (moved > 0 || (moved < 0 && (errno == EAGAIN || errno == EINTR))) return false;
    error = moved == 0 ? "closed by the peer" : std::strerror(errno);
    return true;
  }
  // A notice goes before a message, and a message that has begun before a notice.
  bool write(std::string& error) {
    std::array<iovec, 2> parts{};
    const bool begun = sends_ && header_sent_ > 0;
    const bool notice = !notices_.empty() && !begun;
    if (notice) {
      auto* from = reinterpret_cast<char*>(&notices_.front());
      parts[0] = {from + notice_sent_, sizeof(Header) - notice_sent_};
    } else if (may_send()) {
      parts[0] = {reinterpret_cast<char*>(&out_header_) + header_sent_, sizeof(Header) - header_sent_};
      parts[1] = {const_cast<std::byte*>(out_.first), out_.second};
    } else {
      return false;
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (failed(sent, error) || sent < 0) return false;
    const auto bytes = static_cast<std::size_t>(sent);
    if (notice) {
      notice_sent_ = (notice_sent_ + bytes) % sizeof(Header);
      if (notice_sent_ == 0) notices_.pop_front();
      return true;
    }
    const std::size_t of_header = std::min(bytes, sizeof(Header) - header_sent_);
    header_sent_ += of_header;
    out_ = {out_.first + (bytes - of_header), out_.second - (bytes - of_header)};
    sends_ = header_sent_ < sizeof(Header) || out_.second > 0;
    if (!sends_ && out_header_.bytes > kMostSmall) peer_ready_ = false;
    return true;
  }
  bool read(std::string& error) {
    if (held_) return false;
    if (header_read_ < sizeof(Header)) {
      auto* into = reinterpret_cast<char*>(&in_header_);
      const ssize_t got = ::recv(fd_.get(), into + header_read_, sizeof(Header) - header_read_, 0);
      if (failed(got, error) || got < 0) return false;
      header_read_ += static_cast<std::size_t>(got);
      if (header_read_ == sizeof(Header) && in_header_.is_notice != 0) {
        peer_ready_ = true;
        header_read_ = 0;
      }
      return true;
    }
    held_ = !receives_;  // a small message before its receive stays where it is
    if (held_) return false;
    if (!in_body_ && in_header_.bytes != in_.second) {
      error = "a message of another length";
      return false;
    }
    in_body_ = true;
    const ssize_t got = ::recv(fd_.get(), in_.first, in_.second, 0);
    if (failed(got, error) || got < 0) return false;
    in_ = {in_.first + got, in_.second - static_cast<std::size_t>(got)};
    receives_ = in_body_ = in_.second > 0;
    if (!receives_) header_read_ = 0;
    return true;
  }

  Fd fd_;
  std::pair<const std::byte*, std::size_t> out_{};
  std::pair<std::byte*, std::size_t> in_{};
  Header out_header_{}, in_header_{};
  std::size_t header_sent_ = 0, header_read_ = 0, notice_sent_ = 0;
  std::deque<Header> notices_;
  bool sends_ = false, receives_ = false, in_body_ = false, held_ = false, peer_ready_ = false;
};

// Who has connected and proves the secret, or is dropped.
struct Guest {
  Fd fd;
  Proof nonce{}, proof{};
  std::size_t read = 0;
  Clock::time_point since = Clock::now();
};

class SocketsWire final : public Wire {
 public:
  SocketsWire() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    if (::listen(listener_.get(), SOMAXCONN) != 0) std::exit(1);
  }
  std::string address() override {
    sockaddr_in own{};
    socklen_t length = sizeof own;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &length);
    ifaddrs* all = nullptr;
    ::getifaddrs(&all);
    for (ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
      if (std::strcmp(one->ifa_name, "lo") == 0) continue;
      own.sin_addr = reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr;
    }
    ::freeifaddrs(all);
    return std::string(::inet_ntoa(own.sin_addr)) + ":" + std::to_string(ntohs(own.sin_port));
  }
  void connect(const std::string& peer) override {
    const std::size_t colon = peer.find(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(peer.substr(colon + 1))));
    ::inet_aton(peer.substr(0, colon).c_str(), &to.sin_addr);
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Proof nonce{};
    const bool heard = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
                       ::recv(fd.get(), nonce.data(), nonce.size(), MSG_WAITALL) == sizeof nonce;
    const Proof proof = proof_of(nonce);
    if (!heard || ::send(fd.get(), proof.data(), proof.size(), MSG_NOSIGNAL) != sizeof proof) {
      return fail("no connection");
    }
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    tune(fd);
    connections_.emplace_back(std::move(fd));
  }
  void accept(const std::string&) override {
    const std::size_t before = connections_.size();
    while (connections_.size() == before) {
      if (!step()) sleep(1000);
    }
  }
  void send(std::size_t connection, const std::byte* data, std::size_t bytes) override {
    connections_[connection].send(data, bytes);
  }
  void receive(std::size_t connection, std::byte* data, std::size_t bytes) override {
    connections_[connection].receive(data, bytes);
  }
  bool step() override {
    bool moved = (knocks_ || !guests_.empty()) && greet();
    for (Connection& one : connections_) {
      std::string error;
      moved |= one.step(error);
      if (!error.empty()) fail(error);
    }
    return moved;
  }
  void sleep(int milliseconds) override {
    std::vector<pollfd> what{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const Guest& guest : guests_) what.push_back({.fd = guest.fd.get(), .events = POLLIN, .revents = 0});
    for (const Connection& one : connections_) what.push_back(one.events());
    if (!guests_.empty()) milliseconds = std::min(milliseconds, kGreetMilliseconds + 1);
    ::poll(what.data(), what.size(), milliseconds);
    knocks_ = what.front().revents != 0;
  }
  [[nodiscard]] bool sending() const override {
    return std::any_of(connections_.begin(), connections_.end(), [](auto& one) { return one.sending(); });
  }
  [[nodiscard]] bool receiving() const override {
    return std::any_of(connections_.begin(), connections_.end(), [](auto& one) { return one.receiving(); });
  }
  void give_up() override { connections_.clear(); }

 private:
  // Lets guests in, takes what they say, and drops those that are silent or wrong.
  bool greet() {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Guest& guest = guests_.emplace_back(Guest{.fd = Fd(fd)});
      const bool random = ::getrandom(guest.nonce.data(), guest.nonce.size(), 0) == sizeof guest.nonce;
      if (!random || ::send(fd, guest.nonce.data(), guest.nonce.size(), MSG_NOSIGNAL) < 0) guests_.pop_back();
    }
    std::erase_if(guests_, [this](Guest& guest) { return heard(guest); });
    knocks_ = fd >= 0;
    return knocks_;
  }
  // Returns whether a guest is one no more.
  bool heard(Guest& guest) {
    auto* into = guest.proof.data() + guest.read;
    const ssize_t got = ::recv(guest.fd.get(), into, guest.proof.size() - guest.read, 0);
    if (got <= 0) return got == 0 || errno != EAGAIN || seconds_since(guest.since) * 1e3 > kGreetMilliseconds;
    guest.read += static_cast<std::size_t>(got);
    if (guest.read < guest.proof.size()) return false;
    if (guest.proof == proof_of(guest.nonce)) {
      tune(guest.fd);
      connections_.emplace_back(std::move(guest.fd));
    }
    return true;
  }

  Fd listener_;
  bool knocks_ = false;  // somebody waits at the listener
  std::vector<Guest> guests_;
  std::vector<Connection> connections_;
};

}  // namespace

std::unique_ptr<Wire> make_wire() { return std::make_unique<SocketsWire>(); }

std::string version() { return "plain"; }

}  // namespace wires

int main() { return wires::obey_all(); }
