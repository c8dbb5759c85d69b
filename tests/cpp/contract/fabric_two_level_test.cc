// The fabric contract over two levels with threads as members, and these fabrics' own tests: steps in any
// order, faults on either level, the level that carries an allreduce.
#include <cmath>
#include <random>

#include "collective/shm/shm_fabric.h"
#include "collective/two_level/schedule.h"
#include "collective/two_level/two_level_fabric.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/contract/shm_world.h"

namespace roundelay::contract {
namespace {

using collective::Pending;
using collective::two_level::Chunks;
constexpr std::size_t kShardBytes = collective::LevelsCut{}.shard_bytes;

struct Shape {
  int nodes, members;  // members per node
  bool shared;         // shared memory inside the nodes, else inproc
  [[nodiscard]] int size() const { return nodes * members; }
};

struct World {
  explicit World(Shape of) : shape(of), levels(of.nodes, of.members) {
    for (int node = 0; node < shape.nodes; ++node) {
      memory.push_back(segment_memory(shape.members));
      regions.push_back(std::make_shared<CommonRegions>());
    }
    for (int index = 0; index < shape.size(); ++index) fabrics.push_back(fabric(index));
  }

  [[nodiscard]] std::unique_ptr<Fabric> fabric(int index) const {
    collective::Levels own = levels.of(index);
    if (shape.shared) {
      const auto node = static_cast<std::size_t>(index % shape.nodes);
      const Group inside = levels.inside(index);
      own.inner = collective::make_shm_fabric(
          memory[node], inside, {shape.members > 2, CommonRegions::maker(regions[node], inside)});
    }
    return collective::make_two_level_fabric(std::move(own));
  }

  void silence(int index) const { levels.silence(index); }

  const Shape shape;
  const InprocLevels levels;
  std::vector<std::shared_ptr<std::byte>> memory;  // by node
  std::vector<std::shared_ptr<CommonRegions>> regions;
  std::vector<std::unique_ptr<Fabric>> fabrics;
};

class TwoLevelMedium final : public Medium {
 public:
  explicit TwoLevelMedium(Shape shape) : shape_(shape) {}
  [[nodiscard]] int largest_group() const override { return shape_.size(); }
  std::string run(int /*size*/, Select /*select*/, const Part& part) override {
    return run_on_threads(World(shape_).fabrics, part);
  }

 private:
  const Shape shape_;
};

TEST_CASE("two levels keep the fabric contract", "[fabric]") {
  for (const Test& test : fabric_contract()) {
    SECTION(test.name) {
      for (const Shape shape :
           {Shape{2, 2, true}, Shape{2, 3, true}, Shape{3, 2, true}, Shape{2, 2, false}}) {
        if (shape.size() > 4 && testing::quick()) continue;
        TwoLevelMedium medium(shape);
        INFO(test.name << ", " << shape.nodes << " nodes of " << shape.members);
        CHECK(test.run(medium, shape.size()) == "");
      }
    }
  }
}

// Three levels: members of a node, nodes of a rack, racks. Those of nodes and racks are two levels
// themselves.
class ThreeLevelMedium final : public Medium {
 public:
  [[nodiscard]] int largest_group() const override { return kNodes * kMembers; }
  std::string run(int /*size*/, Select /*select*/, const Part& part) override {
    const InprocLevels nodes(kNodes, kMembers);
    std::vector<InprocLevels> racks;  // by a member's index in its node
    for (int member = 0; member < kMembers; ++member) racks.emplace_back(2, kNodes / 2, 10 + member * kNodes);
    std::vector<std::unique_ptr<Fabric>> fabrics;
    for (int index = 0; index < nodes.size(); ++index) {
      collective::Levels own = nodes.of(index);
      own.outer = collective::make_two_level_fabric(
          racks[static_cast<std::size_t>(index / kNodes)].of(index % kNodes));
      fabrics.push_back(collective::make_two_level_fabric(std::move(own)));
    }
    return run_on_threads(fabrics, part);
  }

 private:
  static constexpr int kNodes = 4, kMembers = 2;
};

TEST_CASE("three levels keep the fabric contract", "[fabric]") {
  ThreeLevelMedium medium;
  CHECK(medium.run(8, collective::Select(), [](Fabric& fabric) {
    const std::span<Fabric* const> levels = fabric.levels();
    const bool well = levels.size() == 3 && std::ranges::all_of(levels, [](const Fabric* const level) {
                        return level->group().size() == 2;
                      });
    return std::string(well ? "" : "other levels");
  }) == "");
  for (const Test& test : fabric_contract()) {
    SECTION(test.name) { CHECK(test.run(medium, medium.largest_group()) == ""); }
  }
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

TEST_CASE("two levels: an allreduce in a region stages nothing", "[fabric]") {
  for (const Shape shape : {Shape{2, 2, true}, Shape{2, 3, true}, Shape{3, 2, true}}) {
    const std::size_t chunk = kShardBytes / sizeof(float) * static_cast<std::size_t>(shape.members);
    for (const std::size_t count : {std::size_t{1}, std::size_t{5001}, 3 * chunk + 7}) {
      TwoLevelMedium medium(shape);
      INFO(count << " elements on " << shape.nodes << " nodes of " << shape.members);
      CHECK(medium.run(shape.size(), collective::Select(),
                       [&](Fabric& fabric) { return unstaged_allreduce(fabric, count); }) == "");
    }
  }
}

// Runs one member's allreduce of its index.
struct Member {
  std::vector<float> data;
  std::unique_ptr<Pending> pending;
  bool over = false;
  Status error;
};

std::vector<Member> start_all(const World& world, std::size_t count, Deadline deadline = Deadline::never(),
                              const AbortToken* abort = nullptr) {
  std::vector<Member> members(world.fabrics.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i].data.assign(count, static_cast<float>(i));
    auto* const memory = reinterpret_cast<std::byte*>(members[i].data.data());
    AllreduceCall call = allreduce_over(memory, count * sizeof(float));
    call.deadline = deadline;
    call.abort = abort;
    auto started = world.fabrics[i]->start(call);
    REQUIRE(started.ok());
    members[i].pending = std::move(*started);
  }
  return members;
}

// Tests members in random order from this one thread, often one many times, until each is done or has failed.
void step_to_end(std::vector<Member>& members, unsigned seed) {
  std::mt19937 random(seed);
  auto open = std::count_if(members.begin(), members.end(), [](const Member& m) { return !m.over; });
  while (open > 0) {
    Member& member = members[random() % members.size()];
    for (unsigned turns = random() % 5 == 0 ? 20 : 1; turns > 0 && !member.over; --turns) {
      const Result<bool> done = member.pending->test();
      if (!done.ok()) member.error = done.status();
      member.over = !done.ok() || *done;
      open -= member.over ? 1 : 0;
    }
  }
}

TEST_CASE("two levels: one thread steps all members in any order", "[fabric][one thread]") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Shape shape{2 + static_cast<int>(seed % 2), 2 + static_cast<int>(seed / 2 % 2), seed % 4 != 0};
    const World world(shape);
    const std::size_t chunk = kShardBytes / sizeof(float) * static_cast<std::size_t>(shape.members);
    const std::size_t counts[] = {1, 3, 23, 5000, chunk - 1, chunk, chunk + 1, 5 * chunk + 7};
    const std::size_t count = counts[seed % std::size(counts)];
    INFO("seed " << seed);
    auto members = start_all(world, count);
    step_to_end(members, seed);
    const auto sum = static_cast<float>(shape.size() * (shape.size() - 1) / 2);
    for (const Member& member : members) {
      REQUIRE(member.error.ok());
      REQUIRE(std::count(member.data.begin(), member.data.end(), sum) == static_cast<std::ptrdiff_t>(count));
    }
  }
}

TEST_CASE("two levels: whoever is silent is named by the group's number", "[fabric][slow]") {
  for (const std::size_t count : {std::size_t{8}, std::size_t{300000}}) {
    for (int silent = 0; silent < 4; ++silent) {
      const World world({2, 2, false});
      world.silence(silent);
      // Waits until all have come to the point where they need the silent member, under a sanitizer too.
      auto members = start_all(world, count, Deadline::after(std::chrono::seconds(1)));
      bool inside = false, between = false;
      for (bool ended = false; !ended;) {
        for (int i = 0; i < 4; ++i) {
          Member& member = members[static_cast<std::size_t>(i)];
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

TEST_CASE("two levels: the abort token ends a call, and the one behind it", "[fabric]") {
  for (const bool shared : {false, true}) {
    const World world({2, 2, shared});
    AbortToken abort;
    auto members = start_all(world, 1000, Deadline::never(), &abort);
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

TEST_CASE("two levels: a fault of the flat fabric ends the allreduce in progress", "[fabric]") {
  const World world({2, 2, true});
  auto members = start_all(world, 1000);
  AbortToken abort;
  auto barrier = patient<BarrierCall>();
  barrier.abort = &abort;
  auto pending = world.fabrics[0]->start(barrier);
  REQUIRE(pending.ok());
  abort.raise(Status::aborted("cause"));
  CHECK((*pending)->test().status().message() == "cause");
  CHECK(members[0].pending->test().status().message() == "cause");
}

TEST_CASE("two levels: dropping a call poisons the fabric, and those behind it fail", "[fabric]") {
  const World world({2, 2, true});
  auto members = start_all(world, 1000);
  auto second =
      world.fabrics[0]->start(allreduce_over(reinterpret_cast<std::byte*>(members[1].data.data()), 64));
  REQUIRE(second.ok());
  members[0].pending.reset();
  CHECK(world.fabrics[0]->poisoned());
  CHECK((*second)->test().status().message() == "allreduce was dropped before its end");
}

// Each member's halves overflow when they are added, also when all levels add them.
TEST_CASE("two levels: an average does not overflow", "[fabric]") {
  TwoLevelMedium medium({2, 3, true});
  CHECK(medium.run(6, collective::Select(), [](Fabric& fabric) {
    std::vector<std::byte> data = encode(std::vector<double>(100, 40000.0), DType::kFloat16);
    AllreduceCall call = allreduce_over(data.data(), data.size());
    call.dtype = DType::kFloat16;
    call.scale = {1.0, 6};
    if (std::string error = run_call(fabric, call); !error.empty()) return error;
    for (const double value : decode(data.data(), 100, DType::kFloat16)) {
      if (std::abs(value - 40000.0) > 32) return "an average of " + std::to_string(value);
    }
    return std::string();
  }) == "");
}

TEST_CASE("two levels: chunks and shards are all of the bytes", "[fabric]") {
  for (const int members : {2, 3, 8}) {
    const std::size_t chunk = kShardBytes * static_cast<std::size_t>(members);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, chunk - 8, chunk, chunk + 8, 3 * chunk}) {
      const Chunks chunks(bytes, 8, members, kShardBytes);
      std::size_t end = 0;
      for (std::uint64_t i = 0; i < chunks.count(); ++i) {
        CHECK(chunks[i].offset == end);
        std::size_t shards = 0;
        for (const std::size_t shard : chunks.shards(i)) {
          CHECK(shard % 8 == 0);
          CHECK(shard <= kShardBytes);
          shards += shard;
        }
        CHECK(shards == chunks[i].bytes);
        end += chunks[i].bytes;
      }
      CHECK(end == bytes);
    }
  }
}

}  // namespace
}  // namespace roundelay::contract
