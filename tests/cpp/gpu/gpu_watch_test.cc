// Batches on a fake GPU that the device has not done.
#include <memory>
#include <string>

#include "collective/inproc/hub.h"
#include "execute/gpu_watch.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/doubles/fake_gpu.h"
#include "tests/cpp/in_time.h"

namespace roundelay::execute {
namespace {

using std::chrono::milliseconds;

class Watched {
 public:
  explicit Watched(Duration timeout) : watch(&sequencer, timeout, recorder_) {}

  // The next batch of the lane's stream, enqueued.
  std::unique_ptr<Batch> enqueue(const std::string& name) {
    auto entry = std::make_shared<submit::Entry>();
    entry->request.name = name;
    entry->request.device = DeviceType::kGpu;
    entry->gpu = 0;
    auto batch = std::make_unique<Batch>();
    batch->sequence = ++sequence_;
    batch->entries.push_back(std::move(entry));
    REQUIRE(place.take_in(*batch).ok());
    REQUIRE(gpu.enqueue(0, place.stream(), [] {}).ok());
    batch->done = place.mark().value();
    return batch;
  }
  // Looks until there is a failure, or nothing to look at.
  std::optional<GpuWatch::Failure> look() {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (watch.active()) {
      testing::expect_before(deadline);
      if (auto failure = watch.look(steady_now(), place)) return failure;
    }
    return std::nullopt;
  }

  doubles::FakeGpu gpu;
  int came = 0;
  gpu::GpuSequencer sequencer{[this] { ++came; }};

 private:
  static Group alone() {
    Group group;
    group.ranks = {0};
    return group;
  }

  const std::unique_ptr<collective::Fabric> cpu_ =
      collective::make_inproc_fabric(std::make_shared<collective::InprocHub>(1), alone());
  timeline::Timeline timeline_{0};
  LaneRecorder recorder_{timeline_, {}, false};
  std::uint64_t sequence_ = 0;
  FramePool frames_;

 public:
  GpuBuffers place{{.runtime = &gpu, .kernels = &gpu, .nccl = nullptr, .why_no_nccl = "none"},
                   *cpu_,
                   frames_,
                   {.wish = gpu::GpuFabricWish::kStaged}};
  GpuWatch watch;
};

TEST_CASE("batches are kept until the device has done them", "[lane][gpu]") {
  Watched lane(std::chrono::seconds(20));
  CHECK_FALSE(lane.watch.active());
  {
    const doubles::FakeGpu::Hold hold(lane.gpu);
    CHECK(lane.watch.add(lane.enqueue("a")));
    CHECK_FALSE(lane.watch.add(lane.enqueue("b")));  // the lane's thread looks already
    CHECK_FALSE(lane.watch.look(steady_now(), lane.place).has_value());
    CHECK(lane.watch.active());
  }
  CHECK_FALSE(lane.look().has_value());
  CHECK(lane.watch.add(lane.enqueue("c")));
}

TEST_CASE("a device that fails is a failure of the first batch it has not done", "[lane][gpu]") {
  Watched lane(std::chrono::seconds(20));
  const doubles::FakeGpu::Hold hold(lane.gpu);
  static_cast<void>(lane.watch.add(lane.enqueue("a")));
  static_cast<void>(lane.watch.add(lane.enqueue("b")));
  const Status cause = Status::aborted("an illegal address");
  lane.gpu.fail(cause);
  const auto failure = lane.look();
  REQUIRE(failure.has_value());
  CHECK(failure->cause == cause);
  CHECK(failure->sequence == 1);
  CHECK(failure->batch == "allreduce of 'a' on a GPU");
  lane.watch.clear();
  CHECK_FALSE(lane.watch.active());
}

TEST_CASE("a device that is late is a failure without a cause", "[lane][gpu]") {
  Watched lane(milliseconds(10));
  const doubles::FakeGpu::Hold hold(lane.gpu);
  static_cast<void>(lane.watch.add(lane.enqueue("a")));
  const auto failure = lane.look();
  REQUIRE(failure.has_value());
  CHECK(failure->cause.ok());
  CHECK(failure->sequence == 1);
}

TEST_CASE("a batch starts in its turn, and the turn's last batch lets the next one come", "[lane][gpu]") {
  Watched lane(std::chrono::seconds(20));
  Batch batch;
  CHECK(lane.watch.may_start(batch));  // no other process set uses the GPU
  batch.ticket = negotiate::GpuTicket{.number = 2, .previous = 1};
  CHECK_FALSE(lane.watch.may_start(batch));
  lane.sequencer.gone(1);
  CHECK(lane.came == 1);
  CHECK(lane.watch.may_start(batch));
  lane.watch.leave_ticket(batch);
  CHECK_FALSE(lane.sequencer.may_go(2));
  batch.ends_tickets = true;
  lane.watch.leave_ticket(batch);
  CHECK(lane.sequencer.may_go(2));
}

}  // namespace
}  // namespace roundelay::execute
