// Seeded random programs with groups, allgathers, unnamed operations, joins and the removal of the process
// set. Each rank makes only some of the submissions, in an order of its own, and joins.
#include <algorithm>

#include "tests/cpp/catch.h"
#include "tests/cpp/sim/checks.h"
#include "tests/cpp/sim/world.h"

namespace roundelay::sim {
namespace {

// Returns a submission for all ranks; first extents of gathered tensors are still to be set.
Submission random_submission(World& world, std::size_t n, bool any_operation) {
  constexpr Operation kOperations[] = {
      Operation::kAllreduce, Operation::kAllreduce, Operation::kAllgather,     Operation::kBarrier,
      Operation::kBroadcast, Operation::kAlltoall,  Operation::kReducescatter, Operation::kProcessSet};
  Submission submission;
  submission.operation = kOperations[world.pick(any_operation ? 8 : 4)];
  const bool unnamed = world.pick(4) == 0;
  if (!unnamed) submission.name = "t" + std::to_string(n);
  if (submission.operation == Operation::kBroadcast)
    submission.root = unnamed ? 0 : static_cast<int>(world.pick(world.ranks.size()));
  const bool has_group = submission.operation == Operation::kAllreduce ||
                         submission.operation == Operation::kAllgather ||
                         submission.operation == Operation::kReducescatter;
  if (!unnamed && has_group) {
    for (auto count = world.pick(3); count > 0; --count)
      submission.others.push_back({world.pick(3) == 0 ? DType::kInt8 : DType::kFloat32,
                                   {static_cast<std::int64_t>(1 + world.pick(40)), 2}});
  }
  if (submission.operation == Operation::kAllreduce && !unnamed && submission.others.empty() &&
      world.pick(2) == 0)
    submission.technique = world.pick(4) == 0 ? "cyclic:parts=4 flush" : "cyclic:parts=4";
  return submission;
}

void make_wrong(World& world, Submission& submission) {
  switch (world.pick(5)) {
    case 0:
      submission.dtype = DType::kInt64;
      break;
    case 4:
      submission.technique = "negate";
      break;
    case 1:
      submission.shape.push_back(3);
      break;
    case 2:
      submission.local_error = "bad input";
      break;
    default:
      submission.may_duplicate = true;
  }
}

struct Kind {
  bool faulty = false;           // wrong submissions, and operations that need every rank
  bool uneven = true;            // each rank makes only some of the submissions
  std::size_t joins_one_in = 1;  // 1: each rank joins at the end of the epoch
};

void append_epoch(World& world, const Kind& kind) {
  std::vector<std::vector<Submission>> steps(1 + world.pick(4));
  const std::size_t names = 1 + world.pick(5);
  for (auto& submissions : steps) {
    for (std::size_t n = 0; n < names; ++n) submissions.push_back(random_submission(world, n, kind.faulty));
  }
  for (Script& script : world.scripts) {
    std::vector<Submission> mine;
    for (const auto& submissions : steps) {
      std::vector<Submission> step = submissions;
      std::shuffle(step.begin(), step.end(), world.random());
      mine.insert(mine.end(), step.begin(), step.end());
    }
    if (kind.uneven) mine.resize(world.pick(mine.size() + 1));
    for (Submission& submission : mine) {
      if (submission.operation == Operation::kAllgather || submission.operation == Operation::kAlltoall) {
        submission.shape[0] = static_cast<std::int64_t>(world.pick(5));
        for (auto& other : submission.others) other.shape[0] = static_cast<std::int64_t>(world.pick(5));
      }
      if (kind.faulty && world.pick(20) == 0) make_wrong(world, submission);
    }
    if (world.pick(kind.joins_one_in) == 0) mine.push_back(join());
    script.submissions.insert(script.submissions.end(), mine.begin(), mine.end());
  }
}

void check_joined(const World& world, std::size_t times) {
  for (const auto& rank : world.ranks) {
    REQUIRE(rank->world().last_joined.size() == times);
    REQUIRE(rank->world().last_joined == world.ranks.front()->world().last_joined);
  }
}

std::size_t skipped(const World& world) {
  std::size_t count = 0;
  for (const auto& rank : world.ranks) {
    count +=
        static_cast<std::size_t>(std::count_if(rank->world().executed.begin(), rank->world().executed.end(),
                                               [](const auto& e) { return e.skipped; }));
  }
  return count;
}

}  // namespace

TEST_CASE("uneven programs end with joins, one after another", "[sim][join]") {
  std::size_t absences = 0;
  for (std::uint64_t seed = 1; seed <= seeds(2500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    const std::size_t joins = 1 + world.pick(3);
    for (std::size_t i = 0; i < joins; ++i) append_epoch(world, {});
    append_epoch(world, {.uneven = false});  // and a common join at the end
    REQUIRE(world.run());
    check_same_order(world);
    check_each_once(world);
    check_joined(world, joins + 1);
    check_nothing_left(world);
    REQUIRE(failures(world) == 0);
    for (std::size_t r = 0; r < world.scripts.size(); ++r)
      REQUIRE(world.ranks[r]->counts.submitted == static_cast<int>(world.scripts[r].submissions.size()));
    absences += skipped(world);
  }
  CHECK(absences > seeds(10'000U));
}

TEST_CASE("wrong submissions and what needs every rank fail alike while ranks join", "[sim][join]") {
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= seeds(2500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    const std::size_t joins = 1 + world.pick(3);
    for (std::size_t i = 0; i < joins; ++i) append_epoch(world, {.faulty = true});
    REQUIRE(world.run());
    check_same_order(world);
    check_each_once(world);
    check_same_outcomes(world);
    check_joined(world, joins);
    check_nothing_left(world);
    failed += failures(world);
  }
  CHECK(failed > seeds(4000));
}

// One rank works on while the others have joined, then fails their join. All go on together with unnamed
// submissions.
TEST_CASE("a join that failed leaves all ranks in step", "[sim][join]") {
  constexpr Operation kUnnamed[] = {Operation::kAllreduce, Operation::kBarrier, Operation::kAllgather};
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    const std::size_t worker = world.pick(world.scripts.size());
    const auto submission = [&] {
      Submission one{.operation = kUnnamed[world.pick(3)]};
      if (world.pick(8) == 0) one.local_error = "bad input";
      return one;
    };
    for (std::size_t r = 0; r < world.scripts.size(); ++r) {
      if (r != worker) world.scripts[r].submissions.push_back(join());
    }
    REQUIRE(world.run());
    auto& work = world.scripts[worker].submissions;
    for (auto count = world.pick(10); count > 0; --count) work.push_back(submission());
    work.push_back(join());
    work.back().local_error = "bad input";
    REQUIRE(world.run());
    for (auto count = 1 + world.pick(10); count > 0; --count) {
      const Submission common = submission();
      for (Script& script : world.scripts) script.submissions.push_back(common);
    }
    REQUIRE(world.run());
    check_same_order(world);
    check_each_once(world);
    check_same_outcomes(world);
    check_joined(world, 0);
    check_nothing_left(world);
  }
}

TEST_CASE("a removed process set leaves nothing behind, whatever its ranks still owe", "[sim][join]") {
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= seeds(2000U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    if (world.pick(2) == 0) append_epoch(world, {.faulty = world.pick(2) == 0});
    append_epoch(world, {.faulty = world.pick(2) == 0, .joins_one_in = 4});
    for (Script& script : world.scripts) script.removes = true;
    REQUIRE(world.run());
    check_ended_well(world);
    check_same_outcomes(world);
    for (const auto& rank : world.ranks) REQUIRE(rank->world().removed);
    failed += failures(world);
  }
  CHECK(failed > seeds(3000));
}

TEST_CASE("a rank that leaves ends the lane for those who have joined too", "[sim][join]") {
  int early = 0;
  for (std::uint64_t seed = 1; seed <= seeds(1200U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    World world(seed, size_for(seed), options_for(random));
    for (int i = 0; i < 3; ++i) append_epoch(world, {.faulty = true});
    const std::size_t leaver = world.pick(world.ranks.size());
    const std::size_t when = world.pick(300);
    world.inject = [&](World& w, std::size_t turn) {
      if (turn == when) w.leave(leaver);
    };
    REQUIRE(world.run());
    world.leave(leaver);  // if the programs had ended before
    REQUIRE(world.run());
    check_same_order(world);
    check_each_once(world);
    for (const auto& rank : world.ranks) {
      REQUIRE(rank->world().shutdown_by == static_cast<int>(leaver));
      REQUIRE(rank->world().table.in_flight() == 0);
      REQUIRE(rank->world().quiet());
      early += rank->counts.refused_after_end > 0 ? 1 : 0;
    }
  }
  CHECK(early > seeds(1000));
}

}  // namespace roundelay::sim
