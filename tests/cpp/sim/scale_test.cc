// Negotiators of up to 4,096 ranks in one thread: what the busiest rank has to do for a bucket.
//
// `test_sim "[scale]"` prints a line for each size. benchmarks/scale.py makes docs/scale.md of them.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "channel/inproc/hub.h"
#include "lock/node_tree.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/sim/rank.h"

namespace roundelay::sim {
namespace {

constexpr int kEach = 8;  // ranks of a node
constexpr int kFanOut = 8;
constexpr int kNoLeaders = 1 << 20;  // as a fan-out

// mallinfo2() takes longer than all that is measured, so times and heap are measured in different rounds.
bool measures_heap = false;

std::int64_t heap_bytes() { return measures_heap ? static_cast<std::int64_t>(mallinfo2().uordblks) : 0; }

// Messages on their way belong to no rank: `on_the_way` is what they have added to the heap in calls of this
// channel.
class CountingChannel final : public channel::Channel {
 public:
  explicit CountingChannel(std::unique_ptr<channel::Channel> inner) : inner_(std::move(inner)) {}

  Status send(int to, ConstByteSpan message) override {
    if (alone) return {};
    const std::int64_t before = heap_bytes();
    const std::int64_t begin = nanoseconds(steady_now());
    Status sent = inner_->send(to, message);
    network_time += nanoseconds(steady_now()) - begin;
    on_the_way += heap_bytes() - before;
    ++messages_out;
    bytes += static_cast<std::int64_t>(message.size());
    return sent;
  }
  std::optional<channel::Incoming> receive() override {
    const std::int64_t before = heap_bytes();
    const std::int64_t begin = nanoseconds(steady_now());
    auto incoming = alone ? next_of_last_round() : inner_->receive();
    network_time += nanoseconds(steady_now()) - begin;
    on_the_way += heap_bytes() - before;
    if (!incoming) return incoming;
    if (measures_heap) on_the_way -= static_cast<std::int64_t>(malloc_usable_size(incoming->bytes.data()));
    ++messages_in;
    bytes += static_cast<std::int64_t>(incoming->bytes.size());
    if (!alone) last_round.push_back(*incoming);
    return incoming;
  }
  void wait(Deadline) override {}
  void wake() override {}
  void close(Deadline deadline) override { inner_->close(deadline); }

  void begin_round() {
    messages_in = messages_out = bytes = 0;
    if (!alone) last_round.clear();
    next_ = 0;
  }

  std::int64_t messages_in = 0, messages_out = 0, bytes = 0, on_the_way = 0, network_time = 0;
  std::vector<channel::Incoming> last_round;
  bool alone = false;  // receives what came in the last round, again, and sends nothing

 private:
  std::optional<channel::Incoming> next_of_last_round() {
    return next_ < last_round.size() ? std::optional(last_round[next_++]) : std::nullopt;
  }

  std::size_t next_ = 0;
  std::unique_ptr<channel::Channel> inner_;
};

// What one bucket costs.
struct Cost {
  std::int64_t messages_in = 0, messages_out = 0;  // at the rank that has most of them
  std::int64_t bytes = 0;                          // of these, at the rank that has most
};

class ManyRanks {
 public:
  ManyRanks(int size, int fan_out) : hub_(size, channel::Delivery::kAtOnce), gpus_(size) {
    Group world;
    std::vector<int> nodes;
    for (int rank = 0; rank < size; ++rank) {
      world.ranks.push_back(rank);
      nodes.push_back(rank / kEach);
    }
    negotiate::CoordinatorOptions options;
    options.plan = {std::size_t{1} << 20, 0};
    options.fire = {1, Duration{0}};
    options.fan_out = fan_out;
    for (world.index = 0; world.index < size; ++world.index) {
      measures_heap = world.index == 0;
      const std::int64_t before = heap_bytes();
      auto channel = std::make_unique<CountingChannel>(hub_.channel(world.index));
      channels_.push_back(channel.get());
      ranks_.push_back(std::make_unique<Rank>(world.index, size, std::move(channel), options, gpus_, false));
      ranks_.back()->negotiator.set_nodes(nodes);
      ranks_.back()->open(LaneId{}, world, nullptr);
      if (world.index == 0) root_heap_ = heap_bytes() - before;
    }
    measures_heap = false;
  }

  // All ranks submit, and everything is done that follows. `of_heap`: measures root_heap(), and no time.
  Cost run(const Submission& submission, bool of_heap = false) {
    for (CountingChannel* const channel : channels_) channel->begin_round();
    for (const auto& rank : ranks_) {
      REQUIRE(rank->world().submit(submission, false));
      rank->negotiator.inbox().request_end_of_linger();
    }
    heap_now_ = of_heap;
    while (step_all()) {
    }
    Cost cost;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      REQUIRE(ranks_[r]->aborted.ok());
      REQUIRE(ranks_[r]->world().table.in_flight() == 0);
      cost.messages_in = std::max(cost.messages_in, channels_[r]->messages_in);
      cost.messages_out = std::max(cost.messages_out, channels_[r]->messages_out);
      cost.bytes = std::max(cost.bytes, channels_[r]->bytes);
    }
    return cost;
  }
  // Returns the time that rank 0 needs for the bucket of the last run if its memory is in the cores' caches,
  // in microseconds: the least of many rounds, in which it hears from the others what they said then.
  double run_root_alone(const Submission& submission) {
    channels_[0]->alone = true;
    std::int64_t least = INT64_MAX;
    for (int round = 0; round < 200; ++round) {
      channels_[0]->begin_round();
      root_time_ = 0;
      REQUIRE(ranks_[0]->world().submit(submission, false));
      ranks_[0]->negotiator.inbox().request_end_of_linger();
      while (step_root()) {
      }
      ranks_[0]->world().complete_foremost();
      least = std::min(least, root_time_);
    }
    return static_cast<double>(least) / 1000.0;
  }
  [[nodiscard]] std::int64_t root_heap() const { return most_heap_; }

 private:
  bool step_all() {
    bool moved = step_root();
    for (std::size_t r = 1; r < ranks_.size(); ++r) moved = ranks_[r]->negotiator.step(kNow) || moved;
    for (const auto& rank : ranks_) {
      while (rank->run_lane(LaneId{})) moved = true;
    }
    return moved;
  }

  bool step_root() {
    measures_heap = heap_now_;
    const std::int64_t before = heap_bytes() - channels_[0]->on_the_way;
    const std::int64_t begin = nanoseconds(steady_now()) - channels_[0]->network_time;
    const bool moved = ranks_[0]->negotiator.step(kNow);
    root_time_ += nanoseconds(steady_now()) - channels_[0]->network_time - begin;
    root_heap_ += heap_bytes() - channels_[0]->on_the_way - before;
    most_heap_ = std::max(most_heap_, root_heap_);
    measures_heap = false;
    return moved;
  }

  static constexpr TimePoint kNow{std::chrono::hours(1)};

  channel::Hub hub_;
  Gpus gpus_;
  std::vector<CountingChannel*> channels_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::int64_t root_time_ = 0;
  bool heap_now_ = false;
  std::int64_t root_heap_ = 0, most_heap_ = 0;
};

int depth_of(int size, int fan_out) {
  if (size - kEach <= fan_out) return 1;
  int depth = 1;
  for (int node = size / kEach - 1; node > 0; node = lock::node_above(node, fan_out)) ++depth;
  return depth;
}

Submission bucket() { return {.name = "bucket", .shape = {1 << 20}}; }
Submission agreement() {
  Submission submission{.name = "used", .operation = Operation::kAgreement, .shape = {}};
  submission.fields = {{Merge::kAnd, 20}};
  submission.values = std::string(20, '\x01');
  return submission;
}

void print_costs(int size, int fan_out, const Submission& what) {
  ManyRanks job(size, fan_out);
  job.run(what, true);
  const Cost cost = job.run(what);
  const double root_us = job.run_root_alone(what);
  const bool leads = fan_out != kNoLeaders;
  std::printf(
      "scale what=%s ranks=%d leaders=%d depth=%d received=%lld sent=%lld bytes=%lld root_us=%.1f "
      "root_heap=%lld\n",
      what.name.c_str(), size, leads ? 1 : 0, leads ? depth_of(size, fan_out) : 1,
      static_cast<long long>(cost.messages_in), static_cast<long long>(cost.messages_out),
      static_cast<long long>(cost.bytes), root_us, static_cast<long long>(job.root_heap()));
}

}  // namespace

TEST_CASE("no rank has more than a few messages for a bucket, whatever the size", "[sim]") {
  const int size = GENERATE(16, 64, 512);
  ManyRanks job(size, kFanOut);
  const Cost first = job.run(bucket());
  const Cost again = job.run(bucket());
  const Cost agreed = job.run(agreement());
  for (const Cost& cost : {first, again, agreed}) {
    CHECK(cost.messages_in <= kFanOut + 9);
    CHECK(cost.messages_out <= kFanOut + 9);
  }
  CHECK(again.bytes < 17 * 2 * 32);
}

TEST_CASE("counts of many ranks", "[.][scale]") {
  mallopt(M_MXFAST,
          0);  // the heap is that of all ranks: nothing in it may cost one rank more than its own would
  for (const int fan_out : {kFanOut, kNoLeaders}) {
    for (const int size : {16, 64, 512, 4096}) {
      print_costs(size, fan_out, bucket());
      print_costs(size, fan_out, agreement());
    }
  }
}

}  // namespace roundelay::sim
