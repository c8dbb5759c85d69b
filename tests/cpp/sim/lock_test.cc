// Steps that repeat, so that ranks lock their schedule, and surprises at random moments. Always all ranks
// execute the same operations in the same order, complete every handle once, and come to an end.
#include <algorithm>

#include "tests/cpp/catch.h"
#include "tests/cpp/sim/checks.h"
#include "tests/cpp/sim/world.h"

namespace roundelay::sim {
namespace {

negotiate::CoordinatorOptions locking(std::mt19937_64& random) {
  negotiate::CoordinatorOptions options = locking_options_for(random);
  if (random() % 3 != 0) options.fire = {1, Duration{0}};  // each request goes by itself, so steps are alike
  return options;
}

struct Story {
  std::size_t names = 3;
  std::size_t steps = 20;
  std::size_t surprises = 0;  // steps in which something else happens
  bool same_order = true;     // on all ranks
};

Submission named(std::size_t n) { return {.name = "t" + std::to_string(n)}; }

// Changes a step on all ranks, or makes a submission wrong on one rank.
void surprise(World& world, std::vector<std::vector<Submission>>& of_ranks) {
  const std::size_t kind = world.pick(7);
  const std::size_t culprit = world.pick(of_ranks.size());
  const std::size_t at = world.pick(of_ranks.front().size());
  const std::string name = of_ranks.front()[at].name;
  for (std::size_t r = 0; r < of_ranks.size(); ++r) {
    std::vector<Submission>& submissions = of_ranks[r];
    const auto place = std::find_if(submissions.begin(), submissions.end(),
                                    [&](const Submission& u) { return u.name == name; });
    if (kind == 0) submissions.insert(place, Submission{.name = "metric"});
    if (kind == 1) submissions.insert(place, Submission{});  // unnamed
    if (kind == 2) place->shape = {8};
    if (kind == 3) submissions.erase(place);
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
    std::vector<std::vector<Submission>> of_ranks(scripts.size());
    for (auto& submissions : of_ranks) {
      for (std::size_t n = 0; n < story.names; ++n) submissions.push_back(named(n));
      if (!story.same_order) std::shuffle(submissions.begin(), submissions.end(), world.random());
    }
    if (surprising[step]) surprise(world, of_ranks);
    for (std::size_t r = 0; r < scripts.size(); ++r)
      scripts[r].submissions.insert(scripts[r].submissions.end(), of_ranks[r].begin(), of_ranks[r].end());
  }
  return scripts;
}

}  // namespace

TEST_CASE("steps that repeat are locked and run in one order", "[sim]") {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    const Story story{1 + world.pick(4), 5 + world.pick(16), 0, world.pick(4) != 0};
    world.scripts = scripts_for(world, story);
    REQUIRE(world.run());
    check_ended_well(world);
    totals.add(world);
  }
  CHECK(totals.failed == 0);
  CHECK(totals.locks > seeds(200));
  CHECK(totals.entered > seeds(2000));
}

// Each thread of a rank sums tensors of its own in a loop. In some worlds they end, or are surprised, one by
// one.
TEST_CASE("threads that wait for tensors of their own run them in one order", "[sim]") {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= seeds(1000U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, 2 + static_cast<int>(seed % 3), locking(random));
    const std::size_t threads = 2 + world.pick(4), rounds = 40;
    const std::size_t surprises = world.pick(3);
    std::vector<Submission> submissions;
    for (std::size_t i = 0; i < rounds * threads; ++i) {
      submissions.push_back(named(i % threads));
      if (i % threads == 0) submissions.back().dtype = DType::kFloat64;  // not fused with the others
    }
    for (std::size_t i = 0; i < surprises; ++i) submissions[world.pick(submissions.size())].shape = {8};
    if (world.pick(2) == 0) submissions.resize(submissions.size() - world.pick(threads));
    for (Script& script : world.scripts) script = {.submissions = submissions, .threads = threads};
    REQUIRE(world.run());
    check_ended_well(world);
    check_same_outcomes(world);
    totals.add(world);
    for (const auto& rank : world.ranks)
      REQUIRE(rank->counts.completed == static_cast<int>(submissions.size()));
  }
  CHECK(totals.failed == 0);
}

TEST_CASE("surprises end a lock and lose nothing", "[sim]") {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= seeds(1500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    const Story story{1 + world.pick(4), 10 + world.pick(20), 1 + world.pick(4), world.pick(8) != 0};
    world.scripts = scripts_for(world, story);
    REQUIRE(world.run());
    check_ended_well(world);
    check_same_outcomes(world);
    totals.add(world);
  }
  CHECK(totals.unlocks > seeds(500));
  CHECK(totals.entered > seeds(5000));
  CHECK(totals.failed > seeds(200));
}

// Techniques of some names change at random steps, on all ranks alike. If `disagree`, one rank then has
// another one now and then.
std::vector<Script> scripts_with_techniques(World& world, std::size_t names, std::size_t steps,
                                            bool disagree) {
  const std::string kTechniques[] = {"", "negate", "cyclic:parts=4", "cyclic:parts=4 flush"};
  std::vector<Script> scripts(world.ranks.size());
  std::vector<std::string> chosen(names);
  for (std::size_t step = 0; step < steps; ++step) {
    if (world.pick(10) == 0) chosen[world.pick(names)] = kTechniques[world.pick(4)];
    const std::size_t wrong = disagree && world.pick(12) == 0 ? world.pick(names) : names;
    const std::size_t culprit = world.pick(scripts.size());
    for (std::size_t r = 0; r < scripts.size(); ++r) {
      for (std::size_t n = 0; n < names; ++n) {
        Submission submission = named(n);
        submission.technique = n == wrong && r == culprit ? "cyclic:parts=8" : chosen[n];
        scripts[r].submissions.push_back(submission);
      }
    }
  }
  return scripts;
}

TEST_CASE("a change of technique ends the lock, and a new one forms", "[sim]") {
  Totals totals;
  int locked_again = 0;
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    world.scripts = scripts_with_techniques(world, 1 + world.pick(4), 40, false);
    REQUIRE(world.run());
    check_ended_well(world);
    totals.add(world);
    const Counts& counts = world.ranks.front()->counts;
    locked_again += counts.unlocks > 0 && counts.locks > 1 ? 1 : 0;
  }
  CHECK(totals.failed == 0);
  CHECK(totals.entered > seeds(5000));
  CHECK(locked_again > seeds(200));
}

TEST_CASE("a rank with another technique fails that submission on all ranks with both texts", "[sim]") {
  Totals totals;
  int named_both = 0;
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    world.scripts = scripts_with_techniques(world, 1 + world.pick(4), 40, true);
    REQUIRE(world.run());
    check_ended_well(world);
    check_same_outcomes(world);
    totals.add(world);
    for (const auto& [name, list] : world.ranks.front()->world().outcomes) {
      for (const Outcome& outcome : list) {
        if (outcome.status.ok()) continue;
        REQUIRE(outcome.status.code() == StatusCode::kMismatch);
        REQUIRE(outcome.status.message().find(" has technique 'cyclic:parts=8'") != std::string::npos);
        ++named_both;
      }
    }
  }
  CHECK(named_both > seeds(500));
  CHECK(totals.locks > seeds(500));
  CHECK(totals.entered > seeds(3000));
}

TEST_CASE("ranks join out of a locked schedule, one after the other", "[sim]") {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    world.scripts = scripts_for(world, {1 + world.pick(3), 20, 0, true});
    for (Script& script : world.scripts) {
      if (world.pick(2) == 0)
        script.submissions.resize(script.submissions.size() - world.pick(script.submissions.size() / 2));
      script.submissions.push_back(join());
    }
    REQUIRE(world.run());
    check_ended_well(world);
    for (const auto& rank : world.ranks) REQUIRE(rank->world().last_joined.size() == 1);
    totals.add(world);
  }
  CHECK(totals.unlocks > seeds(200));
}

TEST_CASE("a removal or a rank that leaves ends a lock first", "[sim]") {
  int locked = 0;
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    world.scripts = scripts_for(world, {1 + world.pick(3), 12, 0, true});
    const bool removes = world.pick(2) == 0;
    const std::size_t leaver = world.pick(world.ranks.size());
    const std::size_t when = world.pick(600);
    for (Script& script : world.scripts) script.removes = removes;
    if (!removes) {
      world.inject = [&](World& w, std::size_t turn) {
        if (turn == when) w.leave(leaver);
      };
    }
    REQUIRE(world.run());
    if (!removes) {  // perhaps the schedule was over before
      world.leave(leaver);
      REQUIRE(world.run());
    }
    check_same_order(world);
    check_each_once(world);
    for (const auto& rank : world.ranks) {
      REQUIRE((removes ? rank->world().removed : rank->world().shutdown_by == static_cast<int>(leaver)));
      REQUIRE(rank->world().table.in_flight() == 0);
      REQUIRE(rank->counts.locks == rank->counts.unlocks);
    }
    locked += world.ranks.front()->counts.locks;
  }
  CHECK(locked > seeds(200));
}

TEST_CASE("a rank that dies under a lock fails everyone's operations, naming it", "[sim]") {
  int under_lock = 0;
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), locking(random));
    world.scripts = scripts_for(world, {1 + world.pick(3), 20, world.pick(3), true});
    const std::size_t victim = world.pick(world.scripts.size());
    const std::size_t when = 50 + world.pick(400);
    world.inject = [&](World& w, std::size_t turn) {
      if (turn == when) w.kill(victim);
      if (turn == when && w.ranks[victim]->world().table.scheduled()) ++under_lock;
    };
    REQUIRE(world.run());
    check_each_once(world);
    if (!world.dead(victim)) continue;
    for (std::size_t r = 0; r < world.ranks.size(); ++r) {
      if (r == victim) continue;
      REQUIRE(world.ranks[r]->world().table.in_flight() == 0);
      REQUIRE(world.ranks[r]->aborted.message().find("rank " + std::to_string(victim) + " is gone") !=
              std::string::npos);
    }
  }
  CHECK(under_lock > seeds(30));
}

}  // namespace roundelay::sim
