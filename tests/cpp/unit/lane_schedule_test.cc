// A lane's side of a schedule lock, with announcements in this process.
#include <memory>
#include <string>
#include <vector>

#include "complete/completer.h"
#include "runtime/lane/lane_schedule.h"
#include "submit/handles.h"
#include "tests/cpp/catch.h"

namespace roundelay::runtime {
namespace {

// Remembers whether the lane's thread is spared, and counts rings.
class Doorbells final : public Announcements {
 public:
  [[nodiscard]] int members() const override { return 2; }
  [[nodiscard]] std::uint64_t word(int member) const override {
    return words[static_cast<std::size_t>(member)];
  }
  void announce(std::uint64_t word) override { words[0] = word; }
  std::uint32_t arm(Sleeper) override { return 0; }
  [[nodiscard]] const FutexWord& doorbell(Sleeper) const override { return doorbell_; }
  void set_background_wakeups(bool on) override { spared = !on; }
  void wake() override { ++rings; }

  std::vector<std::uint64_t> words{0, 0};
  bool spared = false;
  int rings = 0;

 private:
  FutexWord doorbell_{0};
};

wire::Request request_of(const std::string& name) {
  wire::Request request;
  request.name = name;
  request.shape = {1};
  return request;
}

// Rank 0 of two, whose schedule is "a" again and again.
struct Scheduled {
  Scheduled()
      : doorbells(std::make_shared<Doorbells>()),
        table(doorbells),
        queue({0, 1}, 1024, table, completer),
        waker({}, doorbells),
        recorder(timeline, {}, false),
        schedule(table, queue, waker, recorder, wake_negotiator) {
    table.begin_schedule(1, {{request_of("a")}}, {});
    schedule.begin(5);
    doorbells->rings = 0;
    static_cast<void>(waker.take_woken());
  }
  void submit() {
    submit::Entry entry;
    entry.request = request_of("a");
    entry.parts = {{DType::kFloat32, nullptr, nullptr, 0}};
    REQUIRE(table.add(std::move(entry), handles).ok());
  }
  void peer_announces(std::uint64_t count) { doorbells->words[1] = announcement(1, count); }

  const std::shared_ptr<Doorbells> doorbells;
  submit::HandleTable handles;
  complete::Completer completer{handles, [](const submit::Entry&, TimePoint) {}};
  timeline::Timeline timeline{0};
  int told = 0;
  const std::function<void()> wake_negotiator = [this] { ++told; };
  submit::TensorTable table;
  BatchQueue queue;
  LaneWaker waker;
  LaneRecorder recorder;
  LaneSchedule schedule;
};

TEST_CASE("an operation is queued when all members have announced it", "[lane][schedule]") {
  Scheduled rank;
  rank.submit();
  CHECK_FALSE(rank.schedule.enter());
  rank.peer_announces(1);
  CHECK(rank.schedule.may_enter());
  CHECK(rank.schedule.enter());
  const auto batch = rank.queue.take(false);
  REQUIRE(batch);
  CHECK(batch->sequence == 5);
  CHECK(rank.recorder.counters().locked_operations == 1);
  CHECK(rank.told == 0);
}

TEST_CASE("batches of a schedule have numbers of their own, also if the lane takes each at once",
          "[lane][schedule]") {
  Scheduled rank;
  for (std::uint32_t number = 0; number < 3; ++number) {
    rank.submit();
    rank.peer_announces(number + 1);
    REQUIRE(rank.schedule.enter());
    const auto batch = rank.queue.take(false);
    REQUIRE(batch);
    CHECK(batch->sequence == 5);
    CHECK(batch->index == number);
    rank.completer.complete(rank.table, *batch->entries.front(), Status{});
  }
}

TEST_CASE("the end enters what all members enter, seen or not, and tells nobody", "[lane][schedule]") {
  Scheduled rank;
  rank.submit();
  rank.schedule.end(1);
  CHECK(rank.queue.has_work());
  CHECK_FALSE(rank.schedule.open());
  CHECK(rank.told == 0);
  CHECK(rank.doorbells->rings == 1);
}

TEST_CASE("an operation that is entered after a freeze wakes negotiators", "[lane][schedule]") {
  Scheduled rank;
  rank.submit();
  rank.peer_announces(1);
  rank.table.freeze();
  CHECK(rank.schedule.enter());
  CHECK(rank.told == 1);
}

TEST_CASE("a watch spares the lane's thread while it lives", "[lane][schedule]") {
  Scheduled rank;
  {
    const ScheduleWatch watch(rank.schedule);
    CHECK(rank.doorbells->spared);
  }
  CHECK_FALSE(rank.doorbells->spared);
  CHECK(rank.doorbells->rings == 0);  // nothing came meanwhile
}

TEST_CASE("a watch that ends wakes the lane's thread for what came meanwhile", "[lane][schedule]") {
  Scheduled rank;
  {
    const ScheduleWatch watch(rank.schedule);
    rank.submit();
    rank.peer_announces(1);
  }
  CHECK(rank.doorbells->rings == 1);
  CHECK(rank.waker.take_woken());
}

TEST_CASE("a watch that is left to wait() goes on until another one ends", "[lane][schedule]") {
  Scheduled rank;
  {
    ScheduleWatch watch(rank.schedule);
    watch.leave_to_wait();
  }
  CHECK(rank.doorbells->spared);
  { const ScheduleWatch watch(rank.schedule); }
  CHECK_FALSE(rank.doorbells->spared);
}

TEST_CASE("without a schedule a watch does nothing", "[lane][schedule]") {
  Scheduled rank;
  rank.schedule.end(0);
  { const ScheduleWatch watch(rank.schedule); }
  CHECK_FALSE(rank.doorbells->spared);
  CHECK(rank.doorbells->rings == 1);  // the end's
}

TEST_CASE("a driver takes no nap when all members have announced", "[lane][schedule]") {
  Scheduled rank;
  rank.submit();
  CHECK(rank.schedule.driver_nap().sleeps());
  rank.peer_announces(1);
  CHECK_FALSE(rank.schedule.driver_nap().sleeps());
}

}  // namespace
}  // namespace roundelay::runtime
