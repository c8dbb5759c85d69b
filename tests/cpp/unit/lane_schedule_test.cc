// A lane's side of a schedule lock, with announcements in this process.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "complete/handles.h"
#include "execute/completer.h"
#include "execute/lane_schedule.h"
#include "tests/cpp/catch.h"

namespace roundelay::execute {
namespace {

// Remembers whether the lane's thread is spared, and counts rings.
class Doorbells final : public lock::Announcements {
 public:
  [[nodiscard]] int members() const override { return 2; }
  [[nodiscard]] std::uint64_t least(std::uint64_t lock) const override {
    return std::min(lock::announced_under(lock, words[0]), lock::announced_under(lock, words[1]));
  }
  void announce(std::uint64_t word) override { words[0] = word; }
  void show(std::size_t number, const lock::Cell& cell) override { cells[0][number] = cell; }
  [[nodiscard]] lock::Cell cell(int member, std::size_t number) const override {
    return cells[static_cast<std::size_t>(member)][number];
  }
  std::uint32_t arm(Sleeper who) override {
    if (who == Sleeper::kBackground) spared = false;
    return 0;
  }
  [[nodiscard]] std::uint32_t rings(Sleeper) const override { return 0; }
  [[nodiscard]] const FutexWord& doorbell(Sleeper) const override { return doorbell_; }
  void set_background_wakeups(bool on) override { spared = !on; }
  void wake() override { ++wakes; }

  std::vector<std::uint64_t> words{0, 0};
  std::vector<std::array<lock::Cell, lock::kCells>> cells =
      std::vector<std::array<lock::Cell, lock::kCells>>(2);
  bool spared = false;
  int wakes = 0;

 private:
  FutexWord doorbell_{0};
};

wire::Request request_of(const std::string& name) {
  wire::Request request;
  request.name = name;
  request.shape = {1};
  return request;
}

wire::Request agreement() {
  wire::Request request = request_of("n");
  request.operation = Operation::kAgreement;
  request.fields = {{Merge::kMax, 1}};
  return request;
}

// Rank 0 of two, whose schedule is "a" again and again, if it is no other.
struct Scheduled {
  explicit Scheduled(wire::Submission scheduled = request_of("a"))
      : doorbells(std::make_shared<Doorbells>()),
        table(doorbells, {0, 1}),
        queue({0, 1}, 1024, table, completer),
        waker({}, doorbells),
        recorder(timeline, {}, false),
        schedule(table, queue, waker, recorder,
                 {[this] { ++told; }, [this](const Status& why) { faults.push_back(why.message()); }}) {
    table.begin_schedule(1, {{std::move(scheduled)}}, {});
    schedule.begin(5);
    doorbells->wakes = 0;
    static_cast<void>(waker.take_woken());
  }
  void submit() {
    submit::Entry entry;
    entry.request = request_of("a");
    entry.parts = {{DType::kFloat32, nullptr, nullptr, 0}};
    REQUIRE(table.add(std::move(entry), handles).ok());
  }
  void agree(submit::Results& results, const std::string& values) {
    submit::Entry entry;
    entry.request = agreement();
    entry.values = values;
    entry.results = &results;
    REQUIRE(table.add(std::move(entry), handles).ok());
  }
  void peer_announces(std::uint64_t count) { doorbells->words[1] = lock::announcement(1, count); }

  const std::shared_ptr<Doorbells> doorbells;
  complete::HandleTable handles;
  Completer completer{handles, [](const submit::Entry&, TimePoint) {}};
  timeline::Timeline timeline{0};
  int told = 0;
  std::vector<std::string> faults;
  submit::TensorTable table;
  BatchQueue queue;
  LaneWaker waker;
  LaneRecorder recorder;
  ProgressToken token{};
  LaneSchedule schedule;
};

TEST_CASE("an operation is queued when all members have announced it", "[lane][schedule]") {
  Scheduled rank;
  rank.submit();
  CHECK_FALSE(rank.schedule.enter());
  rank.peer_announces(1);
  CHECK(rank.schedule.may_enter());
  CHECK(rank.schedule.enter());
  const auto batch = rank.queue.pop(false);
  REQUIRE(batch);
  CHECK(batch->sequence == 5);
  CHECK(rank.recorder.counters().locked_operations == 1);
  CHECK(rank.told == 0);
}

class AgreedValues final : public submit::Results {
 public:
  Result<Memory> allocate(std::size_t, const std::vector<std::int64_t>&) override { return Memory{}; }
  void set_received_splits(std::vector<std::int64_t>) override {}
  void set_agreed(Agreed agreed) override { values = std::move(agreed.values); }

  std::string values;
};

TEST_CASE("an agreement is complete when it is entered, without a batch", "[lane][schedule]") {
  Scheduled rank({agreement(), "k"});
  AgreedValues results;
  rank.agree(results, "l");
  lock::LockedAgreement peer(1, 0, {agreement(), "k"});
  REQUIRE(peer.file("z"));
  rank.doorbells->cells[1][peer.cell_number()] = peer.cell();
  CHECK_FALSE(rank.schedule.enter());
  rank.peer_announces(1);
  CHECK(rank.schedule.enter());
  CHECK(results.values == "z");
  CHECK(rank.table.in_flight() == 0);
  CHECK_FALSE(rank.queue.has_work());
  CHECK(rank.recorder.counters().locked_operations == 1);
  CHECK(rank.faults.empty());
}

TEST_CASE("cells that are broken end the job, and complete nothing", "[lane][schedule]") {
  Scheduled rank({agreement(), "k"});
  AgreedValues results;
  rank.agree(results, "l");
  rank.peer_announces(1);  // and has shown nothing
  CHECK(rank.schedule.enter());
  CHECK(rank.faults ==
        std::vector<std::string>{"rank 1 shows no values for submission 1 of agreement 'n' in lock 1"});
  CHECK(rank.table.in_flight() == 1);
  CHECK(rank.recorder.counters().locked_operations == 0);
}

TEST_CASE("batches of a schedule have numbers of their own, also if the lane takes each at once",
          "[lane][schedule]") {
  Scheduled rank;
  for (std::uint32_t number = 0; number < 3; ++number) {
    rank.submit();
    rank.peer_announces(number + 1);
    REQUIRE(rank.schedule.enter());
    const auto batch = rank.queue.pop(false);
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
  CHECK(rank.doorbells->wakes == 1);
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
  CHECK(rank.doorbells->wakes == 0);  // nothing came meanwhile
}

TEST_CASE("a watch that ends wakes the lane's thread for what came meanwhile", "[lane][schedule]") {
  Scheduled rank;
  {
    const ScheduleWatch watch(rank.schedule);
    rank.submit();
    rank.peer_announces(1);
  }
  CHECK(rank.doorbells->wakes == 1);
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

TEST_CASE("the lane's thread that goes to sleep under a watch stays spared", "[lane][schedule]") {
  Scheduled rank;
  {
    const ScheduleWatch watch(rank.schedule);
    rank.schedule.sleep(rank.token, Deadline::after(Duration{0}));
    CHECK(rank.doorbells->spared);
  }
  CHECK_FALSE(rank.doorbells->spared);
}

TEST_CASE("the lane's thread that went to sleep under a watch that is left is spared no longer",
          "[lane][schedule]") {
  Scheduled rank;
  {
    ScheduleWatch watch(rank.schedule);
    rank.schedule.sleep(rank.token, Deadline::after(Duration{0}));
    watch.leave_to_wait();
  }
  CHECK_FALSE(rank.doorbells->spared);
}

TEST_CASE("of two watches the last to end has the lane's thread woken", "[lane][schedule]") {
  Scheduled rank;
  std::optional<ScheduleWatch> first(std::in_place, rank.schedule);
  std::optional<ScheduleWatch> second(std::in_place, rank.schedule);
  rank.submit();
  rank.peer_announces(1);
  first.reset();
  CHECK(rank.doorbells->spared);
  CHECK(rank.doorbells->wakes == 0);
  second.reset();
  CHECK_FALSE(rank.doorbells->spared);
  CHECK(rank.doorbells->wakes == 1);
}

TEST_CASE("without a schedule a watch does nothing", "[lane][schedule]") {
  Scheduled rank;
  rank.schedule.end(0);
  { const ScheduleWatch watch(rank.schedule); }
  CHECK_FALSE(rank.doorbells->spared);
  CHECK(rank.doorbells->wakes == 1);  // the end's
}

TEST_CASE("a driver takes no nap when all members have announced", "[lane][schedule]") {
  Scheduled rank;
  rank.submit();
  CHECK(rank.schedule.driver_nap().sleeps());
  rank.peer_announces(1);
  CHECK_FALSE(rank.schedule.driver_nap().sleeps());
}

}  // namespace
}  // namespace roundelay::execute
