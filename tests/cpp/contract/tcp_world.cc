#include "tests/cpp/contract/tcp_world.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <numeric>
#include <stdexcept>

namespace roundelay::testing {
namespace {

Group group_of(int size, int rank) {
  Group group;
  group.ranks.resize(static_cast<std::size_t>(size));
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  group.index = rank;
  return group;
}

connect::TcpListener listen() {
  auto listener = connect::TcpListener::listen("", true);
  if (!listener.ok()) throw std::runtime_error(listener.status().message());
  return std::move(listener).value();
}

std::unique_ptr<channel::TcpChannel> make(int rank, std::vector<Bytes> tcp_addresses,
                                          connect::TcpListener listener, wire::Hello identity,
                                          const trust::Key& secret = {}) {
  auto channel =
      channel::TcpChannel::create(group_of(static_cast<int>(tcp_addresses.size()), rank),
                                  {std::move(identity), secret}, tcp_addresses, std::move(listener));
  if (!channel.ok()) throw std::runtime_error(channel.status().message());
  return std::move(channel).value();
}

// One packet holds a TCP address.
Bytes swap_cards(int socket, const Bytes& mine) {
  Bytes theirs(4096);
  if (::send(socket, mine.data(), mine.size(), MSG_NOSIGNAL) < 0) throw std::runtime_error("send");
  const ssize_t got = ::recv(socket, theirs.data(), theirs.size(), 0);
  if (got <= 0) throw std::runtime_error("recv");
  theirs.resize(static_cast<std::size_t>(got));
  return theirs;
}

}  // namespace

wire::Hello hello_of(int rank) { return {rank, 1, "1.0+test", {}}; }

TcpWorld::TcpWorld(int size) {
  for (int rank = 0; rank < size; ++rank) {
    listeners.emplace_back(listen());
    tcp_addresses.push_back(listeners.back()->address_bytes());
  }
}

std::unique_ptr<channel::TcpChannel> TcpWorld::channel(int rank, wire::Hello identity,
                                                       const trust::Key& secret) {
  auto& listener = listeners[static_cast<std::size_t>(rank)];
  auto made = make(rank, tcp_addresses, std::move(*listener), std::move(identity), secret);
  listener.reset();
  return made;
}

ChildRank::ChildRank(const Body& body) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
    throw std::runtime_error("socketpair");
  process_ = ::fork();
  const int rank = process_ == 0 ? 1 : 0;
  const int mine = sockets[rank];
  ::close(sockets[1 - rank]);
  try {
    connect::TcpListener listener = listen();
    const Bytes tcp_address = listener.address_bytes();
    const Bytes other = swap_cards(mine, tcp_address);
    ::close(mine);
    auto channel = make(rank, rank == 0 ? std::vector{tcp_address, other} : std::vector{other, tcp_address},
                        std::move(listener), hello_of(rank));
    if (rank == 0) {
      parent = std::move(channel);
      return;
    }
    body(*channel);
    channel->close(Deadline::after(std::chrono::seconds(5)));
  } catch (...) {
    if (rank == 0) throw;
    ::_exit(1);
  }
  ::_exit(0);  // runs no destructors or handlers of the parent
}

void ChildRank::signal(int number) const { ::kill(process_, number); }

ChildRank::~ChildRank() {
  signal(SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace roundelay::testing
