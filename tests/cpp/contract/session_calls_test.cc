// Calls of their own: carried out in the order in which each rank makes them, without negotiation.
#include <atomic>
#include <span>

#include "collective/whole_call.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/session_world.h"
#include "tests/cpp/contract/shm_world.h"

namespace roundelay::contract {
namespace {

using runtime::Session;
using std::chrono::milliseconds;

// A sum in place, and what its user hears of it.
class Call final : public submit::Results {
 public:
  explicit Call(std::size_t count, Duration timeout = std::chrono::seconds(20))
      : values(count, 1.0F), timeout_(timeout) {}

  Status start(Session& session, bool blocking) {
    auto call = std::make_shared<collective::WholeCall>();
    collective::AllreduceCall sum;
    sum.buffer = {reinterpret_cast<std::byte*>(values.data()), 0, 4 * values.size()};
    sum.mark = {.bytes = 4 * values.size(), .operation = Operation::kAllreduce, .dtype = DType::kFloat32};
    call->call = sum;
    call->timeout = timeout_;
    submit::Arguments arguments;
    arguments.request.shape = {static_cast<std::int64_t>(values.size())};
    submit::Part part;
    part.count = values.size();
    arguments.parts.push_back(std::move(part));
    arguments.results = this;
    arguments.call = std::move(call);
    const Result<complete::Handle> started = session.call(std::move(arguments), blocking);
    if (started.ok()) handle = *started;
    return started.status();
  }
  Result<Memory> allocate(std::size_t /*part*/, const std::vector<std::int64_t>& /*shape*/) override {
    return Status::internal("no memory is asked for");
  }
  void set_received_splits(std::vector<std::int64_t> /*rows*/) override {}
  void set_over(const Status& outcome) override {
    heard = outcome.ok();
    ++times_heard;
  }

  std::vector<float> values;
  complete::Handle handle = 0;
  std::atomic<bool> heard{false};
  std::atomic<int> times_heard{0};

 private:
  const Duration timeout_;
};

// The ranks of one node, whose fabric compares calls.
SessionWorld::Change in_call_order(int size) {
  auto fabrics = std::make_shared<std::vector<std::unique_ptr<collective::Fabric>>>(shm_fabrics(size, 0));
  return [fabrics](runtime::SessionParts& parts) {
    parts.call_order = true;
    parts.fabrics =
        execute::one_fabric(std::move((*fabrics)[static_cast<std::size_t>(parts.rank_info.rank)]));
  };
}

Config quiet() {
  Config config;
  config.log_level = LogLevel::kError;
  return config;
}

TEST_CASE("calls of their own need no message, whoever waits", "[session][calls]") {
  constexpr int kRanks = 3;
  SessionWorld world(kRanks, quiet(), in_call_order(kRanks));
  const int orders = world.orders_sent;
  const std::string said = [&] {
    std::atomic<int> wrong{0};
    world.run([&](Session& session, int rank) -> std::string {
      for (std::size_t round = 0; round < 50; ++round) {
        Call first(1 + round), second(70'000), third(3);
        if (!first.start(session, false).ok() || !second.start(session, false).ok()) return "no start";
        if (!third.start(session, true).ok()) return "no start";
        // Ranks wait in different orders.
        for (Call* const call :
             rank == 0 ? std::array{&third, &first, &second} : std::array{&second, &third, &first}) {
          const auto status = session.wait(call->handle, Deadline::never());
          if (!status || !status->ok()) return "a call failed";
          if (!call->heard || call->times_heard != 1) return "its user was not told once";
          for (const float value : call->values) wrong += value != kRanks;
        }
      }
      return "";
    });
    return wrong == 0 ? std::string() : std::string("a wrong sum");
  }();
  CHECK(said.empty());
  CHECK(world.orders_sent == orders);
  world.shutdown();
}

TEST_CASE("a call for which nobody waits is carried out", "[session][calls]") {
  SessionWorld world(2, quiet(), in_call_order(2));
  std::array<Call, 2> calls{Call(1000), Call(1000)};
  for (std::size_t rank = 0; rank < 2; ++rank) REQUIRE(calls[rank].start(*world.sessions[rank], false).ok());
  for (const Call& call : calls) {
    while (call.times_heard == 0) std::this_thread::sleep_for(milliseconds(1));
    CHECK(call.heard);
  }
  world.shutdown();
}

TEST_CASE("calls that differ end communication with kMismatch on all ranks", "[session][calls]") {
  SessionWorld world(2, quiet(), in_call_order(2));
  world.run([](Session& session, int rank) -> std::string {
    Call call(4U + static_cast<unsigned>(rank)), next(4);
    if (!call.start(session, false).ok()) return "no start";
    const auto status = session.wait(call.handle, Deadline::never());
    if (!status || status->code() != StatusCode::kMismatch) return "no mismatch";
    if (call.times_heard != 1 || call.heard) return "its user was not told";
    if (next.start(session, false).code() != StatusCode::kMismatch) return "a later call is not refused";
    return session.fault().code() == StatusCode::kMismatch ? "" : "no fault";
  });
  world.shutdown();
}

TEST_CASE("a call past its time names the rank that it waits for", "[session][calls]") {
  SessionWorld world(2, quiet(), in_call_order(2));
  Call call(4, milliseconds(100));
  REQUIRE(call.start(*world.sessions[0], false).ok());
  const auto status = world.sessions[0]->wait(call.handle, Deadline::never());
  REQUIRE(status);
  CHECK(status->message().starts_with("rank 0 has waited "));
  CHECK(status->message().find(" for rank 1 in allreduce of 'call 1'") != std::string::npos);
  world.shutdown();
}

TEST_CASE("a rank that has left ends calls that wait for it, and no others", "[session][calls]") {
  SessionWorld world(2, quiet(), in_call_order(2));
  Call both[2] = {Call(4), Call(4)};
  for (std::size_t rank = 0; rank < 2; ++rank) REQUIRE(both[rank].start(*world.sessions[rank], false).ok());
  CHECK(world.sessions[1]->wait(both[1].handle, Deadline::never())->ok());
  world.sessions[1]->shutdown();
  CHECK(world.sessions[0]->wait(both[0].handle, Deadline::never())->ok());
  Call alone(4);
  REQUIRE(alone.start(*world.sessions[0], false).ok());
  const auto status = world.sessions[0]->wait(alone.handle, Deadline::never());
  REQUIRE(status);
  CHECK(status->message().find("rank 1 has left the group") != std::string::npos);
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
