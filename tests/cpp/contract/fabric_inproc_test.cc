// The fabric contract with threads in one process, and this medium's own tests: faults, and one thread that
// steps all members.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <random>

#include "collective/inproc/hub.h"
#include "collective/single/single_fabric.h"
#include "tests/cpp/algorithm_names.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/in_time.h"

namespace roundelay::contract {
namespace {

using collective::AllgatherCall;
using collective::AlltoallCall;
using collective::InprocHub;
using collective::make_inproc_fabric;
using collective::PendingCall;
using collective::ReducescatterCall;

Group group_of(int size, int index) {
  Group group;
  for (int rank = 0; rank < size; ++rank)
    group.ranks.push_back(10 + rank);  // world ranks differ from indices
  group.index = index;
  return group;
}

std::vector<std::unique_ptr<Fabric>> fabrics_of(const std::shared_ptr<InprocHub>& hub, int size,
                                                Select select = {}) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (int i = 0; i < size; ++i) fabrics.push_back(make_inproc_fabric(hub, group_of(size, i), select));
  return fabrics;
}

class ThreadMedium final : public Medium {
 public:
  [[nodiscard]] int largest_group() const override { return largest_of_threads(); }
  std::string run(int size, Select select, const Part& part) override {
    return run_on_threads(fabrics_of(std::make_shared<InprocHub>(size), size, select), part);
  }
};

// Runs one member's allreduce of ones.
struct Member {
  std::vector<float> data;
  std::unique_ptr<PendingCall> pending;
  bool over = false;
  Status error;
};

std::vector<Member> start_all(const std::vector<std::unique_ptr<Fabric>>& fabrics, std::size_t count,
                              const std::function<void(AllreduceCall&)>& change = {}) {
  std::vector<Member> members(fabrics.size());
  for (std::size_t i = 0; i < fabrics.size(); ++i) {
    members[i].data.assign(count, 1.0F);
    AllreduceCall call = allreduce_over(reinterpret_cast<std::byte*>(members[i].data.data()), count * 4);
    if (change) change(call);
    auto started = fabrics[i]->start(call);
    REQUIRE(started.ok());
    members[i].pending = std::move(*started);
  }
  return members;
}

// Tests members in random order from this one thread until each is done or has failed.
void step_to_end(std::vector<Member>& members, unsigned seed) {
  std::mt19937 random(seed);
  std::size_t open = members.size();
  while (open > 0) {
    Member& member = members[random() % members.size()];
    if (member.over) continue;
    const Result<bool> done = member.pending->test();
    if (!done.ok()) member.error = done.status();
    member.over = !done.ok() || *done;
    open -= member.over ? 1 : 0;
  }
}

TEST_CASE("inproc keeps the fabric contract, whatever the algorithm", "[fabric]") {
  ThreadMedium medium;
  for (const auto& tests : {fabric_contract(), algorithm_contract()}) {
    for (const Test& test : tests) {
      SECTION(test.name) {
        for (int size = 1; size <= medium.largest_group(); ++size) {
          INFO(test.name << ", " << size << " members");
          CHECK(test.run(medium, size) == "");
        }
      }
    }
  }
}

TEST_CASE("one thread steps all members in any order", "[fabric][one thread]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const int size = 2 + static_cast<int>(seed % 7);
    const auto names = algorithm_names(Operation::kAllreduce);
    const Select select = always(names[seed % names.size()]);
    const auto fabrics = fabrics_of(std::make_shared<InprocHub>(size), size, select);
    const std::size_t count = seed % 10 == 0 ? 100001 : 1 + seed % 23;
    auto members = start_all(fabrics, count);
    step_to_end(members, seed);
    for (const Member& member : members) {
      REQUIRE(member.error.ok());
      REQUIRE(std::count(member.data.begin(), member.data.end(), static_cast<float>(size)) ==
              static_cast<std::ptrdiff_t>(count));
    }
  }
}

TEST_CASE("a silent member is named at the deadline and the fabric is poisoned", "[fabric]") {
  for (const std::size_t count : {std::size_t{8}, std::size_t{200000}}) {
    const auto hub = std::make_shared<InprocHub>(3);
    const auto fabrics = fabrics_of(hub, 3);
    hub->silence(1);
    const TimePoint begin = steady_now();
    auto members = start_all(fabrics, count, [](AllreduceCall& call) {
      call.deadline = Deadline::after(std::chrono::milliseconds(50));
    });
    step_to_end(members, 1);
    CHECK(steady_now() - begin >= std::chrono::milliseconds(50));
    testing::expect_within(std::chrono::seconds(2), steady_now() - begin);
    bool named = false;
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(members[i].error.code() == StatusCode::kAborted);
      CHECK(fabrics[i]->poisoned());
      named = named || members[i].error.message().find("waiting for rank 11") != std::string::npos;
      // Later calls get the first cause.
      std::vector<float> data(4);
      const AllreduceCall late = allreduce_over(reinterpret_cast<std::byte*>(data.data()), 16);
      CHECK(fabrics[i]->start(late).status() == members[i].error);
    }
    CHECK(named);
  }
}

TEST_CASE("the abort token ends a call that has no deadline", "[fabric]") {
  const auto hub = std::make_shared<InprocHub>(2);
  const auto fabrics = fabrics_of(hub, 2);
  hub->silence(1);
  AbortToken abort;
  auto members = start_all(fabrics, 1000, [&](AllreduceCall& call) {
    call.deadline = Deadline::never();
    call.abort = &abort;
  });
  for (int i = 0; i < 100; ++i) REQUIRE(members[0].pending->test().ok());
  abort.raise(Status::aborted("rank 11 was killed"));
  CHECK(members[0].pending->test().status().message() == "rank 11 was killed");
  CHECK(members[0].pending->wait().message() == "rank 11 was killed");
  CHECK(fabrics[0]->poisoned());
}

TEST_CASE("a lost connection ends the calls of all that wait for it", "[fabric]") {
  const auto hub = std::make_shared<InprocHub>(4);
  const auto fabrics = fabrics_of(hub, 4, always("ring"));
  hub->fail(2);
  auto members = start_all(fabrics, 100000, [](AllreduceCall& call) {
    call.deadline = Deadline::after(std::chrono::milliseconds(200));
  });
  step_to_end(members, 7);
  for (const Member& member : members) CHECK(member.error.code() == StatusCode::kAborted);
  CHECK(members[3].error.message() == "the connection to member 2 was lost");
}

TEST_CASE("one call's fault ends the other calls in progress with its cause", "[fabric]") {
  const auto fabrics = fabrics_of(std::make_shared<InprocHub>(2), 2);
  AbortToken abort;
  std::vector<float> one(4), two(4);
  AllreduceCall first = allreduce_over(reinterpret_cast<std::byte*>(one.data()), 16);
  first.abort = &abort;
  const AllreduceCall second = allreduce_over(reinterpret_cast<std::byte*>(two.data()), 16);
  auto a = fabrics[0]->start(first);
  auto b = fabrics[0]->start(second);
  REQUIRE((a.ok() && b.ok()));
  abort.raise(Status::aborted("cause"));
  CHECK((*a)->test().status().message() == "cause");
  CHECK((*b)->test().status().message() == "cause");
}

TEST_CASE("dropping a call in progress poisons the fabric", "[fabric]") {
  const auto fabrics = fabrics_of(std::make_shared<InprocHub>(2), 2);
  std::vector<float> data(4);
  auto pending = fabrics[0]->start(allreduce_over(reinterpret_cast<std::byte*>(data.data()), 16));
  REQUIRE(pending.ok());
  pending->reset();
  CHECK(fabrics[0]->poisoned());
}

TEST_CASE("a barrier waits for everyone", "[fabric]") {
  for (int size = 2; size <= 8; ++size) {
    const auto fabrics = fabrics_of(std::make_shared<InprocHub>(size), size);
    std::vector<std::unique_ptr<PendingCall>> pending;
    for (int i = 0; i + 1 < size; ++i) {
      auto started = fabrics[static_cast<std::size_t>(i)]->start(patient<BarrierCall>());
      REQUIRE(started.ok());
      pending.push_back(std::move(*started));
    }
    for (int round = 0; round < 50; ++round) {
      for (auto& one : pending) {
        const Result<bool> done = one->test();
        REQUIRE(done.ok());
        REQUIRE_FALSE(*done);
      }
    }
    auto last = fabrics.back()->start(patient<BarrierCall>());
    REQUIRE(last.ok());
    pending.push_back(std::move(*last));
    bool all = false;
    for (int round = 0; round < 100 && !all; ++round) {
      all = true;
      for (auto& one : pending) all = *one->test() && all;
    }
    CHECK(all);
  }
}

// Every operation that cannot end without another member.
std::vector<Call> calls_over(std::vector<std::byte>& memory, const std::vector<std::byte>& input,
                             std::size_t each) {
  const std::vector<std::size_t> sizes = {each, 0, each, each};
  AllreduceCall allreduce = allreduce_over(memory.data(), 3 * each);
  AllreduceCall adasum = allreduce;
  adasum.reduce_op = ReduceOp::kAdasum;
  auto gather = patient<AllgatherCall>();
  gather.input = input.data();
  gather.output = memory;
  gather.receive_bytes = sizes;
  auto exchange = patient<AlltoallCall>();
  exchange.input = input.data();
  exchange.output = memory;
  exchange.send_bytes = exchange.receive_bytes = sizes;
  auto scatter = patient<ReducescatterCall>();
  scatter.input = input.data();
  scatter.output = ByteSpan(memory).first(each);
  scatter.shard_bytes = sizes;
  std::vector<Call> calls = {
      allreduce, adasum, broadcast_over(memory.data(), 3 * each, 2), patient<BarrierCall>(), gather,
      exchange,  scatter};
  for (Call& call : calls) options_of(call).absent = {1};
  return calls;
}

TEST_CASE("whatever the operation, a silent member ends it, and has its own number", "[fabric]") {
  for (const std::size_t each : {std::size_t{8}, std::size_t{100000}}) {
    std::vector<std::byte> memory(3 * each);
    const std::vector<std::byte> input(3 * each);
    for (std::size_t operation = 0; operation < calls_over(memory, input, each).size(); ++operation) {
      // Member 1 has joined; member 2 is silent.
      const auto hub = std::make_shared<InprocHub>(4);
      const auto fabrics = fabrics_of(hub, 4);
      hub->silence(2);
      AbortToken abort;
      std::vector<std::vector<std::byte>> memories(4, memory);
      std::vector<std::unique_ptr<PendingCall>> pending;
      for (std::size_t i = 0; i < 4; ++i) {
        Call call = calls_over(memories[i], input, each)[operation];
        options_of(call).abort = &abort;
        auto started = fabrics[i]->start(call);
        REQUIRE(started.ok());
        pending.push_back(std::move(*started));
      }
      INFO(operation << " of " << each);
      bool named = false;
      for (int round = 0; round < 100; ++round) {
        for (const std::size_t i : {0, 3}) {
          const Result<bool> done = pending[i]->test();
          REQUIRE(done.ok());
          CHECK_FALSE((*done && i == 0 && operation != 2));  // a broadcast does not need its leaves
          named = named || pending[i]->waiting_for() == 2;
          CHECK(pending[i]->waiting_for() != 1);
        }
      }
      CHECK(named);
      CHECK(*pending[1]->test());
      abort.raise(Status::aborted("rank 12 was killed"));
      CHECK(pending[0]->test().status().message() == "rank 12 was killed");
      CHECK(fabrics[0]->poisoned());
      CHECK_FALSE(fabrics[1]->poisoned());
    }
  }
}

TEST_CASE("a lost connection ends every operation", "[fabric]") {
  std::vector<std::byte> memory(24);
  const std::vector<std::byte> input(24);
  for (std::size_t operation = 0; operation < calls_over(memory, input, 8).size(); ++operation) {
    const auto hub = std::make_shared<InprocHub>(4);
    const auto fabrics = fabrics_of(hub, 4);
    hub->fail(2);
    std::vector<std::vector<std::byte>> memories(4, memory);
    std::vector<std::unique_ptr<PendingCall>> pending;
    for (const std::size_t i : {0, 3}) {
      auto started = fabrics[i]->start(calls_over(memories[i], input, 8)[operation]);
      REQUIRE(started.ok());
      pending.push_back(std::move(*started));
    }
    Status error;
    for (int round = 0; round < 100 && error.ok(); ++round) {
      for (auto& one : pending) {
        const Result<bool> done = one->test();
        if (!done.ok()) error = done.status();
      }
    }
    INFO(operation);
    CHECK(error.message() == "the connection to member 2 was lost");
  }
}

TEST_CASE("a group of one copies and scales", "[fabric]") {
  collective::SingleFabric fabric(group_of(1, 0));
  std::vector<float> data = {2.0F, 4.0F};
  auto* const memory = reinterpret_cast<std::byte*>(data.data());
  AllreduceCall call = allreduce_over(memory, 8);
  call.prescale = {3.0, 1};
  call.scale = {0.5, 1};
  CHECK(run_call(fabric, call) == "");
  CHECK(data == std::vector<float>{3.0F, 6.0F});
  call.reduce_op = ReduceOp::kAdasum;
  CHECK(run_call(fabric, call) == "");
  CHECK(data == std::vector<float>{4.5F, 9.0F});
  call.absent = {0};  // this member has joined
  CHECK(run_call(fabric, call) == "");
  CHECK(data == std::vector<float>{4.5F, 9.0F});
  CHECK(run_call(fabric, patient<BarrierCall>()) == "");

  std::vector<float> input = {7.0F, 8.0F};
  const auto check_copy = [&](auto move) {
    move.output = {memory, 8};
    move.input = reinterpret_cast<const std::byte*>(input.data());
    CHECK(run_call(fabric, move) == "");
    CHECK(data == input);
    move.input = nullptr;
    CHECK(fabric.start(move).status().code() == StatusCode::kInvalidArgument);
    input = {input[1] + 1, input[0]};
  };
  auto gather = patient<AllgatherCall>();
  gather.receive_bytes = {8};
  check_copy(gather);
  auto exchange = patient<AlltoallCall>();
  exchange.send_bytes = exchange.receive_bytes = {8};
  check_copy(exchange);
  auto scatter = patient<ReducescatterCall>();
  scatter.shard_bytes = {8};
  check_copy(scatter);
}

}  // namespace
}  // namespace roundelay::contract
