// Programs whose steps repeat, so that ranks lock their schedule, with surprises at random moments. All ranks
// must run the same operations in the same order, complete every handle once, and come to an end.
#include <algorithm>

#include "tests/cpp/catch.h"
#include "tests/cpp/sim/checks.h"
#include "tests/cpp/sim/world.h"

namespace roundelay::sim {
namespace {

negotiate::CoordinatorOptions locking(std::mt19937_64& random) {
  negotiate::CoordinatorOptions options = options_for(random);
  options.cache_capacity = 64;
  options.schedule_lock = true;
  if (random() % 3 != 0)
    options.fire = {1, Duration{0}};  // each ready tensor is ordered alone, so that steps are alike
  return options;
}

struct Story {
  std::size_t names = 3;
  std::size_t steps = 20;
  std::size_t surprises = 0;  // steps in which something else happens
  bool same_order = true;     // on all ranks
};

Use named(std::size_t n) { return {.name = "t" + std::to_string(n)}; }

// Adds something that earlier steps did not have: on all ranks, or wrong on one of them.
void surprise(World& world, std::vector<std::vector<Use>>& of_ranks) {
  const std::size_t kind = world.pick(7);
  const std::size_t culprit = world.pick(of_ranks.size());
  const std::size_t at = world.pick(of_ranks.front().size());
  const std::string name = of_ranks.front()[at].name;
  for (std::size_t r = 0; r < of_ranks.size(); ++r) {
    std::vector<Use>& uses = of_ranks[r];
    const auto place = std::find_if(uses.begin(), uses.end(), [&](const Use& u) { return u.name == name; });
    if (kind == 0) uses.insert(place, Use{.name = "metric"});
    if (kind == 1) uses.insert(place, Use{});  // unnamed
    if (kind == 2) place->shape = {8};
    if (kind == 3) uses.erase(place);
    if (kind == 4 && r == culprit) place->local_error = "bad input";
    if (kind == 5 && r == culprit) place->shape = {5};
    if (kind == 6 && r == culprit) place->may_duplicate = true;
  }
}

std::vector<Script> scripts_for(World& world, const Story& story) {
  std::vector<Script> scripts(world.ranks.size());
  std::vector<bool> surprising(story.steps, false);
  for (std::size_t i = 0; i < story.surprises; ++i) surprising[world.pick(story.steps)] = true;
  for (std::size_t step = 0; step < story.steps; ++step) {
    std::vector<std::vector<Use>> of_ranks(scripts.size());
    for (auto& uses : of_ranks) {
      for (std::size_t n = 0; n < story.names; ++n) uses.push_back(named(n));
      if (!story.same_order) std::shuffle(uses.begin(), uses.end(), world.random());
    }
    if (surprising[step]) surprise(world, of_ranks);
    for (std::size_t r = 0; r < scripts.size(); ++r)
      scripts[r].uses.insert(scripts[r].uses.end(), of_ranks[r].begin(), of_ranks[r].end());
  }
  return scripts;
}

struct Totals {
  int locks = 0, unlocks = 0, entered = 0, failed = 0;
  void add(const World& world) {
    const Rank& rank = *world.ranks.front();
    locks += rank.locks;
    unlocks += rank.unlocks;
    entered += rank.entered;
    failed += failures(world);
  }
};

}  // namespace

TEST_CASE("steps that repeat are locked and run in one order", "[sim]") {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    const Story story{1 + world.pick(4), 5 + world.pick(16), 0, world.pick(4) != 0};
    REQUIRE(world.run(scripts_for(world, story)));
    check_same_order(world);
    check_each_once(world);
    check_nothing_left(world);
    totals.add(world);
  }
  CHECK(totals.failed == 0);
  CHECK(totals.locks > 200);
  CHECK(totals.entered > 2000);
}

TEST_CASE("surprises end a lock and lose nothing", "[sim]") {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    const Story story{1 + world.pick(4), 10 + world.pick(20), 1 + world.pick(4), world.pick(8) != 0};
    REQUIRE(world.run(scripts_for(world, story)));
    check_same_order(world);
    check_each_once(world);
    check_same_outcomes(world);
    check_nothing_left(world);
    totals.add(world);
  }
  CHECK(totals.unlocks > 500);
  CHECK(totals.entered > 5000);
  CHECK(totals.failed > 200);
}

TEST_CASE("ranks join out of a locked schedule, one after the other", "[sim]") {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    Use join;
    join.operation = Operation::kJoin;
    auto scripts = scripts_for(world, {1 + world.pick(3), 20, 0, true});
    for (Script& script : scripts) {
      if (world.pick(2) == 0) script.uses.resize(script.uses.size() - world.pick(script.uses.size() / 2));
      script.uses.push_back(join);
    }
    REQUIRE(world.run(scripts));
    check_same_order(world);
    check_each_once(world);
    check_nothing_left(world);
    for (const auto& rank : world.ranks) REQUIRE(rank->last_joined.size() == 1);
    totals.add(world);
  }
  CHECK(totals.unlocks > 200);
}

TEST_CASE("a removal or a rank that leaves ends a lock first", "[sim]") {
  int locked = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    auto scripts = scripts_for(world, {1 + world.pick(3), 12, 0, true});
    const bool removes = world.pick(2) == 0;
    const std::size_t leaver = world.pick(world.ranks.size());
    const std::size_t when = world.pick(600);
    for (Script& script : scripts) script.removes = removes;
    if (!removes) {
      world.inject = [&](World& w, std::size_t turn) {
        if (turn == when) w.ranks[leaver]->negotiator.inbox().request_leave();
      };
    }
    REQUIRE(world.run(scripts));
    if (!removes) {  // the schedule may have ended earlier
      world.ranks[leaver]->negotiator.inbox().request_leave();
      REQUIRE(world.run(scripts));
    }
    check_same_order(world);
    check_each_once(world);
    for (const auto& rank : world.ranks) {
      REQUIRE((removes ? rank->was_removed : rank->shut_down_by == static_cast<int>(leaver)));
      REQUIRE(rank->table.in_flight() == 0);
      REQUIRE(rank->locks == rank->unlocks);
    }
    locked += world.ranks.front()->locks;
  }
  CHECK(locked > 200);
}

TEST_CASE("a rank that dies under a lock fails everyone's operations, naming it", "[sim]") {
  int under_lock = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    const auto scripts = scripts_for(world, {1 + world.pick(3), 20, world.pick(3), true});
    const std::size_t victim = world.pick(scripts.size());
    const std::size_t when = 50 + world.pick(400);
    world.inject = [&](World& w, std::size_t turn) {
      if (turn == when) w.kill(static_cast<int>(victim));
      if (turn == when && w.ranks[victim]->table.scheduled()) ++under_lock;
    };
    REQUIRE(world.run(scripts));
    check_each_once(world);
    if (!world.dead(victim)) continue;
    for (std::size_t r = 0; r < world.ranks.size(); ++r) {
      if (r == victim) continue;
      REQUIRE(world.ranks[r]->table.in_flight() == 0);
      REQUIRE(world.ranks[r]->aborted.message().find("rank " + std::to_string(victim) + " is gone") !=
              std::string::npos);
    }
  }
  CHECK(under_lock > 30);
}

}  // namespace roundelay::sim
