// Lanes of a few ranks over the inproc fabric, stepped from one thread.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collective/inproc/hub.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/lane_rank.h"

namespace roundelay::execute {
namespace {

using collective::InprocHub;
using std::chrono::milliseconds;

LaneOptions fusing() {
  LaneOptions options;
  options.fusion_threshold = 1 << 20;
  return options;
}

Group group_of(int size, int index) {
  Group group;
  for (int i = 0; i < size; ++i) group.ranks.push_back(10 + i);  // world ranks differ from members
  group.index = index;
  return group;
}

struct World {
  explicit World(int size, LaneOptions options = fusing()) : hub(std::make_shared<InprocHub>(size)) {
    for (int i = 0; i < size; ++i) {
      auto fabric = collective::make_inproc_fabric(hub, group_of(size, i));
      ranks.push_back(std::make_unique<LaneRank>(one_fabric(std::move(fabric)), options));
    }
  }
  LaneRank& operator[](std::size_t i) { return *ranks[i]; }

  // Adds the same operation on each rank; all elements of rank i are base + i.
  template <typename Change>
  void add(const std::string& name, std::size_t count, float base, Change change) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ranks[i]->add(name, Floats(count, base + static_cast<float>(i)), change);
    }
  }
  void order(std::uint64_t sequence, const std::vector<std::string>& names) {
    for (auto& rank : ranks) rank->lane.enqueue(sequence, operation(names));
  }
  // Steps until no rank has work.
  void run() {
    for (int turn = 0; turn < 100000; ++turn) {
      bool work = false;
      for (auto& rank : ranks) {
        rank->lane.step();
        work = work || rank->lane.has_work();
      }
      if (!work) return;
    }
    FAIL("the lanes do not come to an end");
  }
  void expect(const std::string& name, std::size_t count, float value) {
    for (auto& rank : ranks) {
      CHECK(rank->tensors.at(name).output == Floats(count, value));
      CHECK(rank->status(name).ok());
    }
  }

  std::shared_ptr<InprocHub> hub;
  std::vector<std::unique_ptr<LaneRank>> ranks;
};

LaneOptions short_deadline() {
  LaneOptions options = fusing();
  options.progress_timeout = milliseconds(20);
  return options;
}

TEST_CASE("operations run in the order of orders, single and fused", "[lane]") {
  World world(3);
  world.add("a", 5, 1.0F, kAsIs);
  world.add("b", 1000, 10.0F, kAsIs);
  world.add("c", 7, 100.0F, kAsIs);
  world.add("d", 1, 1000.0F, kAsIs);
  world.order(1, {"c"});
  world.order(2, {"b", "d"});
  world.order(2, {"a"});
  world.run();
  for (auto& rank : world.ranks) {
    CHECK(rank->completed == std::vector<std::string>{"c", "b", "d", "a"});
    CHECK(rank->lane.table().in_flight() == 0);
    CHECK(rank->lane.counters().operations == 3);
    CHECK(rank->lane.counters().tensors == 4);
    CHECK(rank->lane.counters().fused_tensors == 2);
    CHECK(rank->lane.counters().bytes == 4 * (5 + 1000 + 7 + 1));
    CHECK_FALSE(rank->lane.step());
  }
  world.expect("a", 5, 6.0F);
  world.expect("b", 1000, 33.0F);
  world.expect("c", 7, 303.0F);
  world.expect("d", 1, 3003.0F);
}

TEST_CASE("the next operation is packed while one runs, and no further", "[lane]") {
  World world(2);
  for (const char* name : {"a", "b", "c"}) world.add(name, 4, 1.0F, kAsIs);
  for (std::uint64_t i = 1; i <= 3; ++i) world[0].lane.enqueue(i, operation({std::string(1, "?abc"[i])}));
  for (int turn = 0; turn < 10; ++turn) world[0].lane.step();  // rank 11 has not begun
  CHECK(world[0].completed.empty());
  CHECK(world[0].tensors.at("b").output == Floats(4, 1.0F));   // copied to the memory where it is reduced
  CHECK(world[0].tensors.at("c").output == Floats(4, -1.0F));  // untouched
  for (std::uint64_t i = 1; i <= 3; ++i) world[1].lane.enqueue(i, operation({std::string(1, "?abc"[i])}));
  world.run();
  for (const char* name : {"a", "b", "c"}) world.expect(name, 4, 3.0F);
}

TEST_CASE("fused operations that overlap do not share a buffer", "[lane]") {
  World world(2);
  std::vector<std::vector<std::string>> orders;
  for (int i = 0; i < 12; ++i) {
    const auto name = std::to_string(i);
    world.add("x" + name, 3, static_cast<float>(i), kAsIs);
    world.add("y" + name, 50, static_cast<float>(100 * i), kAsIs);
    orders.push_back({"x" + name, "y" + name});
  }
  for (std::size_t i = 0; i < orders.size(); ++i) world[0].lane.enqueue(i + 1, operation(orders[i]));
  for (int turn = 0; turn < 20; ++turn) world[0].lane.step();
  world[0].tensors.at("x1").input.assign(3, 77.0F);  // already packed: later changes are not seen
  for (std::size_t i = 0; i < orders.size(); ++i) world[1].lane.enqueue(i + 1, operation(orders[i]));
  world.run();
  for (int i = 0; i < 12; ++i) {
    world.expect("x" + std::to_string(i), 3, static_cast<float>(2 * i + 1));
    world.expect("y" + std::to_string(i), 50, static_cast<float>(200 * i + 1));
  }
}

TEST_CASE("factors and the average are applied, single or fused", "[lane]") {
  const bool fused = GENERATE(false, true);
  const auto scaled = [](wire::Request& request) {
    request.reduce_op = ReduceOp::kAverage;
    request.prescale.factor = 6.0;
    request.postscale.factor = 0.5;
  };
  World world(3);
  world.add("a", 4, 1.0F, scaled);  // 6 * (1 + 2 + 3) / 3 / 2
  world.add("b", 9, 2.0F, scaled);  // 6 * (2 + 3 + 4) / 3 / 2
  if (fused) {
    world.order(1, {"a", "b"});
  } else {
    world.order(1, {"a"});
    world.order(2, {"b"});
  }
  world.run();
  CHECK(world[0].lane.counters().operations == (fused ? 1 : 2));
  world.expect("a", 4, 6.0F);
  world.expect("b", 9, 9.0F);
}

TEST_CASE("broadcasts start at a world rank, and barriers wait", "[lane]") {
  World world(3);
  world.add("b", 4, 5.0F, [](wire::Request& request) {
    request.operation = Operation::kBroadcast;
    request.root = 12;
  });
  world.add("w", 0, 0.0F, [](wire::Request& request) { request.operation = Operation::kBarrier; });
  world.order(1, {"b"});
  world[0].lane.enqueue(2, operation({"w"}));
  world[1].lane.enqueue(2, operation({"w"}));
  for (int turn = 0; turn < 100; ++turn) {
    for (auto& rank : world.ranks) rank->lane.step();
  }
  world.expect("b", 4, 7.0F);
  CHECK_FALSE(world[0].done("w"));
  CHECK_FALSE(world[1].done("w"));
  world[2].lane.enqueue(2, operation({"w"}));
  world.run();
  for (auto& rank : world.ranks) CHECK(rank->status("w").ok());
}

TEST_CASE("a name is free and there is nothing left to do once its handle is done", "[lane]") {
  World world(2);
  for (int round = 0; round < 5; ++round) {
    world.add("a", 4, static_cast<float>(round), kAsIs);
    world.order(static_cast<std::uint64_t>(round + 1), {"a"});
    world.run();
    world.expect("a", 4, static_cast<float>(2 * round + 1));
  }
}

TEST_CASE("a missed progress deadline is reported once and nothing ends before the abort token", "[lane]") {
  World world(3, short_deadline());
  world.hub->silence(1);
  world.add("a", 4, 1.0F, kAsIs);
  world.add("b", 4, 1.0F, kAsIs);
  world.add("c", 4, 1.0F, kAsIs);
  world.order(1, {"a", "b"});
  world.order(2, {"c"});
  const Deadline limit = Deadline::after(std::chrono::seconds(20));
  while (world[0].stucks.empty() && !limit.passed()) {
    world[0].lane.step();
    world[2].lane.step();
  }
  REQUIRE(world[0].stucks.size() == 1);
  CHECK(world[0].stucks[0].sequence == 1);
  CHECK(world[0].stucks[0].waiting_for == 11);
  CHECK(world[0].stucks[0].text.find("allreduce of 'a' and 1 more (32 bytes") == 0);
  for (int turn = 0; turn < 200; ++turn) CHECK_FALSE(world[0].lane.step());
  CHECK(world[0].stucks.size() == 1);
  CHECK(world[0].faults.empty());
  CHECK(world[0].lane.has_work());
  for (const char* name : {"a", "b", "c"}) CHECK_FALSE(world[0].done(name));
  CHECK(world[0].lane.table().in_flight() == 3);

  REQUIRE(world[0].abort.raise(Status::aborted("rank 11 stopped")));
  CHECK(world[0].lane.step());
  CHECK_FALSE(world[0].lane.step());
  CHECK_FALSE(world[0].lane.has_work());
  CHECK(world[0].lane.table().in_flight() == 0);
  CHECK(world[0].completed.empty());  // only successes are observed
  for (const char* name : {"a", "b", "c"}) CHECK(world[0].status(name) == cut_short("rank 11 stopped", name));
  CHECK(world[0].lane.fabric().poisoned());
}

TEST_CASE("an abort fails what runs, is packed and is queued, once, and frees the names", "[lane]") {
  World world(2);
  for (const char* name : {"a", "b", "c", "d"}) world.add(name, 4, 1.0F, kAsIs);
  for (std::uint64_t i = 1; i <= 3; ++i) world[0].lane.enqueue(i, operation({std::string(1, "?abc"[i])}));
  for (int turn = 0; turn < 5; ++turn) world[0].lane.step();
  REQUIRE(world[0].abort.raise(Status::aborted("cause")));
  CHECK(world[0].lane.step());
  for (const char* name : {"a", "b", "c"}) CHECK(world[0].status(name) == cut_short("cause", name));
  CHECK_FALSE(world[0].done("d"));  // it was not ordered, so other code fails it
  CHECK(world[0].lane.table().in_flight() == 1);
  // An operation that is ordered after the abort fails too.
  world[0].lane.enqueue(4, operation({"d"}));
  CHECK(world[0].lane.step());
  CHECK(world[0].status("d") == cut_short("cause", "d"));
  CHECK(world[0].stucks.empty());
  CHECK(world[0].faults.empty());
}

TEST_CASE("a broken connection is a fault that names the peer", "[lane]") {
  World world(2);
  world.hub->fail(1);
  world.add("a", 4, 1.0F, kAsIs);
  world.order(1, {"a"});
  for (int turn = 0; turn < 100; ++turn) world[0].lane.step();
  REQUIRE(world[0].faults.size() == 1);
  CHECK(world[0].faults[0].culprit == 11);
  CHECK(world[0].faults[0].text.find("rank 10 failed inside allreduce of 'a' (16 bytes") == 0);
  CHECK(world[0].faults[0].text.find("was lost") != std::string::npos);
  CHECK_FALSE(world[0].done("a"));
  CHECK(world[0].stucks.empty());
  world[0].abort.raise(Status::aborted("cause"));
  world[0].lane.step();
  CHECK(world[0].status("a") == cut_short("cause", "a"));
}

TEST_CASE("names that were failed before their order came are skipped", "[lane]") {
  World world(2);
  world.add("a", 4, 1.0F, kAsIs);
  world[0].lane.enqueue(1, operation({"never submitted"}));
  CHECK_FALSE(world[0].lane.has_work());
  CHECK_FALSE(world[0].lane.step());
}

TEST_CASE("what does not fit or fuse makes batches of its own, and the last one completes", "[lane]") {
  LaneOptions options;
  options.fusion_threshold = 128;
  World world(2, options);
  const auto group = [](std::size_t parts) {
    return [parts](wire::Request& request) {
      request.shape = {16};
      request.others.assign(parts - 1, {DType::kFloat32, request.shape});
    };
  };
  world.add("pair", 2 * 16, 1.0F, group(2));
  world.add("many", 5 * 16, 5.0F, group(5));
  world.order(1, {"pair"});
  world.order(2, {"many"});
  world.run();
  for (auto& rank : world.ranks) {
    CHECK(rank->lane.counters().operations == 1 + 3);
    CHECK(rank->lane.counters().tensors == 7);
    CHECK(rank->completed == std::vector<std::string>{"pair", "many"});
  }
  world.expect("pair", 2 * 16, 3.0F);
  world.expect("many", 5 * 16, 11.0F);
}

TEST_CASE("a member that has joined keeps in step with the others", "[lane]") {
  World world(3);
  const std::vector<int> absent = {1};
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t i : {0U, 2U}) {
      world[i].add("a", Floats(4, 1.0F), kAsIs);
      world[i].lane.enqueue(static_cast<std::uint64_t>(2 * round + 1), {{"a"}, {}, absent, false});
    }
    world[1].lane.enqueue(static_cast<std::uint64_t>(2 * round + 1), {{}, {}, absent, true});
    world.add("b", 4, 1.0F, kAsIs);
    world.order(static_cast<std::uint64_t>(2 * round + 2), {"b"});
    world.run();
    for (const std::size_t i : {0U, 2U}) {
      CHECK(world[i].tensors.at("a").output == Floats(4, 2.0F));
      CHECK(world[i].status("a").ok());
    }
    world.expect("b", 4, 6.0F);
  }
  CHECK(world[1].lane.counters().tensors == 3);
}

TEST_CASE("work and a wake end a wait, also when they came before", "[lane]") {
  World world(2);
  world[0].lane.wake();
  world[0].lane.wait_for_work(Deadline::never());
  const TimePoint begin = steady_now();
  world[0].lane.wait_for_work(Deadline::after(milliseconds(10)));
  CHECK(steady_now() - begin >= milliseconds(10));
  world.add("a", 4, 1.0F, kAsIs);
  world.order(1, {"a"});
  world[0].lane.wait_for_work(Deadline::never());
  world.run();
}

}  // namespace
}  // namespace roundelay::execute
