// A lane with two executors, whose fabrics a test opens and shuts. It is rank 10 of two; its peer is rank 11.
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collective/call_watch.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/lane_rank.h"

namespace roundelay::execute {
namespace {

using std::chrono::milliseconds;

// What a test does to a fabric, and what it sees of it.
struct Gate {
  int open = 0;    // so many calls may end
  Status failure;  // of the next test
  bool sleeps = false;
  bool patient = false;  // its calls have no deadline
  std::vector<Operation> started;
  int ended = 0;
  bool poisoned = false;

  [[nodiscard]] int under_way() const { return static_cast<int>(started.size()) - ended; }
};

class GatedCall final : public collective::PendingCall {
 public:
  GatedCall(Gate& gate, const Group& group, const collective::Call& call)
      : gate_(gate), call_(call), watch_(call_, group) {}
  ~GatedCall() override { gate_.poisoned = gate_.poisoned || !over_; }
  GatedCall(const GatedCall&) = delete;
  GatedCall& operator=(const GatedCall&) = delete;

  Result<bool> test() override {
    Status why = gate_.failure.ok() && !gate_.patient ? watch_.interrupted(1) : gate_.failure;
    if (!why.ok()) return why;
    if (gate_.ended == gate_.open) return false;
    ++gate_.ended;
    over_ = true;
    return true;
  }
  [[nodiscard]] int waiting_for() const override { return 1; }
  Nap idle(Backoff& backoff) override { return gate_.sleeps ? Nap(std::chrono::seconds(1)) : backoff.next(); }

 private:
  Gate& gate_;
  const collective::Call call_;
  collective::CallWatch watch_;
  bool over_ = false;
};

class GatedFabric final : public collective::Fabric {
 public:
  explicit GatedFabric(Gate& gate) : gate_(gate) {}
  [[nodiscard]] std::string_view name() const override { return "gated"; }
  [[nodiscard]] const Group& group() const override { return group_; }
  Result<std::unique_ptr<collective::PendingCall>> start(const collective::Call& call) override {
    gate_.started.push_back(operation_of(call));
    return std::unique_ptr<collective::PendingCall>(std::make_unique<GatedCall>(gate_, group_, call));
  }
  [[nodiscard]] bool any_thread() const override { return true; }
  [[nodiscard]] bool poisoned() const override { return gate_.poisoned; }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return levels_; }

 private:
  Gate& gate_;
  const Group group_{0, {10, 11}, 0};
  const std::array<Fabric*, 2> levels_{this, this};
};

LaneOptions options(Duration progress_timeout = std::chrono::seconds(30)) {
  LaneOptions made;
  made.progress_timeout = progress_timeout;
  return made;
}

struct TwoFabrics {
  explicit TwoFabrics(const LaneOptions& lane_options = options()) {
    LaneFabrics fabrics;
    for (Gate& gate : gates) fabrics.all.push_back(std::make_unique<GatedFabric>(gate));
    rank = std::make_unique<LaneRank>(std::move(fabrics), lane_options);
  }
  // Adds an operation and orders it.
  template <typename Change>
  void order(const std::string& name, Change change) {
    rank->add(name, Floats(8, 1.0F), change);
    rank->lane.enqueue(++sequence, operation({name}));
  }
  void order(const std::string& name) { order(name, kAsIs); }
  void settle() {
    for (int turn = 0; turn < 20; ++turn) rank->lane.step();
  }
  // Lets one call of an executor end.
  void end_one(std::size_t executor) {
    ++gates[executor].open;
    settle();
  }
  [[nodiscard]] std::array<int, 2> under_way() const { return {gates[0].under_way(), gates[1].under_way()}; }

  std::array<Gate, 2> gates;
  std::unique_ptr<LaneRank> rank;
  std::uint64_t sequence = 0;
};

using UnderWay = std::array<int, 2>;
using Names = std::vector<std::string>;

TEST_CASE("two batches are under way on two executors, and a third waits for its executor",
          "[lane][executors]") {
  TwoFabrics lane;
  for (const char* name : {"a", "b", "c", "d"}) lane.order(name);
  lane.settle();
  CHECK(lane.under_way() == UnderWay{1, 1});
  lane.end_one(1);  // "b" ends first, but its executor is not that of "c"
  CHECK(lane.rank->completed == Names{"b"});
  CHECK(lane.under_way() == UnderWay{1, 0});
  lane.end_one(0);
  CHECK(lane.rank->completed == Names{"b", "a"});
  CHECK(lane.under_way() == UnderWay{1, 1});  // "c" and "d"
  lane.end_one(0);
  lane.end_one(1);
  CHECK(lane.rank->completed == Names{"b", "a", "c", "d"});
  CHECK_FALSE(lane.rank->lane.has_work());
  for (const Gate& gate : lane.gates) CHECK(gate.started.size() == 2);
}

TEST_CASE("a batch that does not go over levels runs alone, on the first executor", "[lane][executors]") {
  const auto change = GENERATE(values<void (*)(wire::Request&)>({
      [](wire::Request& request) { request.operation = Operation::kBroadcast, request.root = 11; },
      [](wire::Request& request) { request.operation = Operation::kBarrier; },
      [](wire::Request& request) { request.reduce_op = ReduceOp::kAdasum; },
      [](wire::Request& request) {
        request.dtype = DType::kInt32;
        request.postscale.factor = 0.5;
      },
  }));
  TwoFabrics lane;
  lane.order("a");
  lane.order("b");
  lane.order("alone", change);
  lane.order("c");
  lane.order("d");
  lane.settle();
  CHECK(lane.under_way() == UnderWay{1, 1});
  lane.end_one(0);
  CHECK(lane.under_way() == UnderWay{0, 1});  // "alone" waits for "b"
  lane.end_one(1);
  CHECK(lane.under_way() == UnderWay{1, 0});  // "c" waits for "alone"
  lane.end_one(0);
  CHECK(lane.rank->completed == Names{"a", "b", "alone"});
  CHECK(lane.under_way() == UnderWay{1, 1});
  lane.end_one(1);
  lane.end_one(0);
  CHECK(lane.rank->completed == Names{"a", "b", "alone", "d", "c"});
}

TEST_CASE("batches that joined members skip run alone, and do not count", "[lane][executors]") {
  TwoFabrics lane;
  lane.order("a");
  lane.rank->add("b", Floats(8, 1.0F), kAsIs);
  lane.rank->lane.enqueue(++lane.sequence, {{"b"}, {}, {1}, false});
  lane.order("c");
  lane.settle();
  CHECK(lane.under_way() == UnderWay{1, 0});
  lane.end_one(0);  // "a"; then the number of batches
  CHECK(lane.under_way() == UnderWay{1, 0});
  lane.end_one(0);
  CHECK(lane.under_way() == UnderWay{1, 0});  // "b"
  lane.end_one(0);
  CHECK(lane.under_way() == UnderWay{0, 1});  // "c" takes the executor after that of "a"
  CHECK(lane.gates[0].started ==
        std::vector<Operation>{Operation::kAllreduce, Operation::kBroadcast, Operation::kAllreduce});
}

TEST_CASE("an entry of several batches is complete when the last of them is over", "[lane][executors]") {
  TwoFabrics lane;
  lane.order("pair", [](wire::Request& request) {
    request.shape = {4};
    request.others = {{DType::kFloat32, request.shape}};
  });
  lane.settle();
  CHECK(lane.under_way() == UnderWay{1, 1});
  lane.end_one(1);
  CHECK_FALSE(lane.rank->done("pair"));
  lane.end_one(0);
  CHECK(lane.rank->done("pair"));
}

TEST_CASE("an error on one executor fails all batches, once, after the abort token", "[lane][executors]") {
  const std::size_t broken = GENERATE(0U, 1U);
  TwoFabrics lane;
  const Names names{"a", "b", "c", "d"};
  for (const std::string& name : names) lane.order(name);
  lane.settle();
  lane.gates[broken].failure = Status::aborted("the link broke");
  lane.settle();
  REQUIRE(lane.rank->faults.size() == 1);
  CHECK(lane.rank->faults[0].culprit == 11);
  CHECK(lane.rank->faults[0].text.find("allreduce of '" + names[broken] + "'") != std::string::npos);
  lane.gates[1 - broken].open = 2;
  lane.settle();  // the lane waits for the abort token
  CHECK(lane.rank->completed.empty());
  REQUIRE(lane.rank->abort.raise(Status::aborted("cause")));
  CHECK(lane.rank->lane.step());
  CHECK_FALSE(lane.rank->lane.step());
  CHECK_FALSE(lane.rank->lane.has_work());
  for (const std::string& name : names) CHECK(lane.rank->status(name) == cut_short("cause", name));
  CHECK(lane.rank->completed.empty());
  CHECK(lane.rank->stucks.empty());
  for (const Gate& gate : lane.gates) CHECK(gate.poisoned);
}

TEST_CASE("the batch whose deadline passes is reported as stuck, on any executor", "[lane][executors]") {
  TwoFabrics lane(options(milliseconds(20)));
  lane.gates[0].patient = true;  // however long this process is kept from running
  lane.order("a");
  lane.settle();
  lane.order("b");
  lane.settle();
  lane.end_one(0);
  CHECK(lane.under_way() == UnderWay{0, 1});
  const Deadline limit = Deadline::after(std::chrono::seconds(20));
  while (lane.rank->stucks.empty() && !limit.passed()) lane.rank->lane.step();
  REQUIRE(lane.rank->stucks.size() == 1);
  CHECK(lane.rank->stucks[0].sequence == 2);
  CHECK(lane.rank->stucks[0].waiting_for == 11);
  CHECK(lane.rank->stucks[0].text.find("allreduce of 'b'") == 0);
  CHECK(lane.rank->faults.empty());
}

TEST_CASE("with two batches under way no sleep is longer than a back-off's", "[lane][executors]") {
  TwoFabrics lane;
  lane.gates[0].sleeps = true;  // until a peer moves this batch
  Backoff backoff;
  lane.order("a");
  lane.settle();
  CHECK(lane.rank->lane.idle(backoff).length() == std::chrono::seconds(1));
  lane.order("b");
  lane.settle();
  CHECK(lane.rank->lane.idle(backoff).length() <= Backoff::kLongest);
  lane.gates[1].sleeps = true;
  CHECK(lane.rank->lane.idle(backoff).length() == Backoff::kLongest);
}

}  // namespace
}  // namespace roundelay::execute
