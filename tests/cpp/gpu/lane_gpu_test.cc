// Lanes whose tensors are on fake GPUs, stepped from one thread.
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collective/inproc/hub.h"
#include "complete/handles.h"
#include "execute/completer.h"
#include "execute/lane.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/doubles/fake_gpu.h"
#include "tests/cpp/in_time.h"
#include "tests/cpp/timeline_spans.h"

namespace roundelay::execute {
namespace {

using collective::InprocHub;
using std::chrono::milliseconds;

// A tensor of ones on the device, written by a stream of its own.
struct Tensor final : submit::Results {
  Tensor(doubles::FakeGpu& gpu, std::size_t count)
      : stream(gpu.make_stream(0).value()),
        bytes(count * sizeof(float)),
        given(gpu.allocate_pinned(bytes).value()),
        memory(gpu.allocate(0, bytes).value()) {
    const std::vector<float> ones(count, 1.0F);
    std::memcpy(given.get(), ones.data(), bytes);
  }
  GpuEventPtr write(doubles::FakeGpu& gpu) const {
    static_cast<void>(gpu.copy(0, memory.get(), given.get(), bytes, stream));
    return gpu.mark(0, stream).value();
  }
  Result<Memory> allocate(std::size_t, const std::vector<std::int64_t>&) override {
    return Status::internal("it works in place");
  }
  void set_received_splits(std::vector<std::int64_t>) override {}
  void set_done(GpuEventPtr event) override { done = std::move(event); }

  const GpuStream stream;
  const std::size_t bytes;
  const GpuMemory given, memory;
  GpuEventPtr done;
  complete::Handle handle = 0;
};

class Rank {
 public:
  Rank(const std::shared_ptr<InprocHub>& hub, int size, int index, std::size_t fusion_threshold)
      : gpu({.seed = static_cast<unsigned>(index + 1)}),
        lane(LaneId{}, one_fabric(collective::make_inproc_fabric(hub, group_of(size, index))), completer_,
             timeline, abort_, options(fusion_threshold),
             {[](const wire::Stuck& stuck) { FAIL(stuck.text); },
              [](const wire::Abort& fault) { FAIL(fault.text); }}) {}

  Tensor& make(const std::string& name, std::size_t count = 8) {
    return *(tensors[name] = std::make_unique<Tensor>(gpu, count));
  }
  void submit(const std::string& name) {
    Tensor& tensor = *tensors.at(name);
    submit::Entry entry;
    entry.request.name = name;
    entry.request.device = DeviceType::kGpu;
    const std::size_t count = tensor.bytes / sizeof(float);
    entry.request.shape = {static_cast<std::int64_t>(count)};
    entry.parts = {{DType::kFloat32, tensor.memory.get(), tensor.memory.get(), count}};
    entry.results = &tensor;
    entry.gpu = 0;
    entry.inputs_ready = tensor.write(gpu);
    tensor.handle = lane.table().add(std::move(entry), handles_).value();
  }

  doubles::FakeGpu gpu;
  std::map<std::string, std::unique_ptr<Tensor>> tensors;
  timeline::Timeline timeline{0};

 private:
  static Group group_of(int size, int index) {
    Group group;
    for (int rank = 0; rank < size; ++rank) group.ranks.push_back(rank);
    group.index = index;
    return group;
  }
  LaneOptions options(std::size_t fusion_threshold) {
    LaneOptions options;
    options.fusion_threshold = fusion_threshold;
    options.gpu = LaneGpu{{.runtime = &gpu, .kernels = &gpu, .nccl = nullptr, .why_no_nccl = "none"},
                          &sequencer,
                          {.wish = gpu::GpuFabricWish::kStaged}};
    return options;
  }

  complete::HandleTable handles_;
  Completer completer_{handles_, [](const submit::Entry&, TimePoint) {}};
  AbortToken abort_;

 public:
  gpu::GpuSequencer sequencer{[] {}};
  Lane lane;
};

struct World {
  World(int size, std::size_t fusion_threshold) : hub(std::make_shared<InprocHub>(size)) {
    for (int i = 0; i < size; ++i) ranks.push_back(std::make_unique<Rank>(hub, size, i, fusion_threshold));
  }
  void order(const std::vector<std::string>& names) {
    ++sequence;
    for (auto& rank : ranks) {
      for (const std::string& name : names) rank->submit(name);
      rank->lane.enqueue(sequence, {names, {}, {}, false});
    }
  }
  // Steps until all is enqueued.
  void run() {
    step_until([](Rank& rank) { return !rank.lane.has_work(); });
  }
  // Steps until the device has done all work and the lanes have seen it.
  void finish() {
    step_until([](Rank& rank) { return !rank.lane.has_work() && !rank.lane.watches_device(); });
  }
  template <typename Done>
  void step_until(Done done) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    bool all = false;
    while (!all) {
      all = true;
      for (auto& rank : ranks) {
        rank->lane.step();
        all = done(*rank) && all;
      }
      testing::expect_before(deadline);
    }
  }

  std::shared_ptr<InprocHub> hub;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::uint64_t sequence = 0;
};

// Steps until the offset of the device's clock is known.
void start_timeline(World& world, Rank& rank) {
  rank.timeline.start(false);
  for (auto& member : world.ranks) member->make("first");
  while (spans(rank.timeline.drain(), timeline::Row::kGpu).empty()) {
    world.order({"first"});
    world.finish();
  }
}

double microseconds(TimePoint when) {
  return std::chrono::duration<double, std::micro>(when.time_since_epoch()).count();
}

TEST_CASE("a result on a GPU does not wait for the next operation's tensor", "[lane][gpu]") {
  World world(1, 0);
  Rank& rank = *world.ranks.front();
  const Tensor& first = rank.make("first");
  const Tensor& second = rank.make("second");
  {
    const doubles::FakeGpu::Hold late(rank.gpu, 0, second.stream);
    world.order({"first", "second"});
    world.run();
    world.step_until([&](Rank&) { return *first.done->reached(); });
    CHECK(!*second.done->reached());
  }
  world.finish();
}

TEST_CASE("over pinned memory a batch leaves its ticket when it begins, and once", "[lane][gpu]") {
  World world(2, 0);
  Rank& rank = *world.ranks.front();
  const auto give = [&](Rank& to, const std::string& name, std::uint64_t ticket) {
    if (to.tensors.count(name) == 0) to.make(name);
    to.submit(name);
    const negotiate::GpuTicket own{.number = ticket, .previous = ticket - 1};
    to.lane.enqueue(ticket, {{name}, {}, {}, false, own});
  };
  const auto begin = [&] {
    for (int turn = 0; turn < 20; ++turn) rank.lane.step();
  };
  give(rank, "first", 1);
  begin();
  CHECK_FALSE(rank.sequencer.may_go(1));  // the members have not chosen a fabric
  give(*world.ranks.back(), "first", 1);
  world.run();
  CHECK(rank.sequencer.may_go(1));
  give(rank, "second", 2);
  begin();
  CHECK(rank.lane.has_work());  // the peer has not come
  CHECK(rank.sequencer.may_go(2));
  rank.sequencer.gone(3);  // an operation of another lane
  give(*world.ranks.back(), "second", 2);
  world.run();
  CHECK(rank.sequencer.may_go(3));
  world.finish();
}

TEST_CASE("the timeline has what a GPU did when it did it, in the stream's order", "[lane][gpu][timeline]") {
  const int size = GENERATE(1, 2);
  const std::size_t fusion_threshold = GENERATE(std::size_t{0}, std::size_t{1} << 20);
  INFO(size << " ranks, fusion " << fusion_threshold);
  World world(size, fusion_threshold);
  Rank& rank = *world.ranks.front();
  start_timeline(world, rank);
  constexpr std::size_t kRounds = 10;
  std::vector<Span> host;
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::string name = std::to_string(round);
    host.push_back({microseconds(steady_now()), 0});
    for (auto& member : world.ranks) {
      member->make(name, 1000);
      member->make("more " + name, 100);
    }
    world.order({name, "more " + name});
    world.finish();
    host.back().end = microseconds(steady_now());
  }
  const std::string text = rank.timeline.drain();
  const auto enqueued = spans(text, timeline::Row::kEnqueue), done = spans(text, timeline::Row::kGpu);
  const std::size_t each = fusion_threshold == 0 ? 2 : 1;
  REQUIRE(enqueued.size() == kRounds * each);
  REQUIRE(done.size() == enqueued.size());
  CHECK(spans(text, timeline::Row::kCollective).empty());
  CHECK(spans(text, timeline::Row::kCopy).empty());
  for (std::size_t i = 0; i < done.size(); ++i) {
    INFO("span " << i);
    CHECK(done[i].begin >= host[i / each].begin);
    CHECK(done[i].end <= host[i / each].end);
    CHECK(done[i].begin <= done[i].end);
    if (i > 0) CHECK(done[i].begin >= done[i - 1].end);
  }
}

TEST_CASE("a GPU that is late is late in the timeline, too", "[lane][gpu][timeline]") {
  World world(1, 0);
  Rank& rank = *world.ranks.front();
  start_timeline(world, rank);
  rank.make("late");
  constexpr Duration kBusy = milliseconds(200);
  double released = 0;
  {
    const doubles::FakeGpu::Hold busy(rank.gpu);
    world.order({"late"});
    world.run();
    const Deadline over = Deadline::after(kBusy);
    while (!over.passed()) rank.lane.step();
    released = microseconds(over.when());
  }
  world.finish();
  const std::string text = rank.timeline.drain();
  const auto enqueued = spans(text, timeline::Row::kEnqueue), done = spans(text, timeline::Row::kGpu);
  REQUIRE(enqueued.size() == 1);
  REQUIRE(done.size() == 1);
  const double half = std::chrono::duration<double, std::micro>(kBusy).count() / 2;
  CHECK(enqueued[0].end < released - half);
  CHECK(done[0].begin > released - half);
}

// The first operation chooses the fabric on the way.
TEST_CASE("an operation has the name of the fabric that carried it out, the first one, too", "[lane][gpu]") {
  World world(2, 0);
  for (auto& member : world.ranks) {
    member->timeline.start(false);
    member->make("t");
  }
  for (int round = 0; round < 2; ++round) {
    world.order({"t"});
    world.finish();
    for (auto& member : world.ranks) {
      INFO("round " << round);
      const std::string text = member->timeline.drain();
      CHECK(text.find(R"("algorithm":"staged )") != std::string::npos);
      CHECK(text.find(R"("algorithm":"gpu")") == std::string::npos);
    }
  }
}

TEST_CASE("with the timeline off no time is asked of a GPU", "[lane][gpu][timeline]") {
  World world(1, 0);
  Rank& rank = *world.ranks.front();
  rank.make("t");
  world.order({"t"});
  world.finish();
  CHECK(rank.gpu.timestamps() == 0);
}

}  // namespace
}  // namespace roundelay::execute
