// The fabric contract over levels with threads as members, and these fabrics' own tests: steps in any order,
// the chunks on their way, the bits and bytes of sums. fabric_levels_faults_test.cc has the faults.
#include <cmath>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/counted_fabric.h"
#include "tests/cpp/contract/levels_world.h"

namespace roundelay::contract {
namespace {

using collective::LevelsCut;
using collective::PendingCall;
constexpr std::size_t kShardBytes = LevelsCut{}.shard_bytes;
constexpr LevelsCut kGrows{.shard_bytes = 1024, .most_shard_bytes = 40000};  // in long calls

// An average over nodes of different sizes is rounded once for each node.
bool applies(const Test& test, const ClusterShape& shape) {
  return shape.even() || test.name != "averages of equal values";
}

void check_contract(const ClusterShape& shape) {
  if (shape.size() > 4 && largest_of_threads() < 8) return;  // many threads take long, and find nothing more
  for (const Test& test : fabric_contract()) {
    if (!applies(test, shape)) continue;
    SECTION(test.name) {
      LevelsMedium medium(shape);
      INFO(test.name << ", " << shape.name);
      CHECK(test.run(medium, shape.size()) == "");
    }
  }
}

TEST_CASE("levels keep the fabric contract", "[fabric]") {
  for (const ClusterShape& shape : {nodes_of(2, 2), three_and_four()}) {
    DYNAMIC_SECTION(shape.name) { check_contract(shape); }
  }
}

TEST_CASE("levels of any shape keep the fabric contract", "[fabric][slow]") {
  for (const ClusterShape& shape : cluster_shapes()) {
    DYNAMIC_SECTION(shape.name) { check_contract(shape); }
  }
}

TEST_CASE("levels are those of the plan, or the nodes and the places that are on all of them", "[fabric]") {
  using Ranks = std::vector<std::vector<int>>;
  const auto levels = [](const ClusterShape& shape, std::size_t member) {
    const LevelsWorld world(shape);
    Ranks ranks;
    for (const Fabric* const level : world.fabrics[member]->level_fabrics()) {
      ranks.push_back(level->group().ranks);
      for (int& rank : ranks.back()) rank -= world.fabrics[0]->group().ranks[0];
    }
    return ranks;
  };
  const auto sizes = [](const ClusterShape& shape) {
    const LevelsWorld world(shape);
    const std::vector<int> of_first = collective::level_sizes(*world.fabrics.front());
    for (const auto& fabric : world.fabrics) REQUIRE(collective::level_sizes(*fabric) == of_first);
    return of_first;
  };
  CHECK(sizes(nodes_of(3, 2)) == std::vector<int>{2, 3});
  CHECK(sizes(by_factors({2, 2, 3})) == std::vector<int>{2, 2, 3});
  CHECK(sizes(three_and_four()) == std::vector<int>{3, 2});
  CHECK(sizes(one_and_three()) == std::vector<int>{1, 2});
  CHECK(sizes(uneven_racks()) == std::vector<int>{1, 3});
  CHECK(levels(three_and_four(), 4) == Ranks{{3, 4, 5, 6}, {1, 4}});
  CHECK(levels(three_and_four(), 6) == Ranks{{3, 4, 5, 6}, {6}});  // its place is on one node alone
  CHECK(levels(uneven_racks(), 0) == Ranks{{0}, {0, 1, 2}});
}

// Makes an allreduce in a region. Returns what is wrong with its result or with what was staged for it.
std::string unstaged_allreduce(Fabric& fabric, std::size_t count) {
  const std::size_t bytes = count * sizeof(float), offset = 4 * 67;
  const auto region = fabric.capabilities().make_region(3, offset + bytes);
  if (!region.ok()) return region.status().message();
  const auto given = random_elements(count, DType::kFloat32, static_cast<unsigned>(fabric.group().index));
  const auto staged = [&fabric] { return fabric.capabilities().counters->bytes_staged.load(); };
  std::vector<std::byte> anywhere = given;
  const auto before = staged();
  if (std::string error = run_call(fabric, allreduce_over(anywhere.data(), bytes)); !error.empty())
    return error;
  if (staged() - before < static_cast<std::int64_t>(bytes / 2)) return "nothing was staged outside a region";
  for (int step = 0; step < 3; ++step) {
    std::ranges::copy(given, (*region)->own.data() + offset);
    const auto unstaged = staged();
    AllreduceCall call = allreduce_over((*region)->own.data(), bytes);
    call.buffer.offset = offset;
    call.buffer.region = region->get();
    if (std::string error = run_call(fabric, call); !error.empty()) return error;
    if (!std::ranges::equal(anywhere, (*region)->own.subspan(offset))) return "other bits in a region";
    if (staged() != unstaged) return std::to_string(staged() - unstaged) + " bytes were staged";
  }
  return {};
}

TEST_CASE("levels: an allreduce in a region stages nothing", "[fabric]") {
  for (const ClusterShape& shape : {nodes_of(2, 2), nodes_of(2, 3), by_factors({2, 2, 2})}) {
    const std::size_t chunk = kShardBytes / sizeof(float) * static_cast<std::size_t>(shape.size());
    for (const std::size_t count : {std::size_t{1}, std::size_t{5001}, 2 * chunk + 7}) {
      for (const LevelsCut cut : {LevelsCut{}, kGrows}) {
        LevelsMedium medium(shape, cut);
        INFO(count << " elements on " << shape.name << ", shards of " << cut.shard_bytes << " bytes");
        CHECK(medium.run(shape.size(), collective::Select(),
                         [&](Fabric& fabric) { return unstaged_allreduce(fabric, count); }) == "");
      }
    }
  }
}

TEST_CASE("levels: one thread steps all members in any order", "[fabric][one thread]") {
  const std::vector<ClusterShape> shapes = cluster_shapes();
  for (unsigned seed = 0; seed < 66; ++seed) {
    const LevelsWorld world(shapes[seed % shapes.size()], {.shard_bytes = 4096, .most_across = 1 + seed % 3});
    const std::size_t chunk = 1024 * 8;
    const std::size_t counts[] = {1, 3, 23, 5000, chunk - 1, chunk, chunk + 1, 5 * chunk + 7};
    const std::size_t count = counts[seed % std::size(counts)];
    INFO("seed " << seed << ", " << world.shape.name);
    auto members = start_all(world.fabrics, count);
    step_to_end(members, seed);
    const auto sum = static_cast<float>(world.shape.size() * (world.shape.size() - 1) / 2);
    for (const LevelsMember& member : members) {
      REQUIRE(member.error.ok());
      REQUIRE(std::count(member.data.begin(), member.data.end(), sum) == static_cast<std::ptrdiff_t>(count));
    }
  }
}

TEST_CASE("levels: chunks are on their way in all stages at once", "[fabric][one thread]") {
  for (const ClusterShape& shape : {by_factors({2, 2, 2}), uneven_racks()}) {
    const WatchedWorld watched(shape, {.shard_bytes = 1024, .most_across = 2});
    auto members = start_all(watched.fabrics, 20000);
    std::vector<int> all_at_once(members.size(), 0);  // how often, by member
    step_to_end(members, 3, [&] {
      for (std::size_t i = 0; i < members.size(); ++i) {
        all_at_once[i] += std::ranges::count(watched.running[i], 0) == 0 ? 1 : 0;
      }
    });
    INFO(shape.name);
    CHECK(std::ranges::max(all_at_once) > 10);  // not every member has peers in each stage
  }
}

TEST_CASE("levels: an average of halves does not overflow", "[fabric]") {
  for (const ClusterShape& shape : {nodes_of(2, 3), three_and_four(), uneven_racks()}) {
    LevelsMedium medium(shape);
    INFO(shape.name);
    CHECK(medium.run(shape.size(), collective::Select(), [](Fabric& fabric) {
      std::vector<std::byte> data = encode(std::vector<double>(100, 40000.0), DType::kFloat16);
      AllreduceCall call = allreduce_over(data.data(), data.size());
      call.dtype = DType::kFloat16;
      call.scale = {1.0, fabric.group().size()};
      if (std::string error = run_call(fabric, call); !error.empty()) return error;
      for (const double value : decode(data.data(), 100, DType::kFloat16)) {
        if (std::abs(value - 40000.0) > 32) return "an average of " + std::to_string(value);
      }
      return std::string();
    }) == "");
  }
}

// Every element is added up along the same tree, so that it does not matter where in a buffer it lies, nor
// how large the chunks are.
TEST_CASE("levels: sums have the same bits in any bucket and for any chunk", "[fabric][sums]") {
  constexpr std::size_t kBegin = 30001, kEnd = 30501;
  const auto sum = [](const ClusterShape& shape, LevelsCut cut, std::size_t begin, std::size_t end) {
    std::vector<std::byte> result;
    LevelsMedium medium(shape, cut);
    const std::string error = medium.run(shape.size(), collective::Select(), [&](Fabric& fabric) {
      const auto all = random_elements(end, DType::kFloat32, static_cast<unsigned>(fabric.group().index));
      std::vector<std::byte> data(all.begin() + static_cast<std::ptrdiff_t>(begin * sizeof(float)),
                                  all.end());
      AllreduceCall call = allreduce_over(data.data(), data.size());
      call.scale = {1.0, fabric.group().size()};
      std::string bad = run_call(fabric, call);
      if (fabric.group().index == 0) result = std::move(data);
      return bad;
    });
    REQUIRE(error == "");
    return result;
  };
  for (const ClusterShape& shape : cluster_shapes()) {
    const auto many = sum(shape, {.shard_bytes = 1024}, 0, kEnd);
    INFO(shape.name);
    CHECK(many == sum(shape, {}, 0, kEnd));
    CHECK(many == sum(shape, kGrows, 0, kEnd));
    const auto alone = sum(shape, {}, kBegin, kEnd);
    CHECK(std::equal(alone.rbegin(), alone.rend(), many.rbegin()));
  }
}

// Counts what the members of each part of each level send in the stages outside the part.
TEST_CASE("levels: nodes and racks send what the formula says", "[fabric]") {
  constexpr std::int64_t kElements = 5040 * 30, kBytes = kElements * 4;
  for (const ClusterShape& shape : cluster_shapes()) {
    LevelsWorld world(shape);
    const auto members = static_cast<std::size_t>(shape.size());
    std::vector<std::vector<Counter>> sent(world.levels.stages());
    for (auto& of_stage : sent) of_stage = std::vector<Counter>(members);
    for (std::size_t i = 0; i < members; ++i) {
      world.fabrics[i] = collective::make_levels_fabric(world.levels.of(
          static_cast<int>(i), [&](std::size_t stage, const InprocLevels::Hub& hub, const Group& group) {
            return counted_fabric(*hub, group, sent[stage][i]);
          }));
    }
    INFO(shape.name);
    REQUIRE(run_on_threads(world.fabrics, [](Fabric& fabric) {
              std::vector<std::byte> data(kBytes);
              return run_call(fabric, allreduce_over(data.data(), data.size()));
            }) == "");
    // A single level is a single stage, whose number is not that of the level.
    if (world.levels.stages() != shape.tree.size()) continue;
    for (std::size_t stage = 1; stage < world.levels.stages(); ++stage) {
      const auto joints = collective::levels::children_of(shape.tree, stage);
      for (const std::vector<std::size_t>& parts : joints) {
        const auto number = static_cast<std::int64_t>(parts.size());
        for (const std::size_t part : parts) {
          std::int64_t bytes = 0;
          for (const int rank : shape.tree[stage - 1][part]) {
            bytes += sent[stage][static_cast<std::size_t>(rank)];
          }
          CHECK(std::abs(bytes - 2 * (number - 1) * kBytes / number) <= 4 * 64);
        }
      }
    }
  }
}

}  // namespace
}  // namespace roundelay::contract
