// The first member makes memory and hands it out at its shm socket. Threads are the members.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "platform/shm/handover.h"
#include "tests/cpp/catch.h"

namespace roundelay::platform {
namespace {

constexpr std::size_t kBytes = 64 << 10;

Prepare allocate_all() {
  return [](const SharedMemory& memory) { return memory.allocate(0, memory.span().size()); };
}

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

struct Outcome {
  Status first;
  std::vector<Status> others;
};

// A group of ranks 5, 6, 7 ...; member i calls prepare(i). The others read what the first writes.
Outcome hand_around(int members, std::size_t bytes, const std::function<Prepare(int)>& prepare) {
  auto shm_socket = ShmSocket::open();
  REQUIRE(shm_socket.ok());
  std::vector<int> ranks;
  for (int i = 0; i < members; ++i) ranks.push_back(5 + i);
  Outcome outcome;
  outcome.others.resize(static_cast<std::size_t>(members - 1));
  std::vector<std::thread> threads;
  std::vector<SharedMemory> memories(static_cast<std::size_t>(members));
  for (int i = 1; i < members; ++i) {
    threads.emplace_back([&, i] {
      auto memory = take_over(shm_socket->address(), 3, i, prepare(i), soon());
      outcome.others[static_cast<std::size_t>(i - 1)] = memory.status();
      if (memory.ok()) memories[static_cast<std::size_t>(i)] = std::move(*memory);
    });
  }
  auto memory = shm_socket->hand_out(3, ranks, bytes, prepare(0), soon());
  for (std::thread& thread : threads) thread.join();
  outcome.first = memory.status();
  if (!memory.ok()) return outcome;
  std::memset(memory->span().data(), 7, bytes);
  for (int i = 1; i < members; ++i) {
    const ByteSpan span = memories[static_cast<std::size_t>(i)].span();
    CHECK(span.size() == bytes);
    CHECK(span.data() != memory->span().data());
    CHECK(std::count(span.begin(), span.end(), std::byte{7}) == static_cast<std::ptrdiff_t>(bytes));
  }
  return outcome;
}

TEST_CASE("shared memory is handed to all members", "[shm]") {
  for (const int members : {1, 2, 5, 16}) {
    const Outcome outcome = hand_around(members, kBytes, [](int) { return allocate_all(); });
    CHECK(outcome.first == Status{});
    for (const Status& status : outcome.others) CHECK(status == Status{});
  }
}

TEST_CASE("if one member cannot have it, none has, for one reason", "[shm]") {
  for (const int unlucky : {0, 1, 2}) {
    const Outcome outcome = hand_around(3, kBytes, [unlucky](int member) -> Prepare {
      if (member != unlucky) return allocate_all();
      return [](const SharedMemory&) { return Status::unavailable("no space left on device"); };
    });
    const std::string why = "rank " + std::to_string(5 + unlucky) + ": no space left on device";
    CHECK(outcome.first.message() == why);
    for (const Status& status : outcome.others) CHECK(status == outcome.first);
  }
}

TEST_CASE("memory that cannot be is a refusal, not a crash", "[shm]") {
  const Outcome outcome = hand_around(2, std::size_t{1} << 60U, [](int) { return allocate_all(); });
  CHECK_FALSE(outcome.first.ok());
  CHECK(outcome.others[0] == outcome.first);
}

TEST_CASE("who does not come is named at the deadline", "[shm]") {
  auto shm_socket = ShmSocket::open();
  REQUIRE(shm_socket.ok());
  Status heard;
  std::thread guest([&heard, address = shm_socket->address()] {
    heard = take_over(address, 1, 2, allocate_all(), soon()).status();
  });
  const auto memory = shm_socket->hand_out(1, {0, 4, 9}, kBytes, allocate_all(),
                                           Deadline::after(std::chrono::milliseconds(200)));
  CHECK(memory.status().code() == StatusCode::kAborted);
  CHECK(memory.status().message() == "shared memory: rank 4 did not come for the shared memory in time");
  shm_socket = ShmSocket::open();  // the end of the first shm socket lets its guest go
  guest.join();
  CHECK(heard.code() == StatusCode::kAborted);
}

TEST_CASE("groups do not mix: who comes early waits for its turn", "[shm]") {
  auto shm_socket = ShmSocket::open();
  REQUIRE(shm_socket.ok());
  Status outcomes[3] = {};
  const auto come = [&](std::uint64_t key) {
    return std::thread([&outcome = outcomes[key], address = shm_socket->address(), key] {
      outcome = take_over(address, key, 1, allocate_all(), soon()).status();
    });
  };
  std::thread second = come(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(reach(shm_socket->address()) == Status{});
  std::thread first = come(1);
  CHECK(shm_socket->hand_out(1, {0, 1}, kBytes, allocate_all(), soon()).ok());
  CHECK(shm_socket->hand_out(2, {0, 1}, kBytes, allocate_all(), soon()).ok());
  first.join();
  second.join();
  for (const Status& outcome : outcomes) CHECK(outcome == Status{});
}

TEST_CASE("a shm socket that does not exist cannot be reached", "[shm]") {
  CHECK(reach("roundelay-nobody").message() == "connect: connection refused");
  CHECK_FALSE(take_over("roundelay-nobody", 1, 1, allocate_all(), soon()).ok());
}

TEST_CASE("a forked child does not have the memory", "[shm]") {
  const auto memory = SharedMemory::create(kBytes);
  REQUIRE(memory.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::signal(SIGSEGV, SIG_DFL);
    const volatile std::byte* const data = memory->span().data();
    ::_exit(data[0] == std::byte{0} ? 0 : 1);  // SIGSEGV
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
}

}  // namespace
}  // namespace roundelay::platform
