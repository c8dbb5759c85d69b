// Failures of NCCL: hangs, errors of calls, later errors, absent peers, lack of memory. Every call ends,
// streams are freed, and the first cause stays.
#include <chrono>
#include <functional>
#include <thread>

#include "tests/cpp/catch.h"
#include "tests/cpp/gpu/nccl_world.h"

namespace roundelay::gpu_test {
namespace {

using collective::AllreduceCall;
using collective::Call;
using collective::Fabric;
using collective::PendingCall;

const Status kCause = Status::aborted("rank 11 was killed");

// One member's memory and stream.
struct Place {
  explicit Place(doubles::FakeGpu& of)
      : gpu(of), stream(*of.make_stream(0)), memory(*of.allocate(0, kBytes)) {}

  [[nodiscard]] AllreduceCall call(std::size_t bytes = kBytes) const {
    AllreduceCall made = contract::allreduce_over(memory.get(), bytes);
    made.stream = stream;
    return made;
  }
  // Checks that nothing blocks the stream any more.
  [[nodiscard]] bool ends() const { return gpu.drain(0, stream).ok(); }

  static constexpr std::size_t kBytes = 4000;
  doubles::FakeGpu& gpu;
  GpuStream stream;
  GpuMemory memory;
};

Status run(Fabric& fabric, const Call& call) {
  auto pending = fabric.start(call);
  return pending.ok() ? (*pending)->wait() : pending.status();
}

TEST_CASE("nccl: a call that is not enqueued until its deadline fails and poisons the fabric", "[gpu]") {
  NcclWorld world(2);
  world.nccl[0]->hang();
  const Place place(world.gpu(0));
  AllreduceCall call = place.call();
  call.deadline = Deadline::after(std::chrono::milliseconds(30));
  Fabric& fabric = *world.fabrics[0];
  const Status error = run(fabric, call);
  CHECK(error.message() == "allreduce of 4000 bytes made no progress until its deadline");
  CHECK(fabric.poisoned());
  CHECK(fabric.start(place.call()).status() == error);
  CHECK(device_calls(fabric).health() == error);
  CHECK(world.nccl[0]->aborts() == 1);
  CHECK(place.ends());
}

TEST_CASE("nccl: the abort token ends a call that is not enqueued", "[gpu]") {
  NcclWorld world(2);
  world.nccl[0]->hang();
  const Place place(world.gpu(0));
  AbortToken abort;
  AllreduceCall call = place.call();
  call.deadline = Deadline::never();
  call.abort = &abort;
  auto pending = world.fabrics[0]->start(call);
  REQUIRE(pending.ok());
  for (int i = 0; i < 100; ++i) REQUIRE((*pending)->test().ok());
  abort.raise(kCause);
  CHECK((*pending)->test().status() == kCause);
  CHECK(world.fabrics[0]->poisoned());
}

TEST_CASE("nccl: giving up frees the stream of a call whose peer does not come", "[gpu]") {
  NcclWorld world(2);
  const Place place(world.gpu(0));
  Fabric& fabric = *world.fabrics[0];
  REQUIRE(run(fabric, place.call()).ok());  // enqueued
  const auto behind = place.gpu.mark(0, place.stream);
  REQUIRE(behind.ok());
  CHECK(device_calls(fabric).health().ok());
  CHECK_FALSE(*(*behind)->reached());
  device_calls(fabric).give_up(kCause);
  CHECK(place.ends());
  CHECK(fabric.poisoned());
  CHECK(device_calls(fabric).health() == kCause);
  CHECK(fabric.start(place.call()).status() == kCause);
  device_calls(fabric).give_up(Status::aborted("later"));
  CHECK(device_calls(fabric).health() == kCause);
}

TEST_CASE("nccl: an error that comes when calls are done is told by health", "[gpu]") {
  NcclWorld world(2);
  const Place place(world.gpu(0));
  Fabric& fabric = *world.fabrics[0];
  REQUIRE(run(fabric, place.call()).ok());
  CHECK(device_calls(fabric).health().ok());
  const Status cause = Status::aborted("NCCL: remote process exited");
  world.nccl[0]->report(cause);
  CHECK(device_calls(fabric).health() == cause);
  CHECK(fabric.poisoned());
  CHECK(place.ends());
  CHECK(fabric.start(place.call()).status() == cause);
}

// A call for which NCCL's function of this name is called.
Call call_that_uses(std::string_view name, const Place& place, const std::byte* input) {
  Call call = place.call(104);
  auto exchange = contract::patient<collective::AlltoallCall>();
  exchange.input = input;
  exchange.output = {place.memory.get(), 104};
  exchange.send_bytes = exchange.receive_bytes = {52, 52};
  if (name == "broadcast") {
    call = contract::broadcast_over(place.memory.get(), 104);
  } else if (name != "all_reduce") {
    call = exchange;
  }
  collective::options_of(call).stream = place.stream;
  return call;
}

TEST_CASE("nccl: a call that NCCL refuses has NCCL's words, and so have those after it", "[gpu]") {
  for (const char* name : {"all_reduce", "broadcast", "begin_group", "end_group", "send"}) {
    NcclWorld world(2);
    const Place place(world.gpu(0));
    const Status cause = Status::aborted("NCCL: unhandled system error");
    world.nccl[0]->fail(name, cause);
    const GpuMemory input = *place.gpu.allocate(0, 104);
    INFO(name);
    CHECK(run(*world.fabrics[0], call_that_uses(name, place, input.get())).message() == cause.message());
    CHECK(world.fabrics[0]->start(place.call()).status() == cause);
    CHECK(place.ends());
  }
}

TEST_CASE("nccl: no memory for scratch is said, and the peers can be ended", "[gpu]") {
  NcclWorld world(2);
  const Place one(world.gpu(0)), two(world.gpu(1));
  one.gpu.limit_memory(Place::kBytes);
  AllreduceCall call = one.call();
  call.dtype = DType::kInt16;
  CHECK(run(*world.fabrics[0], call).code() == StatusCode::kUnavailable);
  CHECK(world.fabrics[0]->poisoned());
  call = two.call();
  call.dtype = DType::kInt16;
  CHECK(run(*world.fabrics[1], call).ok());
  device_calls(*world.fabrics[1]).give_up(kCause);
  CHECK(two.ends());
}

TEST_CASE("nccl: dropping a call in progress poisons the fabric", "[gpu]") {
  NcclWorld world(2);
  world.nccl[0]->hang();
  const Place place(world.gpu(0));
  auto pending = world.fabrics[0]->start(place.call());
  REQUIRE(pending.ok());
  pending->reset();
  CHECK(device_calls(*world.fabrics[0]).health().message() == "allreduce was dropped before its end");
}

TEST_CASE("nccl: one call's fault ends those behind it with its cause", "[gpu]") {
  NcclWorld world(2);
  world.nccl[0]->hang();
  const Place place(world.gpu(0));
  AbortToken abort;
  AllreduceCall first = place.call(400);
  first.abort = &abort;
  auto a = world.fabrics[0]->start(first);
  auto b = world.fabrics[0]->start(place.call(800));
  REQUIRE((a.ok() && b.ok()));
  abort.raise(kCause);
  CHECK((*b)->test().status() == kCause);
  CHECK((*a)->test().status() == kCause);
}

TEST_CASE("nccl: members that disagree on a call are told by health", "[gpu]") {
  NcclWorld world(2);
  const Place one(world.gpu(0)), two(world.gpu(1));
  REQUIRE(run(*world.fabrics[0], one.call(400)).ok());
  REQUIRE(run(*world.fabrics[1], two.call(800)).ok());
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  while (device_calls(*world.fabrics[0]).health().ok() && !deadline.passed()) std::this_thread::yield();
  CHECK(device_calls(*world.fabrics[0]).health().message().find("disagree") != std::string::npos);
  CHECK_FALSE(device_calls(*world.fabrics[1]).health().ok());
  CHECK((one.ends() && two.ends()));
}

TEST_CASE("nccl: a device that fails ends the call with its cause", "[gpu]") {
  NcclWorld world(2);
  const Place place(world.gpu(0));
  const Status cause = Status::aborted("an illegal memory access");
  place.gpu.fail(cause);
  CHECK(run(*world.fabrics[0], place.call()) == cause);
  CHECK(world.fabrics[0]->poisoned());
}

// A real GPU does this with two communicators in one stream.
TEST_CASE("fake NCCL: calls of two communicators in different orders in one stream hang", "[gpu]") {
  NcclWorld world(2);
  auto others = world.new_fabrics();
  const Place one(world.gpu(0)), two(world.gpu(1));
  REQUIRE((run(*world.fabrics[0], one.call()).ok() && run(*others[0], one.call()).ok()));
  REQUIRE((run(*others[1], two.call()).ok() && run(*world.fabrics[1], two.call()).ok()));
  const auto behind = one.gpu.mark(0, one.stream);
  REQUIRE(behind.ok());
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(30));
  while (!deadline.passed()) REQUIRE_FALSE(*(*behind)->reached());
  for (auto* fabrics : {&world.fabrics, &others}) {
    for (const auto& fabric : *fabrics) device_calls(*fabric).give_up(kCause);
  }
  CHECK((one.ends() && two.ends()));
}

}  // namespace
}  // namespace roundelay::gpu_test
