// Seeded random programs of overlapping process sets. Each rank has a GPU and an order of its own. In each
// program a rank's tickets are a chain, everything is done, and no GPU is stuck.
#include <algorithm>
#include <map>
#include <string>

#include "tests/cpp/catch.h"
#include "tests/cpp/sim/checks.h"
#include "tests/cpp/sim/world.h"

namespace roundelay::sim {
namespace {

Sets random_sets(std::mt19937_64& random, int size, std::size_t count) {
  Sets sets = only_world(size);
  sets.resize(1 + count);
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

// Writes the scripts of all ranks. Each rank orders its submissions in its own way.
class Story {
 public:
  Story(World& world, const Sets& sets, std::size_t gpu_share)
      : world_(world), sets_(sets), gpu_share_(gpu_share) {}

  void everyone(const Submission& submission) {
    for (Script& script : world_.scripts) script.submissions.push_back(submission);
  }
  void add(ProcessSetId set) { everyone({.set = set, .kind = Submission::Kind::kAddSet}); }
  void remove(ProcessSetId set) { everyone({.set = set, .kind = Submission::Kind::kRemoveSet}); }
  // All members of these sets submit some names once. With `joins` some members leave out some submissions in
  // the world, and join.
  void submit_some(const std::vector<ProcessSetId>& live, bool joins) {
    std::vector<Submission> submissions;
    for (const ProcessSetId set : live) {
      for (std::size_t n = 0, names = world_.pick(5); n < names; ++n) {
        const bool gpu = world_.pick(4) < gpu_share_;
        submissions.push_back({.name = (gpu ? "g" : "c") + std::to_string(n),
                               .device = gpu ? DeviceType::kGpu : DeviceType::kCpu,
                               .set = set});
      }
    }
    for (std::size_t r = 0; r < world_.scripts.size(); ++r) {
      std::shuffle(submissions.begin(), submissions.end(), world_.random());
      for (const Submission& submission : submissions) {
        if (!in(sets_[submission.set], r) || (joins && submission.set == 0 && world_.pick(4) == 0)) continue;
        world_.scripts[r].submissions.push_back(submission);
      }
    }
    if (joins) everyone(join());
  }

 private:
  World& world_;
  const Sets& sets_;
  const std::size_t gpu_share_;  // so many submissions of 4 are on a GPU
};

// Adds sets, submits to them, and removes some of them.
void tell(World& world, const Sets& sets, std::size_t gpu_share, bool joins) {
  Story story(world, sets, gpu_share);
  std::vector<ProcessSetId> live = {0};
  ProcessSetId next = 1;
  for (auto phases = 4 + world.pick(8); phases > 0; --phases) {
    if (next < sets.size() && world.pick(2) == 0) {
      story.add(next);
      live.push_back(next++);
    } else if (live.size() > 1 && world.pick(3) == 0) {
      const auto goes = live.begin() + 1 + static_cast<std::ptrdiff_t>(world.pick(live.size() - 1));
      story.remove(*goes);
      live.erase(goes);
    }
    story.submit_some(live, joins && world.pick(3) == 0);
  }
}

negotiate::CoordinatorOptions options_of(std::mt19937_64& random) {
  negotiate::CoordinatorOptions options = options_for(random);
  if (random() % 2 == 0) options.cache_capacity = 64;
  return options;
}

void check_chain(const Rank& rank) {
  std::uint64_t last = 0;
  for (const negotiate::GpuTicket& ticket : rank.taken) {
    REQUIRE(ticket.previous == last);
    REQUIRE(ticket.number > last);
    last = ticket.number;
  }
}

void check_all_done(World& world) {
  for (std::size_t r = 0; r < world.ranks.size(); ++r) {
    const Rank& rank = *world.ranks[r];
    REQUIRE(world.finished(r));
    REQUIRE(rank.counts.completed == rank.counts.submitted);
    REQUIRE(rank.counts.completed_twice == 0);
    REQUIRE(rank.negotiator.outstanding() == 0);
    REQUIRE(rank.aborted.ok());
    REQUIRE(rank.counts.refused_after_end == 0);
    for (const auto& [id, lane] : rank.lanes) {
      REQUIRE(lane->queue.empty());
      REQUIRE(lane->table.in_flight() == 0);
    }
    check_chain(rank);
  }
  REQUIRE(world.gpus.idle());
}

// A submission that still waits for an order waits for a member that has not come.
void check_only_for_uses(World& world, const Sets& sets) {
  for (ProcessSetId set = 0; set < sets.size(); ++set) {
    std::map<std::string, std::size_t> waiting;
    for (const int rank : sets[set]) {
      const Lane* lane = world.ranks[static_cast<std::size_t>(rank)]->find({.process_set = set});
      if (lane == nullptr) continue;
      const auto ordered = lane->ordered();
      for (const auto& [name, handle] : lane->in_flight) waiting[name] += ordered.contains(name) ? 0U : 1U;
    }
    for (const auto& [name, members] : waiting) REQUIRE(members < sets[set].size());
  }
}

std::size_t tickets_in(const World& world) {
  std::size_t tickets = 0;
  for (const auto& rank : world.ranks) tickets += rank->taken.size();
  return tickets;
}

}  // namespace

TEST_CASE("overlapping sets enqueue in one order and nothing waits for ever",
          "[sim][tickets][interleavings]") {
  std::size_t tickets = 0;
  for (std::uint64_t seed = 1; seed <= seeds(2000U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const Sets sets = random_sets(random, size_for(seed), 1 + random() % 4);
    World world(seed, sets, options_of(random));
    tell(world, sets, 1 + world.pick(4), world.pick(4) == 0);
    REQUIRE(world.run());
    check_all_done(world);
    tickets += tickets_in(world);
  }
  CHECK(tickets > seeds(60'000U));
}

// The test above would find a fault: the same programs get stuck when every rank enqueues as orders come.
TEST_CASE("without tickets GPUs get stuck", "[sim][tickets][interleavings]") {
  int stuck = 0;
  for (std::uint64_t seed = 1; seed <= seeds(300U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const Sets sets = random_sets(random, size_for(seed), 1 + random() % 4);
    World world(seed, sets, options_of(random), false);
    tell(world, sets, 4, false);
    REQUIRE(world.run());
    stuck += world.gpus.idle() ? 0 : 1;
  }
  CHECK(stuck > seeds(100));
}

TEST_CASE("ranks without a GPU, or with the world alone, take no tickets", "[sim][tickets]") {
  for (std::uint64_t seed = 1; seed <= seeds(300U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const bool alone = seed % 2 == 0;
    const Sets sets = random_sets(random, size_for(seed), alone ? 0 : 2);
    World world(seed, sets, options_of(random));
    tell(world, sets, alone ? 4 : 0, seed % 3 == 0);
    REQUIRE(world.run());
    check_all_done(world);
    REQUIRE(tickets_in(world) == 0);
  }
}

// Steps repeat before there is another set, while there is one, and after it.
TEST_CASE("no schedule has operations on a GPU while there are several sets",
          "[sim][tickets][interleavings]") {
  int locked_before = 0, locked_after = 0;
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    negotiate::CoordinatorOptions options = options_for(random);
    options.cache_capacity = 64;
    options.schedule_lock = true;
    options.fire = {1, Duration{0}};
    const Sets sets = random_sets(random, 2 + static_cast<int>(seed % 4), 1);
    World world(seed, sets, options);
    const auto steps = [&](std::size_t count, bool with_set) {
      for (auto& script : world.scripts) {
        const std::size_t rank = static_cast<std::size_t>(&script - world.scripts.data());
        for (std::size_t i = 0; i < count; ++i) {
          script.submissions.push_back({.name = "g", .device = DeviceType::kGpu});
          script.submissions.push_back({.name = "c"});
          if (with_set && in(sets[1], rank))
            script.submissions.push_back({.name = "g", .device = DeviceType::kGpu, .set = 1});
        }
      }
    };
    const auto entered = [&] {
      int sum = 0;
      for (const auto& rank : world.ranks) sum += rank->counts.entered_on_gpu;
      return sum;
    };
    Story story(world, sets, 4);
    steps(10, false);
    story.add(1);
    REQUIRE(world.run());
    const int before = entered();
    steps(15, true);
    REQUIRE(world.run());
    if (sets[1].size() > 1) REQUIRE(entered() == before);
    story.remove(1);
    steps(10, false);
    REQUIRE(world.run());
    check_all_done(world);
    locked_before += before;
    locked_after += entered() - before;
  }
  CHECK(locked_before > seeds(1000));
  CHECK(locked_after > seeds(1000));
}

// Ranks leave one by one. Ordered operations are carried out, all others end with an error, also in sets
// without these ranks.
TEST_CASE("no set waits for tickets of a rank 0 that has left", "[sim][tickets][interleavings]") {
  int ended_without_rank_0 = 0;
  for (std::uint64_t seed = 1; seed <= seeds(1500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const Sets sets = random_sets(random, 3 + static_cast<int>(seed % 5), 1 + random() % 4);
    World world(seed, sets, options_of(random));
    tell(world, sets, 1 + world.pick(4), false);
    const std::size_t leaver = world.pick(world.ranks.size());
    const std::size_t first = 10 + world.pick(150), second = first + world.pick(100);
    world.inject = [&](World& w, std::size_t turn) {
      if (turn == first) w.exit(leaver);
      if (turn == second) w.exit(0);
    };
    REQUIRE(world.run());
    world.exit(0);  // if the programs had ended before
    REQUIRE(world.run());
    for (const auto& rank : world.ranks) {
      REQUIRE(rank->counts.completed_twice == 0);
      REQUIRE(rank->aborted.ok());
      check_chain(*rank);
      for (const auto& [id, lane] : rank->lanes) {
        REQUIRE(lane->queue.empty());
        if (lane->over()) REQUIRE(lane->in_flight.empty());
      }
      ended_without_rank_0 += rank->counts.ended_without_rank_0;
    }
    REQUIRE(world.gpus.idle());
    check_only_for_uses(world, sets);
  }
  CHECK(ended_without_rank_0 > seeds(300));
}

// A rank that shares no open set with rank 0 hears of its death and goes on.
TEST_CASE("no set waits for tickets of a rank 0 that has died", "[sim][tickets]") {
  int ended_without_rank_0 = 0;
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const Sets sets = {{0, 1, 2, 3}, {2, 3}};
    World world(seed, sets, options_of(random));
    Story story(world, sets, 1 + world.pick(4));
    story.add(1);
    for (int phase = 0; phase < 10; ++phase) story.submit_some({0, 1}, false);
    const std::size_t when = 10 + world.pick(80);
    const auto world_is_over = [](const auto& rank) { return rank->world().over(); };
    world.inject = [&](World& w, std::size_t turn) {
      if (turn == when) w.exit(1);
      if (!w.dead(0) && std::all_of(w.ranks.begin(), w.ranks.end(), world_is_over)) w.kill(0);
    };
    REQUIRE(world.run());
    if (!world.dead(0)) continue;  // the programs had ended before
    for (const auto& rank : world.ranks) {
      REQUIRE(rank->aborted.ok());
      REQUIRE(rank->counts.completed_twice == 0);
      ended_without_rank_0 += rank->counts.ended_without_rank_0;
    }
    check_only_for_uses(world, sets);
  }
  CHECK(ended_without_rank_0 > seeds(100));
}

TEST_CASE("a rank that dies ends everything, also waits for tickets", "[sim][tickets]") {
  for (std::uint64_t seed = 1; seed <= seeds(500U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const Sets sets = random_sets(random, size_for(seed), 1 + random() % 4);
    World world(seed, sets, options_of(random));
    tell(world, sets, 1 + world.pick(4), false);
    const std::size_t victim = world.pick(world.ranks.size());
    const std::size_t when = 10 + world.pick(200);
    world.inject = [&](World& w, std::size_t turn) {
      if (turn == when) w.kill(victim);
    };
    REQUIRE(world.run());
    if (!world.dead(victim)) continue;
    for (std::size_t r = 0; r < world.ranks.size(); ++r) {
      const Rank& rank = *world.ranks[r];
      REQUIRE(rank.counts.completed_twice == 0);
      if (r == victim) continue;
      REQUIRE(rank.counts.completed == rank.counts.submitted);
      REQUIRE(rank.aborted.message().find("rank " + std::to_string(victim) + " is gone") !=
              std::string::npos);
    }
  }
}

}  // namespace roundelay::sim
