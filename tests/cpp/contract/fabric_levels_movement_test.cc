// Allgather, broadcast and reducescatter over levels: in many rounds and in any order of steps, the bytes
// between nodes, and the bits of sums.
#include <numeric>
#include <random>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/counted_fabric.h"
#include "tests/cpp/contract/levels_world.h"

namespace roundelay::contract {
namespace {

using collective::AllgatherCall;
using collective::AlltoallCall;
using collective::LevelsCut;
using collective::MessageList;
using collective::ReducescatterCall;

using Sizes = std::vector<std::size_t>;

std::size_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}); }

std::size_t before(const Sizes& sizes, std::size_t member) {
  return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(member), std::size_t{0});
}

// Sizes that differ from member to member; one member has nothing.
Sizes sizes_of(int members, std::size_t unit) {
  Sizes sizes;
  for (int member = 0; member < members; ++member)
    sizes.push_back(unit * static_cast<std::size_t>((member + 2) % 3));
  return sizes;
}

// One member's calls in a row: an allgather, a barrier, a broadcast, a reducescatter and a reduce to the
// root, all in progress at once.
class Moves {
 public:
  Moves(Fabric& fabric, std::size_t unit, int root)
      : self_(static_cast<std::size_t>(fabric.group().index)),
        sizes_(sizes_of(fabric.group().size(), unit)),
        given_(values(self_)),
        gathered_(given_.size()),
        sent_(values(static_cast<std::size_t>(root) + 100)),
        root_(static_cast<std::size_t>(root)) {
    if (self_ != root_) std::ranges::fill(sent_, -1.0F);
    scattered_.resize(sizes_[self_] / sizeof(float));
    const ByteSpan own = bytes(given_).subspan(before(sizes_, self_), sizes_[self_]);
    start(fabric, AllgatherCall{{}, own.data(), bytes(gathered_), sizes_, nullptr});
    start(fabric, patient<BarrierCall>());
    start(fabric, broadcast_over(bytes(sent_).data(), bytes(sent_).size(), root));
    start(fabric, ReducescatterCall{{}, {}, bytes(given_).data(), bytes(scattered_), sizes_, nullptr});
    Sizes only(sizes_.size());
    only[root_] = bytes(given_).size();
    if (self_ == root_) reduced_.resize(given_.size());
    start(fabric, ReducescatterCall{{}, {}, bytes(given_).data(), bytes(reduced_), only, nullptr});
  }

  // Tests one of the calls. Returns whether all are over.
  bool step(unsigned which) {
    std::unique_ptr<collective::PendingCall>& pending = calls_[which % calls_.size()];
    if (pending != nullptr) {
      const Result<bool> done = pending->test();
      REQUIRE(done.ok());
      if (*done) pending.reset();
    }
    return std::ranges::all_of(calls_, [](const auto& one) { return one == nullptr; });
  }

  void check() const {
    std::vector<float> want(given_.size());
    for (std::size_t member = 0; member < sizes_.size(); ++member) {
      const auto begin = static_cast<std::ptrdiff_t>(before(sizes_, member) / sizeof(float));
      const auto end = begin + static_cast<std::ptrdiff_t>(sizes_[member] / sizeof(float));
      const std::vector<float> all = values(member);
      std::copy(all.begin() + begin, all.begin() + end, want.begin() + begin);
    }
    CHECK(gathered_ == want);
    CHECK(sent_ == values(root_ + 100));
    std::vector<float> total(given_.size());
    for (std::size_t member = 0; member < sizes_.size(); ++member) {
      const std::vector<float> all = values(member);
      std::ranges::transform(total, all, total.begin(), std::plus());
    }
    const auto first = total.begin() + static_cast<std::ptrdiff_t>(before(sizes_, self_) / sizeof(float));
    CHECK(std::equal(scattered_.begin(), scattered_.end(), first));
    if (self_ == root_) CHECK(reduced_ == total);
  }

 private:
  // Whole numbers, so that sums are exact in any order.
  [[nodiscard]] std::vector<float> values(std::size_t member) const {
    std::vector<float> made(sum(sizes_) / sizeof(float));
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>((member * 37 + i * 11) % 1009);
    return made;
  }
  static ByteSpan bytes(std::vector<float>& values) { return std::as_writable_bytes(std::span(values)); }
  void start(Fabric& fabric, const Call& call) {
    auto started = fabric.start(call);
    REQUIRE(started.ok());
    calls_.push_back(std::move(*started));
  }

  const std::size_t self_;
  const Sizes sizes_;
  std::vector<float> given_, gathered_, sent_, scattered_, reduced_;
  const std::size_t root_;
  std::vector<std::unique_ptr<collective::PendingCall>> calls_;
};

TEST_CASE("levels: one thread steps all movements in any order", "[fabric][one thread]") {
  std::vector<ClusterShape> shapes = cluster_shapes();
  shapes.push_back(by_factors({1, 2, 2, 2}));
  for (unsigned seed = 0; seed < 52; ++seed) {
    const LevelsWorld world(shapes[seed % shapes.size()],
                            {.shard_bytes = 16384, .most_across = 1 + seed % 3});
    const std::size_t unit = std::vector<std::size_t>{4, 1200, 70000, 200004}[seed / shapes.size() % 4];
    INFO("seed " << seed << ", " << world.shape.name);
    std::mt19937 random(seed);
    std::vector<std::unique_ptr<Moves>> members;
    for (const auto& fabric : world.fabrics)
      members.push_back(std::make_unique<Moves>(
          *fabric, unit, static_cast<int>(seed % static_cast<unsigned>(world.shape.size()))));
    std::size_t over = 0, turns = 0;
    std::vector<bool> ended(members.size(), false);
    while (over < members.size()) {
      REQUIRE(++turns < 20'000'000);  // some do not end
      const std::size_t member = random() % members.size();
      if (ended[member]) continue;
      ended[member] = members[member]->step(static_cast<unsigned>(random()));
      if (ended[member]) ++over;
    }
    for (const auto& member : members) member->check();
  }
}

// Makes a call of each kind on all members. Returns the bytes of the messages between them.
template <class Kind>
std::int64_t bytes_between(const ClusterShape& shape, const std::function<Kind(Fabric&, Bytes&)>& call_of) {
  LevelsWorld world(shape);
  const auto members = static_cast<std::size_t>(shape.size());
  std::vector<Counter> sent(members);
  // A node's memory serves one fabric of each member: members that have left stay so.
  std::ranges::for_each(world.fabrics, [](auto& fabric) { fabric.reset(); });
  world.nodes.clear();
  for (std::size_t i = 0; i < members; ++i) {
    collective::LevelsParts parts = world.parts(static_cast<int>(i), {});
    parts.flat = counted_fabric(*world.levels.flat, world.levels.whole(static_cast<int>(i)), sent[i]);
    world.fabrics[i] = collective::make_levels_fabric(std::move(parts));
  }
  REQUIRE(run_on_threads(world.fabrics, [&](Fabric& fabric) {
            Bytes memory;
            return run_call(fabric, call_of(fabric, memory));
          }) == "");
  return std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
}

// The parts between whose messages the bytes are counted: nodes, as the stages inside have media of their
// own.
TEST_CASE("levels: what moves enters each node once", "[fabric]") {
  constexpr std::size_t kPart = 1 << 20;
  for (const ClusterShape& shape : {nodes_of(2, 2), nodes_of(3, 2), three_and_four()}) {
    const auto members = static_cast<std::size_t>(shape.size());
    const auto nodes = static_cast<std::int64_t>(shape.tree.front().size());
    const Sizes sizes(members, kPart);
    const auto all = static_cast<std::int64_t>(sum(sizes));
    INFO(shape.name);
    CHECK(bytes_between<AllgatherCall>(shape, [&](Fabric& fabric, Bytes& memory) {
            memory.resize(sum(sizes));
            const auto self = static_cast<std::size_t>(fabric.group().index);
            return AllgatherCall{{}, memory.data() + self * kPart, memory, sizes, nullptr};
          }) == (nodes - 1) * all);
    CHECK(bytes_between<ReducescatterCall>(shape, [&](Fabric& fabric, Bytes& memory) {
            memory.resize(sum(sizes));
            const auto self = static_cast<std::size_t>(fabric.group().index);
            const ByteSpan own(memory.data() + self * kPart, kPart);
            return ReducescatterCall{{}, {}, memory.data(), own, sizes, nullptr};
          }) == (nodes - 1) * all);
    for (int root = 0; root < shape.size(); ++root) {
      CHECK(bytes_between<BroadcastCall>(shape, [&](Fabric& /*fabric*/, Bytes& memory) {
              memory.resize(kPart);
              return broadcast_over(memory.data(), memory.size(), root);
            }) == (nodes - 1) * static_cast<std::int64_t>(kPart));
      CHECK(bytes_between<ReducescatterCall>(shape, [&](Fabric& fabric, Bytes& memory) {
              memory.resize(kPart);
              Sizes only(members);
              only[static_cast<std::size_t>(root)] = kPart;
              const ByteSpan output = fabric.group().index == root ? ByteSpan(memory) : ByteSpan();
              return ReducescatterCall{{}, {}, memory.data(), output, only, nullptr};
            }) == (nodes - 1) * static_cast<std::int64_t>(kPart));
    }
  }
}

// Reduces to each root in turn, with scales: equal values come back as their average.
std::string reduce_equal_values(Fabric& fabric, DType dtype) {
  const auto members = static_cast<std::size_t>(fabric.group().size());
  const Bytes given = random_elements(70001, dtype, 5);
  for (std::size_t root = 0; root < members; ++root) {
    const bool own = static_cast<std::size_t>(fabric.group().index) == root;
    ReducescatterCall call;
    call.dtype = dtype;
    call.scale = {1.0, fabric.group().size()};
    call.input = given.data();
    call.shard_bytes.assign(members, 0);
    call.shard_bytes[root] = given.size();
    Bytes result(own ? given.size() : 0);
    call.output = result;
    if (std::string bad = run_call(fabric, call); !bad.empty()) return bad;
    if (own && result != given) return "root " + std::to_string(root) + ": the average is another value";
  }
  return {};
}

TEST_CASE("levels: an average of equal values comes back to its root", "[fabric][sums]") {
  for (const ClusterShape& shape : {nodes_of(2, 2), nodes_of(4, 2), by_factors({2, 2, 2})}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
      LevelsMedium medium(shape);
      INFO(shape.name);
      CHECK(medium.run(shape.size(), Select(),
                       [&](Fabric& fabric) { return reduce_equal_values(fabric, dtype); }) == "");
    }
  }
}

// Compares each member's shard with its place in an allreduce of the same values.
std::string compare_sums(Fabric& fabric, DType dtype, Scale scale) {
  const auto members = static_cast<std::size_t>(fabric.group().size());
  const auto self = static_cast<std::size_t>(fabric.group().index);
  Sizes sizes = sizes_of(fabric.group().size(), 50001 * size_of(dtype));
  const std::size_t count = sum(sizes) / size_of(dtype);
  const Bytes given = random_elements(count, dtype, static_cast<unsigned>(self));
  Bytes whole = given, shard(sizes[self]);
  AllreduceCall reduce = allreduce_over(whole.data(), whole.size());
  reduce.dtype = dtype;
  reduce.prescale = {0.3, 1};
  reduce.scale = scale;
  if (std::string bad = run_call(fabric, reduce); !bad.empty()) return bad;
  const ReducescatterCall scatter{{}, reduce, given.data(), shard, sizes, nullptr};
  if (std::string bad = run_call(fabric, scatter); !bad.empty()) return bad;
  const auto place = whole.begin() + static_cast<std::ptrdiff_t>(before(sizes, self));
  const bool same = std::equal(shard.begin(), shard.end(), place);
  return same ? "" : std::string(name_of(dtype)) + " of " + std::to_string(members) + ": other bits";
}

TEST_CASE("levels: a shard has the bits of an allreduce", "[fabric][sums]") {
  for (const ClusterShape& shape : cluster_shapes()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const Scale scale : {Scale{}, Scale{1.0, shape.size()}, Scale{0.7, 1}}) {
        LevelsMedium medium(shape);
        INFO(shape.name);
        CHECK(medium.run(shape.size(), Select(),
                         [&](Fabric& fabric) { return compare_sums(fabric, dtype, scale); }) == "");
      }
    }
  }
}

TEST_CASE("messages that make no sense are refused", "[fabric]") {
  LevelsMedium medium(nodes_of(2, 2));
  CHECK(medium.run(4, Select(), [](Fabric& fabric) {
    Bytes memory(8);
    const auto refused = [&](MessageList list) {
      AlltoallCall call;
      call.messages = &list;
      return fabric.start(call).status().code() == StatusCode::kInvalidArgument;
    };
    const int peer = fabric.group().index == 0 ? 1 : 0;
    // The levels themselves take none.
    return refused({{{peer, memory}}, {}, 8}) ? "" : "messages over levels were accepted";
  }) == "");
  const auto hub = std::make_shared<collective::InprocHub>(2);
  const auto fabric = collective::make_inproc_fabric(hub, {.ranks = {0, 1}, .index = 0});
  Bytes memory(8);
  const auto refused = [&](MessageList list, Sizes sizes = {}) {
    AlltoallCall call;
    call.send_bytes = std::move(sizes);
    call.messages = &list;
    return fabric->start(call).status().code() == StatusCode::kInvalidArgument;
  };
  CHECK(refused({{{0, memory}}, {}, 8}));          // to itself
  CHECK(refused({{{2, memory}}, {}, 8}));          // to nobody
  CHECK(refused({{}, {{-1, memory}}, 8}));         // from nobody
  CHECK(refused({{{1, {}}}, {}, 8}));              // empty
  CHECK(refused({{{1, memory}}, {}, 7}));          // larger than it says
  CHECK(refused({{{1, memory}}, {}, 8}, {1, 1}));  // parts beside it
  CHECK_FALSE(fabric->poisoned());
}

}  // namespace
}  // namespace roundelay::contract
