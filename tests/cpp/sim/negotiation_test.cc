// Seeded random schedules of 2 to 64 ranks. In each, all ranks have the same order of operations and the same
// error texts, every handle completes exactly once, nothing is left over, and the schedule ends.
#include <algorithm>
#include <regex>

#include "tests/cpp/catch.h"
#include "tests/cpp/sim/checks.h"
#include "tests/cpp/sim/world.h"

namespace roundelay::sim {
namespace {

// Every rank submits the same names equally often, in an order of its own. Some submissions go wrong on some
// ranks.
std::vector<Script> scripts_for(World& world, std::size_t names, std::size_t steps, bool faulty) {
  std::vector<Script> scripts(world.ranks.size());
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<Submission> submissions;
    for (std::size_t n = 0; n < names; ++n) {
      Submission submission;
      submission.name = "t" + std::to_string(n);
      // A shape that changes on all ranks at once invalidates what the cache knows.
      if (n == 0 && step % 3 == 2) submission.shape = {8};
      if (n == 1) submission.technique = step % 4 == 3 ? "cyclic:parts=4 flush" : "cyclic:parts=4";
      submissions.push_back(submission);
    }
    const std::size_t wrong = world.pick(names);
    const std::size_t culprit = world.pick(scripts.size());
    const std::size_t kind = faulty ? world.pick(7) : 6;
    for (std::size_t r = 0; r < scripts.size(); ++r) {
      std::vector<Submission> mine = submissions;
      if (kind == 0 && r == culprit) mine[wrong].shape = {5};
      if (kind == 1 && r == culprit) mine[wrong].dtype = DType::kInt64;
      if (kind == 2 && r == culprit) mine[wrong].local_error = "bad input";
      if (kind == 3 && r % 2 == culprit % 2) mine[wrong].local_error = "bad input on several ranks";
      if (kind == 4 && r == culprit) mine[wrong].may_duplicate = true;
      if (kind == 5 && r == culprit) mine[wrong].technique = "negate";
      std::shuffle(mine.begin(), mine.end(), world.random());
      scripts[r].submissions.insert(scripts[r].submissions.end(), mine.begin(), mine.end());
    }
  }
  return scripts;
}

}  // namespace

TEST_CASE("ranks that submit in different orders run the same operations", "[sim]") {
  std::size_t messages = 0;
  for (std::uint64_t seed = 1; seed <= seeds(6000U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    world.scripts = scripts_for(world, 1 + world.pick(6), 1 + world.pick(5), false);
    REQUIRE(world.run());
    check_ended_well(world);
    for (const auto& rank : world.ranks)
      REQUIRE(rank->counts.submitted == static_cast<int>(world.scripts.front().submissions.size()));
    for (const auto& [name, list] : world.ranks.front()->world().outcomes) {
      for (const Outcome& outcome : list) REQUIRE(outcome.status.ok());
    }
    messages += world.messages;
  }
  CHECK(messages > seeds(100'000U));
}

TEST_CASE("wrong submissions fail with one text everywhere and the rest goes on", "[sim]") {
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= seeds(6000U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    world.scripts = scripts_for(world, 1 + world.pick(5), 2 + world.pick(5), true);
    REQUIRE(world.run());
    check_ended_well(world);
    check_same_outcomes(world);
    for (const auto& [name, list] : world.ranks.front()->world().outcomes) {
      failed += static_cast<int>(
          std::count_if(list.begin(), list.end(), [](const Outcome& o) { return !o.status.ok(); }));
    }
  }
  CHECK(failed > seeds(3000));  // faults have happened
}

TEST_CASE("a rank that falls silent is named, and the others go on without what it owes", "[sim]") {
  int overdue = 0;
  for (std::uint64_t seed = 1; seed <= seeds(1000U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    auto options = options_for(random);
    options.stall_abort = std::chrono::seconds(100);
    World world(seed, size_for(seed), options);
    world.scripts = scripts_for(world, 1 + world.pick(4), 2, false);
    const std::size_t silent = world.pick(world.scripts.size());
    world.scripts[silent].stop_at = world.pick(world.scripts[silent].submissions.size());
    REQUIRE(world.run());
    check_each_once(world);
    check_same_outcomes(world);
    check_nothing_left(world);
    // Ranks that wait for the silent rank are late with the next names themselves, so it is named first.
    bool named = false;
    bool failed = false;
    for (const auto& [name, list] : world.ranks[silent == 0 ? 1 : 0]->world().outcomes) {
      for (const Outcome& outcome : list) {
        if (outcome.status.ok()) continue;
        ++overdue;
        failed = true;
        REQUIRE(outcome.status.code() == StatusCode::kIncomplete);
        const std::string& text = outcome.status.message();
        const std::string missing = text.substr(0, text.find(" did not submit"));
        named = named ||
                std::regex_search(missing, std::regex("ranks? (.*, )?" + std::to_string(silent) + "(,|$)"));
      }
    }
    REQUIRE(failed == named);
  }
  CHECK(overdue > seeds(1000));
}

TEST_CASE("a rank that dies fails everyone's operations, naming it", "[sim]") {
  int aborted = 0;
  for (std::uint64_t seed = 1; seed <= seeds(1000U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    world.scripts = scripts_for(world, 1 + world.pick(4), 3, true);
    const std::size_t victim = world.pick(world.scripts.size());
    const std::size_t when = world.pick(200);
    world.inject = [&](World& w, std::size_t turn) {
      if (turn == when) w.kill(victim);
    };
    REQUIRE(world.run());
    check_each_once(world);
    if (!world.dead(victim)) continue;  // the schedule ended earlier
    for (std::size_t r = 0; r < world.ranks.size(); ++r) {
      if (r == victim) continue;
      const Rank& rank = *world.ranks[r];
      REQUIRE(rank.world().table.in_flight() == 0);
      REQUIRE(rank.aborted.message().find("rank " + std::to_string(victim) + " is gone") !=
              std::string::npos);
      ++aborted;
    }
  }
  CHECK(aborted > seeds(1000));
}

TEST_CASE("ranks that find faults at the same time all raise one of these", "[sim]") {
  unsigned aborted = 0;
  for (std::uint64_t seed = 1; seed <= seeds(1000U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    world.scripts = scripts_for(world, 1 + world.pick(4), 3, true);
    const std::size_t when = world.pick(20), later = when + world.pick(5);
    const std::size_t one = world.pick(world.scripts.size()), other = world.pick(world.scripts.size());
    const auto find_fault = [](World& w, std::size_t r) {
      w.ranks[r]->negotiator.inbox().post(
          wire::Abort{static_cast<int>(r), "found by rank " + std::to_string(r)});
    };
    world.inject = [&](World& w, std::size_t turn) {
      if (turn == when) find_fault(w, one);
      if (turn == later) find_fault(w, other);
    };
    REQUIRE(world.run());
    check_each_once(world);
    const std::string cause = world.ranks.front()->aborted.message();
    if (cause.empty()) continue;  // the schedule ended earlier
    ++aborted;
    REQUIRE((cause == "found by rank " + std::to_string(one) ||
             cause == "found by rank " + std::to_string(other)));
    for (const auto& rank : world.ranks) REQUIRE(rank->aborted.message() == cause);
  }
  CHECK(aborted > seeds(900U));
}

TEST_CASE("a fault that blames rank 0, which lives, reaches all ranks", "[sim]") {
  for (std::uint64_t seed = 1; seed <= seeds(200U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    world.scripts = scripts_for(world, 2, 3, false);
    const std::size_t finder = 1 + world.pick(world.ranks.size() - 1);
    world.inject = [&](World& w, std::size_t turn) {
      if (turn == 0) w.ranks[finder]->negotiator.inbox().post(wire::Abort{0, "rank 0 is late"});
    };
    REQUIRE(world.run());
    check_each_once(world);
    for (const auto& rank : world.ranks) REQUIRE(rank->aborted.message() == "rank 0 is late");
  }
}

TEST_CASE("one rank's shutdown ends the lane for all, once", "[sim]") {
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    world.scripts = scripts_for(world, 1 + world.pick(4), 2, false);
    REQUIRE(world.run());
    const std::size_t leaver = world.pick(world.ranks.size());
    world.leave(leaver);
    REQUIRE(world.run());
    for (const auto& rank : world.ranks) REQUIRE(rank->world().shutdown_by == static_cast<int>(leaver));
    check_same_order(world);
    check_nothing_left(world);
  }
}

}  // namespace roundelay::sim
