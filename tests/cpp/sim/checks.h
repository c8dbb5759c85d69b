// Options of simulated worlds, and properties that must hold after each run.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/cpp/agreement_reference.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/effort.h"
#include "tests/cpp/sim/world.h"

namespace roundelay::sim {

using testing::seeds;

inline negotiate::CoordinatorOptions options_for(std::mt19937_64& random) {
  const auto pick = [&](std::size_t below) { return random() % below; };
  negotiate::CoordinatorOptions options;
  options.plan = {pick(3) == 0 ? 0 : std::size_t{16} << pick(6), pick(2) * 64};
  options.fire = {std::size_t{1} << pick(9), std::chrono::microseconds(pick(1000))};
  options.cache_capacity = pick(5);  // small, so that entries are evicted all the time
  options.stall_warning = Duration{0};
  options.schedule_lock = pick(2) == 0;
  return options;
}

// Options of a world in which schedules are locked: no request is evicted from the cache.
inline negotiate::CoordinatorOptions locking_options_for(std::mt19937_64& random) {
  negotiate::CoordinatorOptions options = options_for(random);
  options.cache_capacity = 64;
  options.schedule_lock = true;
  return options;
}

// All ranks executed the same operations in the same order. A rank that skips an operation does not know its
// names.
inline void check_same_order(const World& world) {
  for (const auto& rank : world.ranks) {
    REQUIRE(rank->counts.wrong_extents == 0);
    REQUIRE(rank->world().executed.size() == world.ranks.front()->world().executed.size());
  }
  for (std::size_t i = 0; i < world.ranks.front()->world().executed.size(); ++i) {
    const negotiate::OrderedOperation* first = nullptr;
    std::vector<int> skipping;
    for (std::size_t r = 0; r < world.ranks.size(); ++r) {
      const negotiate::OrderedOperation& mine = world.ranks[r]->world().executed[i];
      if (mine.skipped) {
        skipping.push_back(static_cast<int>(r));
        REQUIRE(mine.names.empty());
        continue;
      }
      if (first == nullptr) first = &mine;
      REQUIRE(mine == *first);
    }
    REQUIRE(first != nullptr);
    REQUIRE(skipping == first->absent);
  }
}

// All ranks that live completed each handle once.
inline void check_each_once(const World& world) {
  for (std::size_t r = 0; r < world.ranks.size(); ++r) {
    if (world.dead(r)) continue;
    REQUIRE(world.ranks[r]->counts.completed == world.ranks[r]->counts.submitted);
    REQUIRE(world.ranks[r]->counts.completed_twice == 0);
  }
}

// The k-th submission of a name ended alike on all ranks.
inline void check_same_outcomes(const World& world) {
  std::set<std::string> names;
  for (const auto& rank : world.ranks) {
    for (const auto& [name, list] : rank->world().outcomes) names.insert(name);
  }
  for (const std::string& name : names) {
    for (std::size_t submission = 0;; ++submission) {
      const Outcome* first = nullptr;
      bool any = false;
      for (const auto& rank : world.ranks) {
        const auto& list = rank->world().outcomes[name];
        if (submission >= list.size()) continue;
        any = true;
        if (list[submission].local) continue;  // its caller had another text at once
        if (first == nullptr) first = &list[submission];
        INFO(name << " submission " << submission << ": '" << first->status.message() << "' or '"
                  << list[submission].status.message() << "'");
        REQUIRE(list[submission].status == first->status);
      }
      if (!any) break;
    }
  }
}

// Each agreement has the result that its ranks' values make, whatever happened around it. Returns how many
// there were.
inline int check_agreements(const World& world) {
  std::map<std::string, std::map<std::size_t, testing::ValuesByRank>> values;  // by key and submission
  for (std::size_t r = 0; r < world.ranks.size(); ++r) {
    REQUIRE(world.ranks[r]->counts.broken_cells == 0);
    for (const auto& [key, list] : world.ranks[r]->world().outcomes) {
      for (std::size_t submission = 0; submission < list.size(); ++submission) {
        if (list[submission].agreement)
          values[key][submission][static_cast<int>(r)] = list[submission].agreement->values;
      }
    }
  }
  int checked = 0;
  for (const auto& rank : world.ranks) {
    for (const auto& [key, list] : rank->world().outcomes) {
      for (std::size_t submission = 0; submission < list.size(); ++submission) {
        if (!list[submission].agreed) continue;
        INFO(key << " submission " << submission);
        const Submission& agreement = *list[submission].agreement;
        REQUIRE(*list[submission].agreed ==
                testing::reference_of(agreement.fields, agreement.root, values[key][submission]));
        ++checked;
      }
    }
  }
  return checked;
}

// Nothing is in flight.
inline void check_nothing_left(const World& world) {
  for (const auto& rank : world.ranks) {
    REQUIRE(rank->world().quiet());
    REQUIRE(rank->world().table.in_flight() == 0);
    REQUIRE(rank->negotiator.outstanding() == 0);
    REQUIRE(rank->aborted.ok());
  }
  REQUIRE(world.links_empty());
}

// The ranks carried out the same operations, each handle is complete, and nothing is in flight.
inline void check_ended_well(const World& world) {
  check_same_order(world);
  check_each_once(world);
  check_nothing_left(world);
}

// Counts submissions that failed on ranks that made no mistake.
inline int failures(const World& world) {
  int failed = 0;
  for (const auto& rank : world.ranks) {
    for (const auto& [name, list] : rank->world().outcomes) {
      failed += static_cast<int>(std::count_if(list.begin(), list.end(),
                                               [](const Outcome& o) { return !o.local && !o.status.ok(); }));
    }
  }
  return failed;
}

inline int size_for(std::uint64_t seed) {
  return seed % 100 == 0 ? 64 : seed % 20 == 0 ? 17 : 2 + static_cast<int>(seed % 7);
}

// Sums of what the first ranks of several worlds have counted.
struct Totals {
  int locks = 0, unlocks = 0, entered = 0, failed = 0;
  void add(const World& world) {
    const Rank& rank = *world.ranks.front();
    locks += rank.counts.locks;
    unlocks += rank.counts.unlocks;
    entered += rank.counts.entered;
    failed += failures(world);
  }
};

}  // namespace roundelay::sim
