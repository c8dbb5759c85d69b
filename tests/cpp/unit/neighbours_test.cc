// The state of the other processes on a node, as a rank sees it.
#include "control/neighbours.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "platform/process.h"
#include "tests/cpp/catch.h"

namespace roundelay::control {
namespace {

using platform::Activity;
using std::chrono::seconds;

const TimePoint kStart{seconds(1000)};

// A process that reads from a pipe to which nobody writes.
class Reader {
 public:
  Reader() {
    REQUIRE(::pipe(ends_.data()) == 0);
    process_ = ::fork();
    if (process_ != 0) return;
    char byte = 0;
    static_cast<void>(!::read(ends_[0], &byte, 1));
    ::_exit(0);
  }
  ~Reader() {
    end();
    for (const int fd : ends_) ::close(fd);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] pid_t process() const { return process_; }
  // Stops the process, and returns when it has stopped.
  void stop() const {
    ::kill(process_, SIGSTOP);
    ::waitpid(process_, nullptr, WUNTRACED);
  }
  void go_on() const {
    ::kill(process_, SIGCONT);
    ::waitpid(process_, nullptr, WCONTINUED);
  }
  void end() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  std::array<int, 2> ends_{};
  pid_t process_ = 0;
};

Group group_of(std::vector<int> ranks, int index) { return {0, std::move(ranks), index}; }

TEST_CASE("a process's state is read after its name, even if that has parentheses", "[neighbours]") {
  CHECK(platform::parse_activity("12 (python) R 1 12") == Activity::kRuns);
  CHECK(platform::parse_activity("12 (a) T (b) S 1 12") == Activity::kSleeps);
  CHECK(platform::parse_activity("12 (python) D 1 12") == Activity::kSleeps);
  CHECK(platform::parse_activity("12 (python) T 1 12") == Activity::kStopped);
  CHECK(platform::parse_activity("12 (python) t 1 12") == Activity::kStopped);
  CHECK(platform::parse_activity("12 (python) Z 1 12") == Activity::kEnded);
  CHECK(platform::parse_activity("") == Activity::kEnded);
  CHECK(platform::parse_activity("12 (python) ") == Activity::kEnded);
}

TEST_CASE("system calls have names, those too that are newer than the headers", "[neighbours]") {
  using platform::name_of_system_call;
  CHECK(name_of_system_call(SYS_read) == "read");
  CHECK(name_of_system_call(SYS_futex) == "futex");
  CHECK(name_of_system_call(SYS_unlinkat) == "unlinkat");
  CHECK(name_of_system_call(SYS_process_vm_readv) == "process_vm_readv");
  CHECK(name_of_system_call(SYS_pidfd_send_signal) == "pidfd_send_signal");
  CHECK(name_of_system_call(SYS_io_uring_enter) == "io_uring_enter");
  CHECK(name_of_system_call(441) == "epoll_pwait2");
  CHECK(name_of_system_call(449) == "futex_waitv");
  CHECK(name_of_system_call(455) == "futex_wait");
  CHECK(name_of_system_call(469) == "file_setattr");
  CHECK(name_of_system_call(100000) == "number 100000");
}

TEST_CASE("an account tells what a process does", "[neighbours]") {
  CHECK(platform::activity_of(::getpid()) == Activity::kRuns);
  Reader reader;
  const Neighbours neighbours({{4, reader.process()}});
  const std::string process = "its process " + std::to_string(reader.process()) + " ";
  CHECK(neighbours.account(3).empty());
  while (platform::activity_of(reader.process()) == Activity::kRuns) ::usleep(1000);
  // Not every kernel tells the name of the system call.
  CHECK(neighbours.account(4).find(process + "waits") == 0);
  reader.stop();
  CHECK(neighbours.account(4) == process + "is stopped (SIGSTOP, Ctrl-Z or a debugger)");
  reader.end();
  CHECK(neighbours.account(4) == process + "has ended");
}

TEST_CASE("a rank that stops is named once, by the first member that runs", "[neighbours]") {
  Reader one;
  Reader two;
  const std::vector<Neighbour> others = {{1, one.process()}, {2, two.process()}};
  Neighbours seen_by_0(others);
  Neighbours seen_by_3(others);
  const Group from_0 = group_of({0, 1, 2, 3}, 0);
  const Group from_3 = group_of({0, 1, 2, 3}, 3);
  CHECK(seen_by_0.look(from_0).empty());
  two.stop();
  const auto lines = seen_by_0.look(from_0);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("rank 2, which other ranks wait for, is stopped") == 0);
  CHECK(lines[0].find("kill -CONT " + std::to_string(two.process())) != std::string::npos);
  CHECK(seen_by_0.look(from_0).empty());
  CHECK(seen_by_3.look(from_3).empty());                        // rank 1 runs
  CHECK(Neighbours(others).look(group_of({0, 1}, 0)).empty());  // rank 2 is no member
  two.go_on();
  CHECK(seen_by_0.look(from_0).empty());
  two.stop();
  CHECK(seen_by_0.look(from_0).size() == 1);
  one.stop();
  CHECK(seen_by_3.look(from_3).size() == 1);
}

TEST_CASE("neighbours are looked at now and then while this rank waits", "[neighbours]") {
  NeighbourWatch watch;
  CHECK_FALSE(watch.check(false, kStart));
  CHECK(watch.next_due() == Deadline::never());
  CHECK_FALSE(watch.check(true, kStart));
  CHECK(watch.next_due() == Deadline::at(kStart + NeighbourWatch::kPeriod));
  CHECK_FALSE(watch.check(true, kStart + seconds(1)));
  CHECK(watch.check(true, kStart + NeighbourWatch::kPeriod));
  CHECK_FALSE(watch.check(true, kStart + NeighbourWatch::kPeriod));
  CHECK(watch.check(true, kStart + 2 * NeighbourWatch::kPeriod));
  CHECK_FALSE(watch.check(false, kStart + 3 * NeighbourWatch::kPeriod));
  CHECK(watch.next_due() == Deadline::never());
  CHECK_FALSE(watch.check(true, kStart + 9 * NeighbourWatch::kPeriod));
}

}  // namespace
}  // namespace roundelay::control
