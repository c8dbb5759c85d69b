// Another user of the host calls a Unix socket, or answers where a member expects its peer. Needs root.
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>

#include "bootstrap/bootstrap.h"
#include "platform/shm/handover.h"
#include "runtime/startup/closed_nodes.h"
#include "tests/cpp/catch.h"
#include "trust/trust.h"

namespace roundelay::platform {
namespace {

using Catch::Matchers::Contains;
using namespace std::chrono_literals;

constexpr uid_t kOther = 12345;

// A process of another user, until the end of the test.
class OtherUser {
 public:
  // The body says when it is ready, and the constructor returns.
  explicit OtherUser(const std::function<void(const std::function<void()>& ready)>& body) {
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    process_ = ::fork();
    if (process_ == 0) {
      if (::setuid(kOther) != 0) ::_exit(1);
      body([&] { static_cast<void>(::write(pipe[1], "x", 1)); });
      ::_exit(0);
    }
    ::close(pipe[1]);
    char ready = 0;
    REQUIRE(::read(pipe[0], &ready, 1) == 1);
    ::close(pipe[0]);
  }
  ~OtherUser() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;

 private:
  pid_t process_;
};

// Opens a bare socket at an abstract address, or connects to one. Returns false if the kernel refuses.
bool at(const std::string& address, bool listens) {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
  sockaddr_un native{};
  native.sun_family = AF_UNIX;
  std::memcpy(native.sun_path + 1, address.data(), address.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
  const auto* to = reinterpret_cast<const sockaddr*>(&native);
  if (listens) return ::bind(fd, to, length) == 0 && ::listen(fd, 8) == 0;
  return ::connect(fd, to, length) == 0;
}

// What another user does that answers at the address.
auto answers_at(const std::string& address) {
  return [address](const auto& ready) {
    if (!at(address, true)) ::_exit(1);
    ready();
    ::pause();
  };
}

Prepare nothing() {
  return [](const SharedMemory&) { return Status{}; };
}

TEST_CASE("another user that calls is dropped and counted, and the members share memory", "[shm]") {
  if (::geteuid() != 0) return;
  auto shm_socket = ShmSocket::open();
  REQUIRE(shm_socket.ok());
  const std::string address = shm_socket->address();
  const std::uint64_t before = trust::strangers_dropped();
  const OtherUser crowd([&](const auto& ready) {
    for (int i = 0; i < 300; ++i) static_cast<void>(at(address, false));
    ready();
    ::pause();
  });
  Status outcome;
  std::thread member([&] { outcome = take_over(address, 1, 1, nothing(), Deadline::after(20s)).status(); });
  CHECK(shm_socket->hand_out(1, {0, 1}, 4096, nothing(), Deadline::after(20s)).ok());
  member.join();
  CHECK(outcome.ok());
  CHECK(trust::strangers_dropped() - before == 300);
}

TEST_CASE("another user that answers is an error that names the user", "[shm]") {
  if (::geteuid() != 0) return;
  const std::string address = "roundelay-test-" + std::to_string(::getpid());
  const OtherUser imposter(answers_at(address));
  for (const Status& status :
       {reach(address), take_over(address, 1, 1, nothing(), Deadline::after(20s)).status()}) {
    CHECK(status.code() == StatusCode::kAborted);
    CHECK_THAT(status.message(), Contains("user 12345 is at the other end, not of 0"));
  }
  CHECK(listening_process(address) == 0);
}

// Rank `rank` of two. The other rank says what it is given.
class TwoRanks final : public bootstrap::Bootstrap {
 public:
  TwoRanks(int rank, std::string other) : rank_(rank), other_(std::move(other)) {}
  [[nodiscard]] std::string_view name() const override { return "two"; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return 2; }
  Result<std::vector<Bytes>> all_gather(ConstByteSpan mine, Deadline /*deadline*/) override {
    said = to_text(mine);
    std::vector<Bytes> all{Bytes(mine.begin(), mine.end()), to_bytes(other_)};
    if (rank_ == 1) std::swap(all[0], all[1]);
    return all;
  }
  std::string said;

 private:
  int rank_;
  std::string other_;
};

TEST_CASE("another user in a rank's place is an error on all ranks, not another fabric", "[shm]") {
  if (::geteuid() != 0) return;
  const std::string address = "roundelay-test2-" + std::to_string(::getpid());
  const OtherUser imposter(answers_at(address));
  auto own = ShmSocket::open();
  REQUIRE(own.ok());
  const std::vector<runtime::NodeInfo> nodes = {{"node", own->address()}, {"node", address}};
  TwoRanks zero(0, "");
  const auto at_zero = runtime::closed_nodes(zero, nodes, "", Deadline::after(20s));
  CHECK(at_zero.status().code() == StatusCode::kUnavailable);
  CHECK_THAT(at_zero.status().message(),
             Contains("rank 0: where rank 1 should answer, a process of user 12345 is at the other end"));
  TwoRanks one(1, zero.said);
  CHECK(runtime::closed_nodes(one, nodes, "", Deadline::after(20s)).status() == at_zero.status());
}

TEST_CASE("a node whose ranks cannot reach each other is closed", "[shm]") {
  const std::vector<runtime::NodeInfo> nodes = {{"node", "roundelay-nobody"}, {"node", "roundelay-nobody"}};
  TwoRanks one(1, "");
  const auto closed = runtime::closed_nodes(one, nodes, "", Deadline::after(20s));
  REQUIRE(closed.ok());
  CHECK(closed->at("node") == "rank 1: connect: connection refused");
}

}  // namespace
}  // namespace roundelay::platform
