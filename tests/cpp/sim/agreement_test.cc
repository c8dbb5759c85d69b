// Agreements among other operations, in random schedules: with and without a schedule lock, with ranks that
// join, are late, differ or die. Each has the result that a reference makes of all ranks' values.
#include <algorithm>

#include "tests/cpp/catch.h"
#include "tests/cpp/sim/checks.h"
#include "tests/cpp/sim/world.h"

namespace roundelay::sim {
namespace {

const std::vector<AgreementField> kFields = {
    {Merge::kEqual, 3}, {Merge::kAnd, 2}, {Merge::kOr, 2}, {Merge::kMax, 90}, {Merge::kRoot, 3}};

Submission agreement(const std::string& name, std::string values, int root = 1) {
  return {.name = name,
          .operation = Operation::kAgreement,
          .shape = {},
          .root = root,
          .fields = kFields,
          .values = std::move(values)};
}

struct Story {
  std::size_t tensors = 2;
  std::size_t agreements = 1;
  std::size_t steps = 20;
  std::size_t surprises = 0;  // steps in which something else happens
  std::size_t large = 30;     // one change in so many fits into no cell
};

// A rank's values of one agreement, which change from step to step.
class Values {
 public:
  explicit Values(std::size_t rank, std::size_t large) : rank_(rank), large_(large) {}
  const std::string& next(World& world) {
    const std::size_t kind = world.pick(12);
    if (world.pick(large_) == 0) {
      for (char& byte : values_) byte = static_cast<char>(world.pick(256));
      values_.replace(0, 3, "abc");
    } else if (kind < 4) {
      values_[3 + world.pick(values_.size() - 3)] = static_cast<char>(world.pick(256));
    } else if (kind == 4) {
      values_[world.pick(3)] = static_cast<char>('a' + rank_);  // differs from other ranks
    } else if (kind == 5) {
      values_.replace(0, 3, "abc");
    }
    return values_;
  }

 private:
  std::size_t rank_;
  std::size_t large_;
  std::string values_ = std::string(bytes_of(kFields), '\0');
};

void surprise(World& world, std::vector<std::vector<Submission>>& of_ranks) {
  const std::size_t kind = world.pick(5);
  const std::size_t culprit = world.pick(of_ranks.size());
  const std::size_t at = world.pick(of_ranks.front().size());
  for (std::size_t r = 0; r < of_ranks.size(); ++r) {
    std::vector<Submission>& submissions = of_ranks[r];
    const auto place = submissions.begin() + static_cast<std::ptrdiff_t>(at);
    const bool agrees = place->operation == Operation::kAgreement;
    if (kind == 0) submissions.insert(place, Submission{.name = "metric"});
    if (kind == 1)
      submissions.insert(place, agreement("rare", std::string(bytes_of(kFields), static_cast<char>(r))));
    if (kind == 2) submissions.erase(place);
    if (kind == 3 && r == culprit) place->local_error = "bad input";
    if (kind == 4 && r == culprit && agrees) place->root = 0;
    if (kind == 4 && r == culprit && !agrees) place->shape = {5};
  }
}

std::vector<Script> scripts_for(World& world, const Story& story) {
  std::vector<Script> scripts(world.ranks.size());
  std::vector<std::vector<Values>> values(scripts.size());
  for (std::size_t r = 0; r < scripts.size(); ++r) values[r].assign(story.agreements, Values(r, story.large));
  std::vector<bool> surprising(story.steps, false);
  for (std::size_t i = 0; i < story.surprises; ++i) surprising[world.pick(story.steps)] = true;
  for (std::size_t step = 0; step < story.steps; ++step) {
    std::vector<std::vector<Submission>> of_ranks(scripts.size());
    for (std::size_t r = 0; r < scripts.size(); ++r) {
      for (std::size_t n = 0; n < story.tensors; ++n)
        of_ranks[r].push_back({.name = "t" + std::to_string(n)});
      for (std::size_t n = 0; n < story.agreements; ++n)
        of_ranks[r].push_back(agreement("n" + std::to_string(n), values[r][n].next(world)));
    }
    if (surprising[step]) surprise(world, of_ranks);
    for (std::size_t r = 0; r < scripts.size(); ++r)
      scripts[r].submissions.insert(scripts[r].submissions.end(), of_ranks[r].begin(), of_ranks[r].end());
  }
  return scripts;
}

negotiate::CoordinatorOptions locking(std::mt19937_64& random) {
  negotiate::CoordinatorOptions options = locking_options_for(random);
  options.fire = {1, Duration{0}};  // each request goes by itself, so steps are alike
  return options;
}

int size_of_group(std::uint64_t seed) { return seed % 50 == 0 ? 17 : 2 + static_cast<int>(seed % 5); }

struct AgreementTotals : Totals {
  int agreed = 0;
  void add(const World& world) {
    Totals::add(world);
    agreed += check_agreements(world);
  }
};

}  // namespace

// Caches are small: ids, and with them bases, come and go all the time.
TEST_CASE("agreements without a lock have the reference's results", "[sim][agreement]") {
  AgreementTotals totals;
  for (std::uint64_t seed = 1; seed <= seeds(600U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    negotiate::CoordinatorOptions options = options_for(random);
    options.schedule_lock = false;
    World world(seed, size_of_group(seed), options);
    world.scripts = scripts_for(world, {world.pick(3), 1 + world.pick(3), 10, world.pick(4), 10});
    REQUIRE(world.run());
    check_ended_well(world);
    check_same_outcomes(world);
    totals.add(world);
  }
  CHECK(totals.agreed > seeds(20'000));
  CHECK(totals.failed > seeds(200));
}

TEST_CASE("agreements that fit do not end a lock", "[sim][agreement]") {
  AgreementTotals totals;
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_of_group(seed), locking(random));
    world.scripts = scripts_for(world, {1 + world.pick(3), 1 + world.pick(3), 20, 0, SIZE_MAX});
    REQUIRE(world.run());
    check_ended_well(world);
    REQUIRE(world.ranks.front()->counts.unlocks <= world.ranks.front()->counts.locks);
    totals.add(world);
  }
  CHECK(totals.failed == 0);
  CHECK(totals.locks > seeds(300));
  CHECK(totals.entered > seeds(5000));
}

TEST_CASE("surprises and large changes end a lock, and every result is right", "[sim][agreement]") {
  AgreementTotals totals;
  for (std::uint64_t seed = 1; seed <= seeds(1000U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_of_group(seed), locking(random));
    world.scripts = scripts_for(world, {world.pick(3), 1 + world.pick(3), 40, world.pick(4), 60});
    REQUIRE(world.run());
    check_ended_well(world);
    check_same_outcomes(world);
    totals.add(world);
  }
  CHECK(totals.unlocks > seeds(500));
  CHECK(totals.entered > seeds(5000));
  CHECK(totals.failed > seeds(100));
}

TEST_CASE("agreements go on without ranks that join, and with them again", "[sim][agreement]") {
  AgreementTotals totals;
  for (std::uint64_t seed = 1; seed <= seeds(600U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_of_group(seed), options_for(random));
    std::vector<Script> all(world.ranks.size());
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<Script> some = scripts_for(world, {world.pick(2), 1 + world.pick(2), 12, 0, 40});
      for (std::size_t r = 0; r < all.size(); ++r) {
        std::vector<Submission>& submissions = some[r].submissions;
        if (world.pick(2) == 0) submissions.resize(submissions.size() - world.pick(submissions.size()));
        submissions.push_back(join());
        all[r].submissions.insert(all[r].submissions.end(), submissions.begin(), submissions.end());
      }
    }
    world.scripts = std::move(all);
    REQUIRE(world.run());
    check_ended_well(world);
    totals.add(world);
  }
  CHECK(totals.failed == 0);
  CHECK(totals.agreed > seeds(20'000));
}

TEST_CASE("what ranks have agreed on stays right when one of them dies", "[sim][agreement]") {
  AgreementTotals totals;
  int died = 0;
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_of_group(seed), locking(random));
    world.scripts = scripts_for(world, {1 + world.pick(2), 1 + world.pick(3), 20, world.pick(3), 60});
    const std::size_t victim = world.pick(world.scripts.size());
    const std::size_t when = 50 + world.pick(400);
    world.inject = [&](World& w, std::size_t turn) {
      if (turn == when) w.kill(victim);
    };
    REQUIRE(world.run());
    check_each_once(world);
    died += world.dead(victim) ? 1 : 0;
    totals.add(world);
  }
  CHECK(died > static_cast<int>(seeds(300)));
  CHECK(totals.agreed > seeds(5000));
}

}  // namespace roundelay::sim
