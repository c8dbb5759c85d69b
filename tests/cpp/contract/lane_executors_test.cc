// Lanes with one executor or two, over two levels in this process, stepped from one thread in any order.
#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/in_time.h"
#include "tests/cpp/lane_rank.h"
#include "tests/cpp/timeline_spans.h"

namespace roundelay::contract {
namespace {

using execute::Floats;
using execute::LaneRank;

constexpr int kNodes = 2, kMembers = 2, kRanks = kNodes * kMembers;

// Counts the calls in progress on the fabrics of one rank.
struct InProgress {
  int now = 0, most = 0;
};

class CountedCall final : public collective::PendingCall {
 public:
  CountedCall(std::unique_ptr<PendingCall> inner, InProgress& calls)
      : inner_(std::move(inner)), calls_(calls) {
    calls_.most = std::max(calls_.most, ++calls_.now);
  }
  ~CountedCall() override { --calls_.now; }
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;
  Result<bool> test() override { return inner_->test(); }
  [[nodiscard]] int waiting_for() const override { return inner_->waiting_for(); }
  Nap idle(Backoff& backoff) override { return inner_->idle(backoff); }

 private:
  const std::unique_ptr<PendingCall> inner_;
  InProgress& calls_;
};

class CountedFabric final : public collective::Fabric {
 public:
  CountedFabric(std::unique_ptr<Fabric> inner, InProgress& calls)
      : Fabric(inner->capabilities()), inner_(std::move(inner)), calls_(calls) {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] const Group& group() const override { return inner_->group(); }
  Result<std::unique_ptr<collective::PendingCall>> start(const collective::Call& call) override {
    auto started = inner_->start(call);
    if (!started.ok()) return started.status();
    return std::unique_ptr<collective::PendingCall>(
        std::make_unique<CountedCall>(std::move(started).value(), calls_));
  }
  [[nodiscard]] bool any_thread() const override { return inner_->any_thread(); }
  [[nodiscard]] bool poisoned() const override { return inner_->poisoned(); }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return inner_->level_fabrics(); }

 private:
  const std::unique_ptr<Fabric> inner_;
  InProgress& calls_;
};

struct World {
  explicit World(std::size_t executors, Duration progress_timeout = std::chrono::seconds(30)) {
    for (std::size_t i = 0; i < executors; ++i)
      media.push_back(std::make_unique<InprocLevels>(kNodes, kMembers));
    execute::LaneOptions options;
    options.fusion_threshold = 4096;
    options.progress_timeout = progress_timeout;
    for (int rank = 0; rank < kRanks; ++rank) {
      execute::LaneFabrics fabrics;
      for (const auto& levels : media) {
        fabrics.all.push_back(std::make_unique<CountedFabric>(
            collective::make_levels_fabric(levels->of(rank, {.shard_bytes = 1024, .most_across = 2})),
            calls[static_cast<std::size_t>(rank)]));
      }
      ranks.push_back(std::make_unique<LaneRank>(std::move(fabrics), options));
    }
  }

  std::vector<InProgress> calls = std::vector<InProgress>(kRanks);
  std::vector<std::unique_ptr<InprocLevels>> media;  // an executor each
  std::vector<std::unique_ptr<LaneRank>> ranks;
};

// One order of a job: names and sizes of tensors, and whether they are summed or broadcast.
struct Ordered {
  std::vector<std::string> names;
  std::vector<std::size_t> counts;
  bool broadcast;
};

std::vector<Ordered> orders_of(std::mt19937& random) {
  std::vector<Ordered> orders(12);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    orders[i].broadcast = random() % 6 == 0;
    const std::size_t tensors = orders[i].broadcast ? 1 : 1 + random() % 3;
    for (std::size_t t = 0; t < tensors; ++t) {
      orders[i].names.push_back(std::to_string(i) + "." + std::to_string(t));
      orders[i].counts.push_back(random() % 2 == 0 ? 1 + random() % 40 : 1 + random() % 5000);
    }
  }
  return orders;
}

// Carries out all orders, which come to each rank when the step order wants it. Returns the results of each
// rank, one after the other.
std::vector<Floats> results_of(World& world, const std::vector<Ordered>& orders, unsigned seed,
                               unsigned step_seed) {
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    std::mt19937 values(seed * 100 + static_cast<unsigned>(rank));
    std::uniform_real_distribution<float> value(-1.0F, 1.0F);
    for (const Ordered& order : orders) {
      for (std::size_t t = 0; t < order.names.size(); ++t) {
        Floats input(order.counts[t]);
        std::generate(input.begin(), input.end(), [&] { return value(values); });
        world.ranks[rank]->add(order.names[t], input, [&](wire::Request& request) {
          request.reduce_op = ReduceOp::kAverage;
          if (!order.broadcast) return;
          request.operation = Operation::kBroadcast;
          request.root = 11;
        });
      }
    }
  }
  std::mt19937 random(step_seed);
  std::vector<std::size_t> given(kRanks);
  const Deadline limit = Deadline::after(std::chrono::seconds(60));
  const auto over = [&] {
    return std::all_of(world.ranks.begin(), world.ranks.end(),
                       [](const auto& r) { return !r->lane.has_work(); });
  };
  while (std::any_of(given.begin(), given.end(), [&](std::size_t n) { return n < orders.size(); }) ||
         !over()) {
    testing::expect_before(limit);
    const std::size_t rank = random() % kRanks;
    execute::Lane& lane = world.ranks[rank]->lane;
    if (given[rank] < orders.size() && random() % 8 == 0) {
      const std::size_t next = given[rank]++;
      lane.enqueue(next + 1, execute::operation(orders[next].names));
    }
    for (unsigned steps = random() % 8; steps > 0; --steps) lane.step();
  }
  std::vector<Floats> results(kRanks);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (const Ordered& order : orders) {
      for (const std::string& name : order.names) {
        REQUIRE(world.ranks[rank]->status(name).ok());
        const Floats& output = world.ranks[rank]->tensors.at(name).output;
        results[rank].insert(results[rank].end(), output.begin(), output.end());
      }
    }
  }
  return results;
}

TEST_CASE("two executors give the bits of one, on all ranks", "[lane][executors][one thread]") {
  int overlapped = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const std::vector<Ordered> orders = orders_of(random);
    World one(1), two(2);
    const auto expected = results_of(one, orders, seed, seed + 1);
    const auto found = results_of(two, orders, seed, seed + 2);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      REQUIRE(found[rank] == expected[rank]);
      REQUIRE(found[rank] == found[0]);
      REQUIRE(one.calls[rank].most == 1);
      overlapped += two.calls[rank].most == 2 ? 1 : 0;
    }
  }
  CHECK(overlapped > 40);  // of 80
}

// Returns whether each span lies in one of the others.
bool inside(const std::vector<Span>& spans, const std::vector<Span>& others) {
  return std::all_of(spans.begin(), spans.end(), [&](const Span& span) {
    return std::any_of(others.begin(), others.end(),
                       [&](const Span& other) { return span.begin >= other.begin && span.end <= other.end; });
  });
}

TEST_CASE("the timeline tells when the batch of each executor was on which level",
          "[lane][executors][timeline]") {
  using timeline::Row;
  std::mt19937 random(1);
  World world(2);
  LaneRank& rank = *world.ranks.front();
  rank.timeline.start(false);
  static_cast<void>(results_of(world, orders_of(random), 1, 1));
  const std::string text = rank.timeline.drain();
  const std::array<std::array<Row, 3>, 2> rows = {
      {{Row::kCollective, Row::kInside, Row::kBetween},
       {Row::kSecondCollective, Row::kSecondInside, Row::kSecondBetween}}};
  for (const auto& [collective, node, wire] : rows) {
    const std::vector<Span> batches = spans(text, collective);
    CHECK_FALSE(batches.empty());
    for (const Row level : {node, wire}) {
      const std::vector<Span> busy = spans(text, level);
      CHECK_FALSE(busy.empty());
      CHECK(inside(busy, batches));
      for (std::size_t i = 1; i < busy.size(); ++i) CHECK(busy[i].begin >= busy[i - 1].end);
    }
    CHECK(spans(text, node).size() >= 2 * spans(text, wire).size());  // two steps a chunk
  }
}

// Rank 10 + `dead` stops while two batches are under way everywhere.
TEST_CASE("a rank that dies with two batches under way is named, and all fail once", "[lane][executors]") {
  for (std::size_t dead = 0; dead < kRanks; ++dead) {
    INFO("rank " << 10 + dead);
    World world(2, std::chrono::milliseconds(100));
    const std::vector<std::string> names{"a", "b", "c"};
    for (const auto& rank : world.ranks) {
      for (const std::string& name : names) rank->add(name, Floats(3001, 1.0F), execute::kAsIs);
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      for (const auto& rank : world.ranks) rank->lane.enqueue(i + 1, execute::operation({names[i]}));
    }
    for (int turn = 0; turn < 3; ++turn) {
      for (const auto& rank : world.ranks) rank->lane.step();
    }
    for (const InProgress& calls : world.calls) REQUIRE(calls.now == 2);
    for (const auto& levels : world.media) levels->silence(static_cast<int>(dead));
    const Deadline limit = Deadline::after(std::chrono::seconds(20));
    bool named = false;
    while (!named && !limit.passed()) {
      for (std::size_t i = 0; i < kRanks; ++i) {
        LaneRank& rank = *world.ranks[i];
        if (i == dead) continue;
        rank.lane.step();
        for (const wire::Stuck& stuck : rank.stucks) {
          named = named || stuck.waiting_for == static_cast<int>(10 + dead);
        }
      }
    }
    CHECK(named);
    for (std::size_t i = 0; i < kRanks; ++i) {
      LaneRank& rank = *world.ranks[i];
      if (i == dead) continue;
      REQUIRE(rank.abort.raise(Status::aborted("cause")));
      CHECK(rank.lane.step());
      CHECK_FALSE(rank.lane.has_work());
      CHECK(rank.stucks.size() + rank.faults.size() <= 1);
      CHECK(rank.completed.empty());
      for (const std::string& name : names) CHECK(rank.status(name) == execute::cut_short("cause", name));
      CHECK(world.calls[i].now == 0);
      CHECK(rank.lane.fabric().poisoned());
    }
  }
}

}  // namespace
}  // namespace roundelay::contract
