// Staged calls that nobody waits for or that fail: devices are busy, fail or have no memory; peers do not
// come.
#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "base/leak.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/gpu/staged_world.h"

namespace roundelay::gpu_test {
namespace {

using collective::AllreduceCall;
using collective::BarrierCall;
using collective::BroadcastCall;
using collective::Fabric;
using collective::PendingCall;
using doubles::FakeGpu;

// One member's call on device memory of its own, filled with its index + 1. The memory is leaked, because the
// stream may have copies after a failed call.
struct Started {
  Started() = default;
  ~Started() {
    pending.reset();
    leak(std::move(memory));
  }
  Started(Started&&) = default;
  Started& operator=(Started&&) = default;

  GpuStream stream = nullptr;
  GpuMemory memory;
  std::unique_ptr<PendingCall> pending;
};

AllreduceCall of_bytes() {
  auto call = contract::patient<AllreduceCall>();
  call.dtype = DType::kUInt8;
  return call;
}

void work_on(AllreduceCall& call, ByteSpan memory) { call.buffer = {memory.data(), 0, memory.size()}; }
void work_on(BroadcastCall& call, ByteSpan memory) { call.buffer = memory; }
void work_on(BarrierCall& /*call*/, ByteSpan /*memory*/) {}

template <class Kind = AllreduceCall>
Started start(StagedMember& member, std::size_t bytes, Kind call = of_bytes()) {
  Started started;
  started.stream = *member.gpu->make_stream(0);
  started.memory = *member.gpu->allocate(0, bytes);
  std::memset(started.memory.get(), member.staged->group().index + 1, bytes);
  REQUIRE(member.gpu->enqueue(0, started.stream, [] {}).ok());  // the call comes after this work
  work_on(call, {started.memory.get(), bytes});
  call.stream = started.stream;
  auto pending = member.staged->start(call);
  REQUIRE(pending.ok());
  started.pending = std::move(*pending);
  return started;
}

// Tests all in turn until each is done or has failed.
std::vector<Status> run_all(std::vector<Started>& calls) {
  std::vector<Status> outcomes(calls.size());
  std::vector<bool> over(calls.size());
  const Deadline end = Deadline::after(std::chrono::seconds(60));
  while (std::count(over.begin(), over.end(), false) > 0 && !end.passed()) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (over[i]) continue;
      const Result<bool> done = calls[i].pending->test();
      over[i] = !done.ok() || *done;
      outcomes[i] = done.status();
    }
    std::this_thread::yield();
  }
  REQUIRE(std::count(over.begin(), over.end(), false) == 0);
  return outcomes;
}

Status test_until_over(Started& call) {
  std::vector<Started> one;
  one.push_back(std::move(call));
  Status outcome = run_all(one).front();
  call = std::move(one.front());
  return outcome;
}

AllreduceCall with(const AbortToken& abort) {
  AllreduceCall call = of_bytes();
  call.abort = &abort;
  return call;
}

TEST_CASE("staged: while the device is busy, starting and testing a call return", "[gpu]") {
  StagedWorld world(2);
  std::vector<Started> calls;
  {
    const FakeGpu::Hold hold(*world.members[0].gpu);
    for (StagedMember& member : world.members) {
      calls.push_back(start(member, 5 * kPiece + 1));
    }
    for (int i = 0; i < 1000; ++i) {
      for (const Started& call : calls) REQUIRE_FALSE(*call.pending->test());
    }
    CHECK(calls[0].pending->waiting_for() == -1);  // its own device holds it up
  }
  for (const Status& outcome : run_all(calls)) CHECK(outcome.ok());
  for (int i = 0; i < 2; ++i) {
    const Started& call = calls[static_cast<std::size_t>(i)];
    REQUIRE(world.members[static_cast<std::size_t>(i)].gpu->drain(0, call.stream).ok());
    CHECK(call.memory.get()[5 * kPiece] == std::byte{3});
  }
}

TEST_CASE("staged: a call is done when it is enqueued, and pinned memory is used again when it is free",
          "[gpu]") {
  StagedWorld world(2);
  std::vector<std::vector<Started>> calls(4);
  const auto begin = [&](std::vector<Started>& both) {
    for (StagedMember& member : world.members) {
      both.push_back(start(member, 1000, contract::patient<BroadcastCall>()));
    }
  };
  {
    const FakeGpu::Hold hold(*world.members[1].gpu);  // member 1 only receives
    for (std::size_t i = 0; i < 3; ++i) {
      begin(calls[i]);
      for (const Status& outcome : run_all(calls[i])) CHECK(outcome.ok());
      CHECK(calls[i][1].memory.get()[0] == std::byte{2});  // the device has not done it yet
    }
    // All pinned pieces still have to be copied to the device.
    begin(calls[3]);
    for (int i = 0; i < 1000; ++i) {
      for (const Started& call : calls[3]) REQUIRE_FALSE(*call.pending->test());
    }
  }
  for (const Status& outcome : run_all(calls[3])) CHECK(outcome.ok());
  for (const std::vector<Started>& both : calls) {
    REQUIRE(world.members[1].gpu->drain(0, both[1].stream).ok());
    CHECK(both[1].memory.get()[999] == std::byte{1});
  }
}

TEST_CASE("staged: a barrier waits for its turn in every member's stream", "[gpu]") {
  StagedWorld world(2);
  std::vector<Started> calls;
  {
    const FakeGpu::Hold hold(*world.members[1].gpu);
    for (StagedMember& member : world.members)
      calls.push_back(start(member, 0, contract::patient<BarrierCall>()));
    REQUIRE(world.members[0].gpu->drain(0, calls[0].stream).ok());
    for (int i = 0; i < 1000; ++i) {
      for (const Started& call : calls) REQUIRE_FALSE(*call.pending->test());
    }
    CHECK(calls[0].pending->waiting_for() == 1);
  }
  for (const Status& outcome : run_all(calls)) CHECK(outcome.ok());
}

TEST_CASE("staged: a member whose device fails says why, and the others end with the abort token", "[gpu]") {
  for (const bool at_once : {true, false}) {
    StagedWorld world(2);
    AbortToken abort;
    std::vector<Started> calls;
    for (StagedMember& member : world.members) {
      calls.push_back(start(member, 50 * kPiece, with(abort)));
    }
    for (int i = 0; !at_once && i < 10; ++i) {  // fewer steps than all pieces need
      for (const Started& call : calls) REQUIRE_FALSE(*call.pending->test());
    }
    world.members[1].gpu->fail(Status::aborted("an illegal address"));
    const Status first = test_until_over(calls[1]);
    CHECK(first.message() == "an illegal address");
    abort.raise(first);
    CHECK(test_until_over(calls[0]) == first);
    for (const StagedMember& member : world.members) {
      CHECK(member.staged->poisoned());
      CHECK(member.staged->start(contract::patient<BarrierCall>()).status() == first);
    }
  }
}

TEST_CASE("staged: a member without pinned memory says so, and the others end with the abort token",
          "[gpu]") {
  StagedWorld world(2);
  AbortToken abort;
  world.members[0].gpu->limit_pinned(2 * kPiece);
  std::vector<Started> calls;
  for (StagedMember& member : world.members) {
    calls.push_back(start(member, 5 * kPiece, with(abort)));
  }
  const Status first = test_until_over(calls[0]);
  CHECK(first.code() == StatusCode::kUnavailable);
  CHECK(first.message().find("pinned") != std::string::npos);
  CHECK(world.members[0].staged->poisoned());
  abort.raise(first);
  CHECK(test_until_over(calls[1]) == first);
  CHECK(world.members[1].staged->poisoned());
}

TEST_CASE("staged: pinned memory is kept within its bounds", "[gpu]") {
  StagedWorld world(1);
  StagedMember& member = world.members[0];
  auto whole = contract::patient<AllreduceCall>();
  whole.reduce_op = ReduceOp::kAdasum;
  const auto run = [&](std::size_t bytes, const AllreduceCall& kind) {
    Started call = start(member, bytes, kind);
    const Status outcome = test_until_over(call);
    REQUIRE(member.gpu->drain(0, call.stream).ok());
    return outcome.ok();
  };
  member.gpu->limit_pinned(3 * kPiece + 40 * kPiece);
  CHECK(run(30 * kPiece, of_bytes()));
  CHECK(run(40 * kPiece, whole));
  CHECK(run(2 * kPiece, whole));  // gives back the 40 pieces
  member.gpu->limit_pinned(3 * kPiece + 2 * kPiece);
  CHECK(run(2 * kPiece, whole));
  CHECK(run(30 * kPiece, of_bytes()));
  CHECK_FALSE(run(3 * kPiece, whole));
}

TEST_CASE("staged: whoever is silent is named at the deadline; a late device is none of the others",
          "[gpu]") {
  for (const bool busy : {false, true}) {
    StagedWorld world(2);
    AllreduceCall soon = of_bytes();
    // Long enough for the device's thread to come to its copy, also on a busy machine.
    soon.deadline = Deadline::after(std::chrono::milliseconds(busy ? 100 : 1500));
    if (!busy) world.hub->silence(1);
    std::optional<FakeGpu::Hold> hold;
    if (busy) hold.emplace(*world.members[0].gpu);
    Started call = start(world.members[0], 1000, soon);
    const Status outcome = test_until_over(call);
    CHECK(outcome.code() == StatusCode::kAborted);
    CHECK(outcome.message().find(busy ? "its GPU" : "waiting for rank 11") != std::string::npos);
    CHECK(world.members[0].staged->poisoned());
  }
}

TEST_CASE("staged: the abort token ends a call, and those behind it", "[gpu]") {
  StagedWorld world(2);
  AbortToken abort;
  const FakeGpu::Hold hold(*world.members[0].gpu);
  Started first = start(world.members[0], 1000, with(abort));
  Started second = start(world.members[0], 1000);
  CHECK_FALSE(*second.pending->test());
  abort.raise(Status::aborted("rank 11 was killed"));
  CHECK(first.pending->test().status().message() == "rank 11 was killed");
  CHECK(second.pending->test().status().message() == "rank 11 was killed");
}

TEST_CASE("staged: dropping a call poisons the fabric, and its memory is not given to anyone", "[gpu]") {
  StagedWorld world(2);
  StagedMember& member = world.members[0];
  member.gpu->limit_pinned(kPiece);
  Started first = start(member, kPiece);
  Started second = start(member, 1000);
  while (first.pending->waiting_for() != 1) REQUIRE_FALSE(*first.pending->test());
  first.pending.reset();  // from now on the peer may write to its pinned memory
  CHECK(member.staged->poisoned());
  CHECK(second.pending->test().status().message() == "allreduce was dropped before its end");
  member.staged.reset();
  CHECK_FALSE(member.gpu->allocate_pinned(1).ok());
}

TEST_CASE("staged: calls on the host's memory are refused", "[gpu]") {
  StagedWorld world(1);
  std::byte memory[4]{};
  const auto refused = world.members[0].staged->start(contract::allreduce_over(memory, 4));
  CHECK(refused.status().code() == StatusCode::kInvalidArgument);
  CHECK(world.members[0].staged->capabilities().make_region(1, 8).status().code() ==
        StatusCode::kUnavailable);
  CHECK_FALSE(world.members[0].staged->poisoned());
}

}  // namespace
}  // namespace roundelay::gpu_test
