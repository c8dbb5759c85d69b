#include "lock/schedule_lock.h"

#include <memory>

#include "submit/table.h"
#include "tests/cpp/announced_words.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/negotiate_requests.h"

namespace roundelay::submit {
namespace {

using negotiate::request_of;
using Names = lock::ScheduleLock::Names;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr TimePoint kStart{std::chrono::hours(1)};

// A period: two buckets in one operation, then the agreement round, twice.
lock::ScheduleLock::Operations operations() {
  return {{request_of("a"), request_of("b")}, {request_of("n")}, {request_of("c")}, {request_of("n")}};
}

lock::ScheduleLock lock() {
  lock::ScheduleLock lock;
  lock.begin(1, operations());
  return lock;
}

Names names_of(const std::vector<wire::Submission>& submissions) {
  Names names;
  for (const wire::Submission& submission : submissions) names.push_back(submission.request.name);
  return names;
}

TEST_CASE("a position is announced when its members and those before it are here", "[schedule]") {
  lock::ScheduleLock schedule = lock();
  CHECK(schedule.open());
  CHECK(schedule.file(request_of("n")));
  CHECK(schedule.file(request_of("b")));
  CHECK(schedule.announced() == 0);
  CHECK(schedule.blocked("b"));
  CHECK(schedule.file(request_of("a")));
  CHECK(schedule.announced() == 2);
  CHECK_FALSE(schedule.any_blocked());
  CHECK_FALSE(schedule.blocked("n"));
}

TEST_CASE("a position is entered when all ranks have announced it, in order", "[schedule]") {
  lock::ScheduleLock schedule = lock();
  for (const char* name : {"a", "b", "n"}) CHECK(schedule.file(request_of(name)));
  CHECK_FALSE(schedule.enter(0));
  CHECK(schedule.enter(1) == Names{"a", "b"});
  CHECK_FALSE(schedule.enter(1));
  CHECK(schedule.enter(9) == Names{"n"});
  CHECK_FALSE(schedule.enter(9));  // the others are ahead of this rank
}

TEST_CASE("submissions of one name go to its positions in order, period after period", "[schedule]") {
  lock::ScheduleLock schedule = lock();
  for (int round = 0; round < 50; ++round) {
    for (const Names& names : {Names{"a", "b"}, Names{"n"}, Names{"c"}, Names{"n"}}) {
      for (const std::string& name : names) CHECK(schedule.file(request_of(name)));
      CHECK(schedule.enter(UINT64_MAX) == names);
    }
  }
  CHECK(schedule.announced() == 200);
}

TEST_CASE("a surprise freezes, and what was not entered comes back in order", "[schedule]") {
  lock::ScheduleLock schedule = lock();
  for (const char* name : {"c", "n", "a", "b"}) CHECK(schedule.file(request_of(name)));
  CHECK(schedule.enter(1));
  SECTION("another name") { CHECK_FALSE(schedule.file(request_of("metric"))); }
  SECTION("another shape") { CHECK_FALSE(schedule.file(request_of("n", {9}))); }
  SECTION("a failed submission") { CHECK_FALSE(schedule.file(negotiate::error_of("n"))); }
  CHECK(schedule.active());
  CHECK_FALSE(schedule.open());
  CHECK_FALSE(schedule.file(request_of("a")));  // submissions stay in order
  CHECK(schedule.announced() == 3);
  CHECK(schedule.enter(2) == Names{"n"});
  CHECK(names_of(schedule.end()) == Names{"c"});
  CHECK_FALSE(schedule.active());
}

TEST_CASE("what waits for a second is a surprise, what runs is not, and nothing is watched for nothing",
          "[schedule]") {
  lock::ScheduleLock schedule = lock();
  CHECK(schedule.look(kStart) == Deadline::at(kStart + lock::ScheduleLock::kFreezeTimeout));
  CHECK(schedule.look(kStart + milliseconds(1000)) == Deadline::never());
  CHECK(schedule.file(request_of("a")));
  const TimePoint later = kStart + milliseconds(5000);
  CHECK(schedule.look(later) == Deadline::at(later + lock::ScheduleLock::kFreezeTimeout));
  CHECK(schedule.file(request_of("b")));
  CHECK(schedule.look(later + milliseconds(999)) == Deadline::at(later + lock::ScheduleLock::kFreezeTimeout));
  CHECK(schedule.open());
  CHECK(schedule.enter(1));
  CHECK(schedule.look(later + milliseconds(1000)) != Deadline::never());
  CHECK(schedule.file(request_of("n")));
  const TimePoint last = later + milliseconds(2000);
  static_cast<void>(schedule.look(last));
  CHECK(schedule.open());
  CHECK(schedule.look(last + milliseconds(1000)) == Deadline::never());
  CHECK_FALSE(schedule.open());
}

TEST_CASE("announcements of another lock do not count", "[schedule]") {
  const auto words = std::make_shared<AnnouncedWords::Words>(3, lock::announcement(2, 5));
  const AnnouncedWords mine(words, 0);
  CHECK(mine.least(2) == 5);
  CHECK(mine.least(1) == 0);
  CHECK(mine.least(3) == 0);
  (*words)[1] = lock::announcement(3, 1);
  CHECK(mine.least(2) == 0);
}

// -- the table

Entry entry_of(const std::string& name) {
  Entry entry;
  entry.request = request_of(name);
  return entry;
}

Names drained(TensorTable& table) {
  std::vector<wire::Submission> out;
  table.drain(out);
  return names_of(out);
}

TEST_CASE("a table announces what belongs to the schedule and queues the rest", "[schedule]") {
  const auto words = std::make_shared<AnnouncedWords::Words>(2);
  TensorTable table(std::make_shared<AnnouncedWords>(words, 0));
  complete::HandleTable handles;
  REQUIRE(table.add(entry_of("b"), handles).ok());
  // Submissions that were reported come back, and submissions that were queued meanwhile belong to the
  // schedule too.
  table.begin_schedule(7, operations(), {request_of("a")});
  CHECK(table.schedule_open());
  CHECK((*words)[0] == lock::announcement(7, 1));
  CHECK(drained(table).empty());
  CHECK_FALSE(table.may_enter());
  (*words)[1] = lock::announcement(7, 1);
  CHECK(table.may_enter());
  CHECK(table.enter()->names == Names{"a", "b"});
  CHECK_FALSE(table.enter());

  const auto blocked = table.add(entry_of("c"), handles);
  CHECK_FALSE(table.frozen_after());
  CHECK(table.waited_for(*blocked));
  CHECK(table.frozen_after() == 1U);
  REQUIRE(table.add(entry_of("n"), handles).ok());
  table.end_schedule();
  CHECK_FALSE(table.scheduled());
  CHECK(drained(table) == Names{"c", "n"});
}

TEST_CASE("a waiter for what all may still announce ends no lock", "[schedule]") {
  TensorTable table(std::make_shared<AnnouncedWords>(std::make_shared<AnnouncedWords::Words>(2), 0));
  complete::HandleTable handles;
  table.begin_schedule(1, {{request_of("a")}, {request_of("b")}, {request_of("c")}}, {});
  const auto first = table.add(entry_of("a"), handles);
  const auto third = table.add(entry_of("c"), handles);
  CHECK_FALSE(table.waited_for(*first));
  CHECK(table.schedule_open());
  CHECK(table.waited_for(*third));
  CHECK_FALSE(table.schedule_open());
}

TEST_CASE("a table without announcements freezes at once, a closed one has no schedule", "[schedule]") {
  TensorTable alone;
  alone.begin_schedule(1, operations(), {request_of("a")});
  CHECK(alone.frozen_after() == 0U);
  CHECK_FALSE(alone.enter());
  alone.end_schedule();
  CHECK(drained(alone) == Names{"a"});

  TensorTable table(std::make_shared<AnnouncedWords>(std::make_shared<AnnouncedWords::Words>(2), 0));
  table.begin_schedule(1, operations(), {});
  table.close(Status::aborted("over"));
  CHECK_FALSE(table.scheduled());
  table.begin_schedule(2, operations(), {});
  CHECK_FALSE(table.scheduled());
}

}  // namespace
}  // namespace roundelay::submit
