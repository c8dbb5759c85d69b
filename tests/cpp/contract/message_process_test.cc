// The contract of point to point over shared memory between processes, which hand the memory over as ranks
// do.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <utility>

#include "collective/shm/shm_transport.h"
#include "platform/shm/handover.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/message_contract.h"

namespace roundelay::contract {
namespace {

using collective::ShmTransport;
using collective::shm::PairRings;
using platform::SharedMemory;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

// A pipe to write a text through, once.
struct Pipe {
  Pipe() {
    if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
  }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void put(const std::string& text) const {
    const std::string line = text + '\n';
    if (::write(ends[1], line.data(), line.size()) < 0) ::_exit(2);
  }
  // Returns the text; "it said nothing" if none comes in time.
  [[nodiscard]] std::string take() const {
    std::string text;
    char byte = 0;
    pollfd readable{.fd = ends[0], .events = POLLIN, .revents = 0};
    while (::poll(&readable, 1, soon().poll_milliseconds(steady_now())) > 0 &&
           ::read(ends[0], &byte, 1) == 1) {
      if (byte == '\n') return text;
      text += byte;
    }
    return "it said nothing";
  }

  std::array<int, 2> ends{};
};

// One process for each member. `addresses` are for the members after the first one.
class Processes final : public MessageMedium {
 public:
  [[nodiscard]] int largest_group() const override { return 3; }
  std::string run(int size, const MemberPart& part) override {
    const std::vector<Pipe> addresses(static_cast<std::size_t>(size)),
        outcomes(static_cast<std::size_t>(size));
    std::vector<pid_t> children;
    for (int index = 0; index < size; ++index) {
      const pid_t child = ::fork();
      if (child == 0) {
        outcomes[static_cast<std::size_t>(index)].put(member(size, index, addresses, part));
        ::_exit(0);  // runs no destructors or handlers of the parent
      }
      children.push_back(child);
    }
    std::string first;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const std::string error = outcomes[i].take();
      if (first.empty() && !error.empty()) first = "member " + std::to_string(i) + ": " + error;
    }
    for (const pid_t child : children) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    return first;
  }

 private:
  static Result<SharedMemory> share(const Group& group, const std::vector<Pipe>& addresses) {
    const auto prepare = [&](const SharedMemory& memory) {
      return group.index == 0 ? memory.allocate(0, PairRings::control_bytes(group.size())) : Status();
    };
    if (group.index > 0) {
      const std::string address = addresses[static_cast<std::size_t>(group.index)].take();
      return platform::take_over(address, 1, group.index, prepare, soon());
    }
    auto shm_socket = platform::ShmSocket::open();
    if (!shm_socket.ok()) return shm_socket.status();
    for (const Pipe& pipe : addresses) pipe.put(shm_socket->address());
    return shm_socket->hand_out(1, group.ranks, PairRings::bytes(group.size()), prepare, soon());
  }

  static std::string member(int size, int index, const std::vector<Pipe>& addresses, const MemberPart& part) {
    const Group group = message_group(size, index);
    auto shared = share(group, addresses);
    if (!shared.ok()) return shared.status().message();
    const auto memory = std::make_shared<SharedMemory>(std::move(*shared));
    const auto allocate = [memory](ByteRange ring) { return memory->allocate(ring.offset, ring.bytes); };
    return run_member(std::make_unique<ShmTransport>(
                          std::shared_ptr<std::byte>(memory, memory->span().data()), group, allocate),
                      group, part);
  }
};

TEST_CASE("messages keep their contract between processes", "[messages]") {
  Processes medium;
  for (const MessageTest& test : message_contract()) {
    INFO(test.name);
    CHECK(medium.run(3, test.part) == "");
  }
}

}  // namespace
}  // namespace roundelay::contract
