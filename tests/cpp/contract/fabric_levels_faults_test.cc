// Faults of fabrics over levels: silent and dead members in every stage of every plan, aborts, abandoned
// calls.
#include <random>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/levels_world.h"

namespace roundelay::contract {
namespace {

TEST_CASE("levels: whoever is silent is named by the group's number", "[fabric][slow]") {
  for (const std::size_t count : {std::size_t{8}, std::size_t{300000}}) {
    for (int silent = 0; silent < 4; ++silent) {
      const LevelsWorld world(nodes_of(2, 2, false));
      world.levels.silence(silent);
      // Waits until all have come to the point where they need the silent member, under a sanitizer too.
      auto members = start_all(world.fabrics, count, Deadline::after(std::chrono::seconds(1)));
      bool inside = false, between = false;
      for (bool ended = false; !ended;) {
        for (int i = 0; i < 4; ++i) {
          LevelsMember& member = members[static_cast<std::size_t>(i)];
          if (i == silent || member.over) continue;
          member.over = !member.pending->test().ok();
          ended = ended || member.over;
          if (member.over || member.pending->waiting_for() != silent) continue;
          (i % 2 == silent % 2 ? inside : between) = true;  // both members are on the same node
        }
      }
      INFO(silent << " of " << count);
      CHECK(inside);
      CHECK(between);
      step_to_end(members, 1);
      const std::string name = "waiting for rank " + std::to_string(10 + silent);
      bool named = false;
      for (int i = 0; i < 4; ++i) {
        const auto at = static_cast<std::size_t>(i);
        CHECK(world.fabrics[at]->poisoned());
        if (i == silent) continue;
        const Status error = members[at].pending->test().status();
        CHECK(error.code() == StatusCode::kAborted);
        named = named || error.message().find(name) != std::string::npos;
        // Later calls of any kind get the first cause.
        CHECK(world.fabrics[at]->start(patient<BarrierCall>()).status() == error);
      }
      CHECK(named);
    }
  }
}

TEST_CASE("levels: the abort token ends a call, and the one behind it", "[fabric]") {
  for (const bool shared : {false, true}) {
    const LevelsWorld world(nodes_of(2, 2, shared));
    AbortToken abort;
    auto members = start_all(world.fabrics, 1000, Deadline::never(), &abort);
    auto behind = world.fabrics[0]->start(patient<BarrierCall>());
    auto queued =
        world.fabrics[0]->start(allreduce_over(reinterpret_cast<std::byte*>(members[1].data.data()), 64));
    REQUIRE((behind.ok() && queued.ok()));
    CHECK_FALSE(*members[0].pending->test());
    abort.raise(Status::aborted("rank 11 was killed"));
    CHECK(members[0].pending->test().status().message() == "rank 11 was killed");
    CHECK((*behind)->test().status().message() == "rank 11 was killed");
    CHECK((*queued)->test().status().message() == "rank 11 was killed");
    CHECK(world.fabrics[0]->poisoned());
  }
}

TEST_CASE("levels: a fault of a call over the flat fabric ends the one behind it", "[fabric]") {
  const LevelsWorld world(nodes_of(2, 2));
  AbortToken abort;
  auto barrier = patient<BarrierCall>();
  barrier.abort = &abort;
  auto pending = world.fabrics[0]->start(barrier);
  REQUIRE(pending.ok());
  std::vector<std::byte> data(64);
  auto behind = world.fabrics[0]->start(allreduce_over(data.data(), data.size()));
  REQUIRE(behind.ok());
  abort.raise(Status::aborted("cause"));
  CHECK((*pending)->test().status().message() == "cause");
  CHECK((*behind)->test().status().message() == "cause");
}

TEST_CASE("levels: dropping a call poisons the fabric, and those behind it fail", "[fabric]") {
  const LevelsWorld world(nodes_of(2, 2));
  auto members = start_all(world.fabrics, 1000);
  auto second =
      world.fabrics[0]->start(allreduce_over(reinterpret_cast<std::byte*>(members[1].data.data()), 64));
  REQUIRE(second.ok());
  members[0].pending.reset();
  CHECK(world.fabrics[0]->poisoned());
  CHECK((*second)->test().status().message() == "allreduce was dropped before its end");
}

// Kills a member while it has a call of this stage in progress, at a random moment. As in a session, the
// first survivor that notices raises the abort token. Returns how many survivors failed.
std::ptrdiff_t kill_one(const ClusterShape& shape, std::size_t stage, unsigned seed) {
  std::mt19937 random(seed);
  const WatchedWorld world(shape, {.shard_bytes = 1024, .most_across = 2});
  AbortToken abort;
  const Status cause = Status::aborted("a rank was killed");
  auto members = start_all(world.fabrics, 6000, Deadline::never(), &abort);
  const std::size_t victim = random() % members.size();
  auto patience = random() % 100;
  bool killed = false;
  step_to_end(members, seed, [&] {
    if (patience > 0) {
      --patience;
    } else if (!killed && world.running[victim][stage] > 0) {
      killed = members[victim].over = true;
      world.levels.lose(static_cast<int>(victim));
    }
    const auto failed = std::ranges::find_if(members, [](const auto& member) { return !member.error.ok(); });
    if (failed != members.end() && !abort.raised()) abort.raise(cause);
  });
  std::ptrdiff_t failed = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Status& error = members[i].error;
    if (error.ok()) continue;  // it was done before
    ++failed;
    INFO("member " << i << ": " << error.message());
    CHECK(error.code() == StatusCode::kAborted);
    CHECK(world.fabrics[i]->poisoned());
    CHECK(world.fabrics[i]->start(patient<BarrierCall>()).status() == error);
  }
  return failed;
}

TEST_CASE("levels: a member that dies in any stage of any plan ends all calls", "[fabric][one thread]") {
  for (const ClusterShape& shape : cluster_shapes()) {
    for (std::size_t stage = 0; stage < InprocLevels(shape.tree).stages(); ++stage) {
      std::ptrdiff_t failed = 0;
      for (unsigned seed = 0; seed < 8; ++seed) {
        INFO(shape.name << ", stage " << stage << ", seed " << seed);
        failed += kill_one(shape, stage, seed);
      }
      CHECK(failed >= shape.size());
    }
  }
}

}  // namespace
}  // namespace roundelay::contract
