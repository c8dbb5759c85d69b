#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/abort.h"
#include "base/annotations.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/dtype.h"
#include "base/group.h"
#include "base/log.h"
#include "base/status.h"
#include "base/within.h"
#include "tests/cpp/catch.h"

namespace roundelay {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE("a bound process counts the cores of the others too", "[base]") {
  cpu_set_t before, one;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK_FALSE(outnumber_cores(CPU_COUNT(&before)));
  CHECK(outnumber_cores(CPU_SETSIZE + 1));
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  const bool too_many = outnumber_cores(CPU_COUNT(&before));
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK_FALSE(too_many);
}

TEST_CASE("all ranks of a machine count against all of its cores", "[base]") {
  const auto online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  CHECK_FALSE(outnumber_machine(online));
  CHECK(outnumber_machine(online + 1));
}

TEST_CASE("the cores of a cgroup are read", "[base]") {
  CHECK(cores_in("0-3,8,10-11") == 7);
  CHECK(cores_in("5") == 1);
  for (const char* wrong : {"", "0-", "-1", "3-1", "0,", "0-3x", "all", "0-3\n1"}) {
    INFO(wrong);
    CHECK(cores_in(wrong) == 0);
  }
  CHECK(cgroup_in("0::/system.slice/slurmstepd.scope/job_7/step_0\n") ==
        "/system.slice/slurmstepd.scope/job_7/step_0");
  CHECK(cgroup_in("9:cpuset:/a\n1:name=systemd:/\n0::/\n") == "/");
  CHECK(cgroup_in("0::/../other").empty());
  CHECK(cgroup_in("3:cpuset:/a\n").empty());
  CHECK(cgroup_in("").empty());
}

TEST_CASE("a status is success or a code with a message", "[base]") {
  CHECK(Status{}.ok());
  CHECK(Status{}.code() == StatusCode::kOk);
  CHECK(Status{}.message().empty());
  const Status status = Status::mismatch("shapes differ");
  CHECK_FALSE(status.ok());
  CHECK(status.code() == StatusCode::kMismatch);
  CHECK(status.message() == "shapes differ");
  CHECK(status == Status::mismatch("shapes differ"));
  CHECK_FALSE(status == Status::aborted("shapes differ"));
  CHECK_FALSE(status == Status{});
}

TEST_CASE("a result holds a value or the reason for none", "[base]") {
  Result<std::string> good(std::string("x"));
  REQUIRE(good.ok());
  CHECK(good.status().ok());
  CHECK(good->size() == 1);
  CHECK(std::move(good).value() == "x");
  const Result<std::string> bad(Status::unavailable("no MPI"));
  CHECK_FALSE(bad.ok());
  CHECK(bad.status().code() == StatusCode::kUnavailable);
}

TEST_CASE("errors are passed on", "[base]") {
  const auto outer = [](const Status& inner) -> Result<int> {
    ROUNDELAY_RETURN_IF_ERROR(inner);
    return 1;
  };
  CHECK(*outer(Status{}) == 1);
  CHECK(outer(Status::internal("x")).status().message() == "x");
}

TEST_CASE("deadlines", "[base]") {
  const TimePoint now = steady_now();
  const Deadline soon = Deadline::at(now + milliseconds(5));
  CHECK_FALSE(soon.passed(now));
  CHECK(soon.passed(now + milliseconds(5)));
  CHECK(Deadline::at(now).passed());
  CHECK_FALSE(Deadline::never().passed());
  CHECK(soon.sooner(Deadline::never()) == soon);
  CHECK(Deadline::never().sooner(soon) == soon);
  CHECK(soon.later(Deadline::at(now)) == soon);
}

TEST_CASE("a deadline passes when its flag becomes true, and waits look at that", "[base]") {
  std::atomic<bool> given_up{false};
  const Deadline limit = Deadline::after(std::chrono::hours(1)).unless(&given_up);
  CHECK_FALSE(limit.passed());
  CHECK(limit.poll_milliseconds(steady_now()) < 1000);
  std::promise<void> held;
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(10));
    given_up = true;
  });
  CHECK_FALSE(within<bool>(limit, [held = held.get_future().share()] {
    held.wait();
    return true;
  }));
  other.join();
  CHECK(limit.passed());
  CHECK(Deadline::never().sooner(limit).passed());
  CHECK(Deadline::after(std::chrono::hours(2)).later(limit).passed());
  CHECK(limit.poll_milliseconds(steady_now()) == 0);
  held.set_value();
}

TEST_CASE("a time in a message is 0 s only if it is zero", "[base]") {
  CHECK(seconds_text(Duration{0}) == "0 s");
  CHECK(seconds_text(Duration{1}) == "0.1 s");
  CHECK(seconds_text(milliseconds(200)) == "0.2 s");
  CHECK(seconds_text(milliseconds(999)) == "1 s");
  CHECK(seconds_text(milliseconds(1240)) == "1.2 s");
  CHECK(seconds_text(milliseconds(9990)) == "10 s");
  CHECK(seconds_text(milliseconds(60400)) == "60 s");
}

TEST_CASE("a deadline in milliseconds never ends early", "[base]") {
  const TimePoint now = steady_now();
  CHECK(Deadline::never().poll_milliseconds(now) == -1);
  CHECK(Deadline::at(now).poll_milliseconds(now) == 0);
  CHECK(Deadline::at(now - milliseconds(1)).poll_milliseconds(now) == 0);
  CHECK(Deadline::at(now + microseconds(1)).poll_milliseconds(now) == 1);
  CHECK(Deadline::at(now + milliseconds(7)).poll_milliseconds(now) == 7);
  CHECK(Deadline::at(now + std::chrono::hours(24 * 365)).poll_milliseconds(now) ==
        std::numeric_limits<int>::max());
}

TEST_CASE("the first cause of an abort wins, for every thread", "[base]") {
  AbortToken token;
  CHECK_FALSE(token.raised());
  CHECK(token.cause().ok());
  std::atomic<int> winners{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] { winners += token.raise(Status::aborted(std::to_string(i))) ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  CHECK(winners == 1);
  REQUIRE(token.raised());
  const Status cause = token.cause();
  CHECK(cause.code() == StatusCode::kAborted);
  CHECK_FALSE(token.raise(Status::aborted("late")));
  CHECK(token.cause() == cause);
}

TEST_CASE("a condition variable wakes on notification and at the deadline", "[base]") {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  std::thread writer([&] {
    MutexLock lock(mutex);
    ready = true;
    changed.notify_all();
  });
  {
    MutexLock lock(mutex);
    while (!ready) changed.wait_until(mutex, Deadline::never());
  }
  writer.join();
  const Deadline deadline = Deadline::after(milliseconds(1));
  MutexLock lock(mutex);
  while (!deadline.passed()) changed.wait_until(mutex, deadline);
  CHECK(deadline.passed());
}

TEST_CASE("element types", "[base]") {
  CHECK(size_of(DType::kFloat64) == 8);
  CHECK(size_of(DType::kBFloat16) == 2);
  CHECK(size_of(DType::kBool) == 1);
  CHECK(name_of(DType::kBFloat16) == "bfloat16");
  CHECK(name_of(DType::kBool) == "bool");
  CHECK(is_floating(DType::kBFloat16));
  CHECK_FALSE(is_floating(DType::kInt64));
  CHECK(name_of(ReduceOp::kAverage) == "Average");
  CHECK(static_cast<int>(ReduceOp::kProduct) == 5);
  CHECK(name_of(Operation::kBarrier) == "barrier");
}

TEST_CASE("identity scales", "[base]") {
  CHECK(Scale{}.identity());
  CHECK_FALSE(Scale{.factor = 0.5, .divisor = 1}.identity());
  CHECK_FALSE(Scale{.factor = 1.0, .divisor = 2}.identity());
}

TEST_CASE("groups and lanes", "[base]") {
  const Group group{.id = 4, .ranks = {1, 5, 9}, .index = 2};
  CHECK(group.size() == 3);
  CHECK(group.world_rank() == 9);
  CHECK(LaneId{.process_set = 0, .device = 1} < LaneId{.process_set = 1, .device = 0});
  CHECK(LaneId{}.device == LaneId::kCpu);
}

TEST_CASE("log levels below the least are not shown", "[base]") {
  set_log(LogLevel::kError, 0, false);
  CHECK_FALSE(log_enabled(LogLevel::kWarning));
  CHECK(log_enabled(LogLevel::kError));
  CHECK(log_enabled(LogLevel::kFatal));
  set_log(LogLevel::kWarning, -1, true);
  CHECK(log_enabled(LogLevel::kWarning));
}

}  // namespace
}  // namespace roundelay
