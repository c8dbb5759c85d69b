// Failures of two levels of GPUs: NCCL's errors, silent peers between or inside the nodes, abandoned calls.
// Every call ends, streams are freed, and the first cause stays.
#include <functional>
#include <vector>

#include "base/leak.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/gpu/levels_world.h"

namespace roundelay::gpu_test {
namespace {

using collective::Fabric;
using collective::PendingCall;

constexpr std::size_t kBytes = 100000;
const Status kCause = Status::aborted("rank 13 was killed");

// Two nodes of two members, 0 and 2, 1 and 3. Each member has an allreduce.
struct Quartet {
  explicit Quartet(const std::function<void(LevelsWorld&)>& change = {}) {
    REQUIRE(world.meet() == "");
    if (change) change(world);
  }
  ~Quartet() {
    pendings.clear();
    world.fabrics.clear();
    leak(std::move(memory));  // after a failed call, the stream may still have copies
  }
  Quartet(const Quartet&) = delete;
  Quartet& operator=(const Quartet&) = delete;

  void start(int index) {
    const auto at = static_cast<std::size_t>(index);
    streams[at] = *world.gpu(index).make_stream(0);
    memory[at] = *world.gpu(index).allocate(0, kBytes);
    pendings[at] = start_again(index).value();
  }
  Result<std::unique_ptr<PendingCall>> start_again(int index) {
    const auto at = static_cast<std::size_t>(index);
    collective::AllreduceCall call = contract::allreduce_over(memory[at].get(), kBytes);
    call.stream = streams[at];
    call.deadline = deadline;
    call.abort = &abort;
    return fabric(index).start(call);
  }
  void start_all() {
    for (int index = 0; index < 4; ++index) start(index);
  }
  // Tests all in turn until the condition holds.
  [[nodiscard]] bool step_until(const std::function<bool()>& holds) {
    const Deadline end = Deadline::after(std::chrono::seconds(60));
    while (!holds() && !end.passed()) {
      for (std::unique_ptr<PendingCall>& pending : pendings) {
        if (pending) static_cast<void>(pending->test());
      }
      std::this_thread::yield();
    }
    return holds();
  }
  [[nodiscard]] Status outcome(int index) {
    return pendings[static_cast<std::size_t>(index)]->test().status();
  }
  [[nodiscard]] Fabric& fabric(int index) { return *world.fabrics[static_cast<std::size_t>(index)]; }
  // Checks that nothing blocks the stream any more.
  [[nodiscard]] bool is_free(int index) {
    return world.gpu(index).drain(0, streams[static_cast<std::size_t>(index)]).ok();
  }

  LevelsWorld world{2, 2};
  AbortToken abort;
  Deadline deadline = Deadline::never();
  std::vector<GpuStream> streams = std::vector<GpuStream>(4);
  std::vector<GpuMemory> memory = std::vector<GpuMemory>(4);
  std::vector<std::unique_ptr<PendingCall>> pendings = std::vector<std::unique_ptr<PendingCall>>(4);
};

TEST_CASE("two levels of GPUs: a member whose NCCL fails says so, and the others end with the abort token",
          "[gpu][levels]") {
  const Status cause = Status::aborted("NCCL: unhandled system error");
  for (const bool in_call : {true, false}) {
    Quartet all([&](LevelsWorld& world) {
      if (in_call) world.members[2].nccl->fail("reduce_scatter", cause);
      if (!in_call) world.members[2].nccl->report(cause);
    });
    all.start_all();
    CHECK(all.step_until([&] { return !all.outcome(2).ok(); }));
    CHECK(all.outcome(2) == cause);
    CHECK(device_calls(all.fabric(2)).health() == cause);
    all.abort.raise(cause);
    for (int index = 0; index < 4; ++index) {
      INFO("member " << index);
      CHECK(all.outcome(index) == cause);
      CHECK(all.fabric(index).poisoned());
      CHECK(all.start_again(index).status() == cause);
      CHECK(all.is_free(index));
    }
  }
}

TEST_CASE("two levels of GPUs: who is silent between the nodes is named at the deadline", "[gpu][levels]") {
  Quartet all([](LevelsWorld& world) { world.levels.silence_in(1, 3); });
  all.deadline = Deadline::after(std::chrono::seconds(1));
  all.start_all();
  CHECK(all.step_until([&] { return !all.outcome(2).ok(); }));
  CHECK(all.outcome(2).message().find("waiting for rank 13") != std::string::npos);
  CHECK(all.fabric(2).poisoned());
  all.abort.raise(kCause);
  CHECK(all.step_until([&] { return !all.outcome(0).ok() && !all.outcome(1).ok() && !all.outcome(3).ok(); }));
  for (int index = 0; index < 4; ++index) CHECK(all.is_free(index));
}

TEST_CASE("two levels of GPUs: the abort token ends a call whose node peer does not come, and its stream",
          "[gpu][levels]") {
  Quartet all;
  for (const int index : {0, 1, 3}) all.start(index);
  for (int i = 0; i < 1000; ++i) REQUIRE(all.outcome(0).ok());
  auto behind = all.start_again(0);
  REQUIRE(behind.ok());
  all.abort.raise(kCause);
  for (const int index : {0, 1, 3}) {
    INFO("member " << index);
    CHECK(all.step_until([&] { return !all.outcome(index).ok(); }));
    CHECK(all.outcome(index) == kCause);
    CHECK(all.is_free(index));
  }
  CHECK((*behind)->test().status() == kCause);
}

TEST_CASE("two levels of GPUs: dropping a call frees its stream, and so does giving up", "[gpu][levels]") {
  for (const bool drop : {true, false}) {
    Quartet all;
    for (const int index : {0, 1, 3}) all.start(index);
    for (int i = 0; i < 100; ++i) REQUIRE(all.outcome(0).ok());
    if (drop) all.pendings[0].reset();
    if (!drop) device_calls(all.fabric(0)).give_up(kCause);
    CHECK(all.is_free(0));
    CHECK(all.fabric(0).poisoned());
    const std::string cause = drop ? "allreduce was dropped before its end" : kCause.message();
    CHECK(device_calls(all.fabric(0)).health().message() == cause);
    CHECK(all.start_again(0).status().message() == cause);
    CHECK(all.world.members[0].nccl->aborts() == 1);
    all.abort.raise(kCause);
    CHECK(all.step_until([&] { return !all.outcome(1).ok() && !all.outcome(3).ok(); }));
  }
}

}  // namespace
}  // namespace roundelay::gpu_test
