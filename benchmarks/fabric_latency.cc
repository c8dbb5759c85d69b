// Measures allreduces of two ranks over fabric tcp, called directly, and half of a ping-pong's round trip
// over a plain blocking socket, turn by turn.
//
//   bench_fabric_latency RANK IP PORT REPETITIONS ALGORITHMS SIZE...   (python -m benchmarks.fabric_latency
//   runs both ranks: IP and PORT are where rank 0 listens for the plain connection)
//
// Rank 0 prints a JSON object: by size and by name, the seconds of each turn.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "collective/tcp/plane.h"
#include "collective/tcp/tcp_fabric.h"
#include "connect/tcp_address.h"
#include "platform/fd.h"

namespace roundelay {
namespace {

constexpr std::size_t kTurnBytes = std::size_t{4} << 20;  // of all calls in a turn, but for large calls
constexpr std::size_t kMostCalls = 200;                   // in a turn
constexpr const char* kPingPong = "ping-pong";
constexpr int kAttempts = 1000;  // of rank 1 to connect
constexpr auto kPause = std::chrono::milliseconds(10);

template <typename T>
T value_of(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}

// One end of a plain connection between the two processes. Blocks.
class Plain {
 public:
  Plain(int rank, const char* ip, int port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<std::uint16_t>(port));
    check(::inet_aton(ip, &at.sin_addr) == 1);
    rank == 0 ? accept(at) : connect(at);
    const int on = 1;
    check(::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
  }
  void send(ConstByteSpan data) const {
    while (!data.empty()) {
      const ssize_t sent = ::send(fd_.get(), data.data(), data.size(), MSG_NOSIGNAL);
      check(sent > 0);
      data = data.subspan(static_cast<std::size_t>(sent));
    }
  }
  void receive(ByteSpan into) const {
    check(::recv(fd_.get(), into.data(), into.size(), MSG_WAITALL) == static_cast<ssize_t>(into.size()));
  }

 private:
  static void check(bool fine) {
    if (!fine) throw std::runtime_error("the plain connection failed");
  }
  static platform::Fd socket() { return platform::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  void accept(sockaddr_in at) {
    const platform::Fd listener = socket();
    check(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    check(::listen(listener.get(), 1) == 0);
    fd_ = platform::Fd(::accept(listener.get(), nullptr, nullptr));
  }
  // Waits until rank 0 listens.
  void connect(sockaddr_in to) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      fd_ = socket();
      if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return;
      std::this_thread::sleep_for(kPause);
    }
    check(false);
  }

  platform::Fd fd_;
};

// This process's ends of both.
struct Ends {
  const int rank;
  const Plain plain;
  std::shared_ptr<collective::tcp::TcpPlane> plane;
  std::unique_ptr<collective::Fabric> fabric;

  Ends(int own_rank, const char* ip, int port) : rank(own_rank), plain(own_rank, ip, port) {
    auto listener = value_of(connect::TcpListener::listen("", false));
    const Bytes own = listener.address_bytes();
    const std::uint64_t own_size = own.size();
    std::uint64_t size = 0;
    plain.send(std::as_bytes(std::span(&own_size, 1)));
    plain.send(own);
    plain.receive(std::as_writable_bytes(std::span(&size, 1)));
    std::vector<Bytes> addresses = {own, Bytes(size)};
    plain.receive(addresses[1]);
    if (rank == 1) std::swap(addresses[0], addresses[1]);
    plane = value_of(collective::tcp::TcpPlane::create({{rank, 1, "benchmark", {}}, {}}, std::move(listener),
                                                       addresses, {}));
    Group group;
    group.ranks = {0, 1};
    group.index = rank;
    fabric = value_of(collective::make_tcp_fabric(*plane, group, {}));
  }
  void call(const collective::Call& what) const {
    const Status done = value_of(fabric->start(what))->wait();
    if (!done.ok()) throw std::runtime_error(done.message());
  }
  void allreduce(ByteSpan data, std::string_view algorithm) const {
    collective::AllreduceCall what;
    what.algorithm = algorithm;
    what.buffer = {.base = data.data(), .bytes = data.size()};
    call(what);
  }
  // Sends the bytes to the other process and gets them back, or the reverse.
  void ping_pong(ByteSpan data) const {
    if (rank == 0) plain.send(data);
    plain.receive(data);
    if (rank == 1) plain.send(data);
  }
};

using Turn = std::function<void()>;

double seconds_of(const Turn& turn, std::size_t calls) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < calls; ++i) turn();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count() / static_cast<double>(calls);
}

using Seconds = std::map<std::string, std::vector<double>>;

Seconds measured(const Ends& ends, std::size_t size, const std::vector<std::string>& algorithms,
                 int repetitions) {
  Bytes data(size);
  std::map<std::string, Turn> turns;
  for (const std::string& name : algorithms) {
    turns[name] = [&ends, &data, &name] { ends.allreduce(data, name); };
  }
  turns[kPingPong] = [&] { ends.ping_pong(data); };
  Seconds seconds;
  const std::size_t calls = std::clamp(kTurnBytes / size, std::size_t{1}, kMostCalls);
  for (int round = 0; round <= repetitions; ++round) {
    for (const auto& [name, turn] : turns) {
      ends.call(collective::BarrierCall{});
      const double took = seconds_of(turn, calls);
      if (round > 0) seconds[name].push_back(name == kPingPong ? took / 2 : took);
    }
  }
  return seconds;
}

void print(const std::map<std::string, Seconds>& found) {
  const char* next_size = "{";
  for (const auto& [size, seconds] : found) {
    std::cout << std::exchange(next_size, ",\n ") << '"' << size << "\": ";
    const char* next_name = "{";
    for (const auto& [name, all] : seconds) {
      std::cout << std::exchange(next_name, ", ") << '"' << name << "\": ";
      const char* next = "[";
      for (const double one : all) std::cout << std::exchange(next, ", ") << one;
      std::cout << ']';
    }
    std::cout << '}';
  }
  std::cout << "}\n";
}

}  // namespace
}  // namespace roundelay

int main(int argc, char** argv) {
  if (argc < 7) return std::fprintf(stderr, "bench_fabric_latency: arguments are missing\n"), 2;
  try {
    std::vector<std::string> algorithms;
    std::istringstream names(argv[5]);
    for (std::string name; std::getline(names, name, ',');) algorithms.push_back(name);
    const roundelay::Ends ends(std::atoi(argv[1]), argv[2], std::atoi(argv[3]));
    std::map<std::string, roundelay::Seconds> found;
    for (const char* size : std::span(argv, static_cast<std::size_t>(argc)).subspan(6)) {
      found[size] =
          roundelay::measured(ends, std::strtoull(size, nullptr, 10), algorithms, std::atoi(argv[4]));
    }
    if (ends.rank == 0) roundelay::print(found);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "bench_fabric_latency: %s\n", error.what()), 1;
  }
  return 0;
}
