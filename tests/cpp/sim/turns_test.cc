// Seeded random programs of overlapping process sets; each rank has one GPU and an order of its own. In each
// program a rank's tickets are a chain, everything completes and no GPU is stuck.
#include <algorithm>
#include <map>
#include <string>

#include "tests/cpp/catch.h"
#include "tests/cpp/sim/checks.h"
#include "tests/cpp/sim/sets_world.h"

namespace roundelay::sim {
namespace {

using Sets = std::vector<std::vector<int>>;

Sets random_sets(std::mt19937_64& random, int size, std::size_t count) {
  Sets sets(1 + count);
  for (int r = 0; r < size; ++r) sets[0].push_back(r);
  for (std::size_t i = 1; i < sets.size(); ++i) {
    while (sets[i].empty()) {
      for (int r = 0; r < size; ++r) {
        if (random() % 2 == 0) sets[i].push_back(r);
      }
    }
  }
  return sets;
}

bool in(const std::vector<int>& ranks, std::size_t rank) {
  return std::binary_search(ranks.begin(), ranks.end(), static_cast<int>(rank));
}

// The program of all ranks. Each rank puts its uses into an order of its own.
class Story {
 public:
  Story(SetsWorld& world, const Sets& sets, std::size_t gpu_share)
      : world_(world), sets_(sets), gpu_share_(gpu_share) {}

  void change(Step::Kind kind, ProcessSetId set) {
    for (auto& script : world_.scripts) script.push_back({.kind = kind, .set = set});
  }
  // Adds one use of some names in these sets by all their members. With joins, some ranks leave out some uses
  // in the world.
  void use(const std::vector<ProcessSetId>& live, bool joins) {
    std::vector<Step> uses;
    for (const ProcessSetId set : live) {
      for (std::size_t n = 0, names = world_.pick(5); n < names; ++n) {
        const bool gpu = world_.pick(4) < gpu_share_;
        uses.push_back({.set = set,
                        .name = (gpu ? "g" : "c") + std::to_string(n),
                        .device = gpu ? DeviceType::kGpu : DeviceType::kCpu});
      }
    }
    for (std::size_t r = 0; r < world_.scripts.size(); ++r) {
      std::shuffle(uses.begin(), uses.end(), world_.random());
      for (const Step& use : uses) {
        if (!in(sets_[use.set], r) || (joins && use.set == 0 && world_.pick(4) == 0)) continue;
        world_.scripts[r].push_back(use);
      }
    }
    if (joins) change(Step::Kind::kJoin, 0);
  }

 private:
  SetsWorld& world_;
  const Sets& sets_;
  const std::size_t gpu_share_;  // of 4
};

// Makes sets, uses them, and removes some of them.
void tell(SetsWorld& world, const Sets& sets, std::size_t gpu_share, bool joins) {
  Story story(world, sets, gpu_share);
  std::vector<ProcessSetId> live = {0};
  ProcessSetId next = 1;
  for (auto phases = 4 + world.pick(8); phases > 0; --phases) {
    if (next < sets.size() && world.pick(2) == 0) {
      story.change(Step::Kind::kAdd, next);
      live.push_back(next++);
    } else if (live.size() > 1 && world.pick(3) == 0) {
      const auto goes = live.begin() + 1 + static_cast<std::ptrdiff_t>(world.pick(live.size() - 1));
      story.change(Step::Kind::kRemove, *goes);
      live.erase(goes);
    }
    story.use(live, joins && world.pick(3) == 0);
  }
}

negotiate::CoordinatorOptions options_of(std::mt19937_64& random) {
  negotiate::CoordinatorOptions options = options_for(random);
  if (random() % 2 == 0) options.cache_capacity = 64;
  return options;
}

void check_chain(const SetsRank& rank) {
  std::uint64_t last = 0;
  for (const negotiate::GpuTicket& turn : rank.taken) {
    REQUIRE(turn.previous == last);
    REQUIRE(turn.number > last);
    last = turn.number;
  }
}

void check_all_done(SetsWorld& world) {
  for (std::size_t r = 0; r < world.ranks.size(); ++r) {
    const SetsRank& rank = *world.ranks[r];
    REQUIRE(world.finished(r));
    REQUIRE(rank.completed == rank.submitted);
    REQUIRE(rank.completed_twice == 0);
    REQUIRE(rank.negotiator.outstanding() == 0);
    REQUIRE(rank.aborted.ok());
    REQUIRE(rank.refused == 0);
    for (const auto& [id, lane] : rank.lanes) {
      REQUIRE(lane->queue.empty());
      REQUIRE(lane->table.in_flight() == 0);
    }
    check_chain(rank);
  }
  REQUIRE(world.gpus.idle());
}

// A use that still waits for an order waits for a member that has not come.
void check_only_for_uses(SetsWorld& world, const Sets& sets) {
  for (ProcessSetId set = 0; set < sets.size(); ++set) {
    std::map<std::string, std::size_t> waiting;
    for (const int rank : sets[set]) {
      const SetsRank::Lane* lane = world.ranks[static_cast<std::size_t>(rank)]->find({.process_set = set});
      if (lane == nullptr) continue;
      const auto ordered = lane->ordered();
      for (const auto& [name, handle] : lane->in_flight) waiting[name] += ordered.contains(name) ? 0U : 1U;
    }
    for (const auto& [name, members] : waiting) REQUIRE(members < sets[set].size());
  }
}

std::size_t turns_in(const SetsWorld& world) {
  std::size_t turns = 0;
  for (const auto& rank : world.ranks) turns += rank->taken.size();
  return turns;
}

}  // namespace

TEST_CASE("overlapping sets enqueue in one order and nothing waits for ever", "[sim][turns][interleavings]") {
  std::size_t turns = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const Sets sets = random_sets(random, size_for(seed), 1 + random() % 4);
    SetsWorld world(seed, sets, options_of(random));
    tell(world, sets, 1 + world.pick(4), world.pick(4) == 0);
    REQUIRE(world.run());
    check_all_done(world);
    turns += turns_in(world);
  }
  CHECK(turns > 60'000);
}

// The same programs get stuck if every rank enqueues as orders come: the property above is not empty.
TEST_CASE("without turns GPUs get stuck", "[sim][turns][interleavings]") {
  int stuck = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const Sets sets = random_sets(random, size_for(seed), 1 + random() % 4);
    SetsWorld world(seed, sets, options_of(random), false);
    tell(world, sets, 4, false);
    REQUIRE(world.run());
    stuck += world.gpus.idle() ? 0 : 1;
  }
  CHECK(stuck > 100);
}

TEST_CASE("ranks without a GPU, or with the world alone, take no turns", "[sim][turns]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const bool alone = seed % 2 == 0;
    const Sets sets = random_sets(random, size_for(seed), alone ? 0 : 2);
    SetsWorld world(seed, sets, options_of(random));
    tell(world, sets, alone ? 4 : 0, seed % 3 == 0);
    REQUIRE(world.run());
    check_all_done(world);
    REQUIRE(turns_in(world) == 0);
  }
}

// The steps repeat before there is another set, beside it, and after it.
TEST_CASE("no schedule has operations on a GPU while there are several sets", "[sim][turns][interleavings]") {
  int locked_before = 0, locked_after = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    negotiate::CoordinatorOptions options = options_for(random);
    options.cache_capacity = 64;
    options.schedule_lock = true;
    options.fire = {1, Duration{0}};
    const Sets sets = random_sets(random, 2 + static_cast<int>(seed % 4), 1);
    SetsWorld world(seed, sets, options);
    const auto steps = [&](std::size_t count, bool with_set) {
      for (auto& script : world.scripts) {
        const std::size_t rank = static_cast<std::size_t>(&script - world.scripts.data());
        for (std::size_t i = 0; i < count; ++i) {
          script.push_back({.name = "g", .device = DeviceType::kGpu});
          script.push_back({.name = "c"});
          if (with_set && in(sets[1], rank))
            script.push_back({.set = 1, .name = "g", .device = DeviceType::kGpu});
        }
      }
    };
    const auto entered = [&] {
      int sum = 0;
      for (const auto& rank : world.ranks) sum += rank->entered_on_gpu;
      return sum;
    };
    Story story(world, sets, 4);
    steps(10, false);
    story.change(Step::Kind::kAdd, 1);
    REQUIRE(world.run());
    const int before = entered();
    steps(15, true);
    REQUIRE(world.run());
    if (sets[1].size() > 1) REQUIRE(entered() == before);
    story.change(Step::Kind::kRemove, 1);
    steps(10, false);
    REQUIRE(world.run());
    check_all_done(world);
    locked_before += before;
    locked_after += entered() - before;
  }
  CHECK(locked_before > 1000);
  CHECK(locked_after > 1000);
}

// Ranks leave one by one. Ordered operations are carried out; all others end with an error, also in sets
// without the rank.
TEST_CASE("no set waits for tickets of a rank 0 that has left", "[sim][turns][interleavings]") {
  int turns_ended = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const Sets sets = random_sets(random, 3 + static_cast<int>(seed % 5), 1 + random() % 4);
    SetsWorld world(seed, sets, options_of(random));
    tell(world, sets, 1 + world.pick(4), false);
    const std::size_t leaver = world.pick(world.ranks.size());
    const std::size_t first = 10 + world.pick(150), second = first + world.pick(100);
    world.inject = [&](SetsWorld& w, std::size_t turn) {
      if (turn == first) w.leave(leaver);
      if (turn == second) w.leave(0);
    };
    REQUIRE(world.run());
    world.leave(0);  // in case the programs ended earlier
    REQUIRE(world.run());
    for (const auto& rank : world.ranks) {
      REQUIRE(rank->completed_twice == 0);
      REQUIRE(rank->aborted.ok());
      check_chain(*rank);
      for (const auto& [id, lane] : rank->lanes) {
        REQUIRE(lane->queue.empty());
        if (lane->over()) REQUIRE(lane->in_flight.empty());
      }
      turns_ended += rank->turns_ended;
    }
    REQUIRE(world.gpus.idle());
    check_only_for_uses(world, sets);
  }
  CHECK(turns_ended > 300);
}

// A rank that shares no set with rank 0 hears of its death when the world is over, and goes on.
TEST_CASE("no set waits for tickets of a rank 0 that has died", "[sim][turns]") {
  int turns_ended = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const Sets sets = {{0, 1, 2, 3}, {2, 3}};
    SetsWorld world(seed, sets, options_of(random));
    Story story(world, sets, 1 + world.pick(4));
    story.change(Step::Kind::kAdd, 1);
    for (int phase = 0; phase < 10; ++phase) story.use({0, 1}, false);
    const std::size_t when = 10 + world.pick(80);
    const auto world_is_over = [](const auto& rank) { return rank->find({})->over(); };
    world.inject = [&](SetsWorld& w, std::size_t turn) {
      if (turn == when) w.leave(1);
      if (!w.gone(0) && std::all_of(w.ranks.begin(), w.ranks.end(), world_is_over)) w.kill(0);
    };
    REQUIRE(world.run());
    if (!world.gone(0)) continue;  // the programs ended earlier
    for (const auto& rank : world.ranks) {
      REQUIRE(rank->aborted.ok());
      REQUIRE(rank->completed_twice == 0);
      turns_ended += rank->turns_ended;
    }
    check_only_for_uses(world, sets);
  }
  CHECK(turns_ended > 100);
}

TEST_CASE("a rank that dies ends everything, also waits for turns", "[sim][turns]") {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const Sets sets = random_sets(random, size_for(seed), 1 + random() % 4);
    SetsWorld world(seed, sets, options_of(random));
    tell(world, sets, 1 + world.pick(4), false);
    const std::size_t victim = world.pick(world.ranks.size());
    const std::size_t when = 10 + world.pick(200);
    world.inject = [&](SetsWorld& w, std::size_t turn) {
      if (turn == when) w.kill(victim);
    };
    REQUIRE(world.run());
    if (!world.gone(victim)) continue;
    for (std::size_t r = 0; r < world.ranks.size(); ++r) {
      const SetsRank& rank = *world.ranks[r];
      REQUIRE(rank.completed_twice == 0);
      if (r == victim) continue;
      REQUIRE(rank.completed == rank.submitted);
      REQUIRE(rank.aborted.message().find("rank " + std::to_string(victim) + " is gone") !=
              std::string::npos);
    }
  }
}

}  // namespace roundelay::sim
