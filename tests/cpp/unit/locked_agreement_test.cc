// Agreements under a schedule lock: their cells, the table, and the coordinator's part.
#include "lock/locked_agreement.h"

#include <memory>
#include <string>
#include <vector>

#include "submit/table.h"
#include "tests/cpp/announced_words.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/agreement_room.h"

namespace roundelay::submit {
namespace {

using negotiate::agreement_of;
using negotiate::request_of;
using negotiate::Room;

const negotiate::Fields kFields = {{Merge::kEqual, 1}, {Merge::kMax, 99}};

std::string values_of(char equal, std::size_t at = 0, char most = 0) {
  std::string values(100, '\0');
  values[0] = equal;
  values[1 + at] = most;
  return values;
}

// Two members' parts of one agreement.
struct Pair {
  Pair() : Pair(values_of('=')) {}
  explicit Pair(const std::string& base) {
    for (int i = 0; i < 2; ++i)
      members.emplace_back(7, 3, wire::Submission(agreement_of("n", kFields), base));
  }
  std::vector<lock::Cell> cells() const { return {members[0].cell(), members[1].cell()}; }
  Result<Agreed> enter(std::size_t member) { return members[member].enter(cells(), {4, 5}); }

  std::vector<lock::LockedAgreement> members;
};

TEST_CASE("members that show their changes get one result, and one base for the next",
          "[schedule][agreement]") {
  Pair pair;
  for (std::size_t submission = 0; submission < 20; ++submission) {
    REQUIRE(pair.members[0].file(values_of('=', submission, 'a')));
    REQUIRE(pair.members[1].file(values_of(submission % 2 == 0 ? '=' : '!', 50 + submission, 'b')));
    CHECK(pair.members[0].cell_number() == 6 + submission % 2);
    std::string all = values_of('=', submission, 'a');
    all[51 + submission] = 'b';
    std::vector<Difference> differences;
    if (submission % 2 == 1) differences = {{0, 4, 5, "=", "!"}};
    const std::vector<lock::Cell> cells = pair.cells();
    for (lock::LockedAgreement& member : pair.members) {
      const Result<Agreed> agreed = member.enter(cells, {4, 5});
      REQUIRE(agreed.ok());
      CHECK(*agreed == Agreed{all, differences, {}});
    }
  }
}

TEST_CASE("a change fits up to the size of a cell, and no submission before the last is entered",
          "[schedule][agreement]") {
  Pair pair;
  lock::LockedAgreement& member = pair.members[0];
  std::string values = values_of('=');
  values.replace(1, 54, std::string(54, 'x'));  // with the count, the offset and the length
  CHECK_FALSE(member.file(values));
  values[54] = '\0';
  CHECK(member.file(values));
  CHECK(member.values() == values);
  CHECK_FALSE(member.file(values));
}

TEST_CASE("a cell of another submission or lock, or with other bytes, is an error", "[schedule][agreement]") {
  Pair pair;
  for (lock::LockedAgreement& member : pair.members) REQUIRE(member.file(values_of('=', 3, 'a')));
  std::vector<lock::Cell> cells = pair.cells();
  SECTION("the submission before") { cells[1].submission = lock::announcement(7, 0); }
  SECTION("the submission after") { cells[1].submission = lock::announcement(7, 2); }
  SECTION("another lock") { cells[1].submission = lock::announcement(6, 1); }
  SECTION("no change") { cells[1].words[0] = UINT64_MAX; }
  SECTION("a change past the values") { cells[1].words[0] = 0x78016401; }  // one run at 100, of one 'x'
  SECTION("nothing was shown") { cells[1] = {}; }
  const Result<Agreed> agreed = pair.members[0].enter(cells, {4, 5});
  REQUIRE_FALSE(agreed.ok());
  CHECK(agreed.status().code() == StatusCode::kInternal);
  CHECK(agreed.status().message() == "rank 5 shows no values for submission 1 of agreement 'n' in lock 7");
}

TEST_CASE("values that change little by little fit for ever", "[schedule][agreement]") {
  Pair pair;
  std::string values = values_of('=');
  for (std::size_t at = 1; at < values.size(); ++at) {
    values[at] = 'x';
    for (lock::LockedAgreement& member : pair.members) REQUIRE(member.file(values));
    const std::vector<lock::Cell> cells = pair.cells();
    for (lock::LockedAgreement& member : pair.members) CHECK(member.enter(cells, {4, 5})->values == values);
  }
}

// -- the table

Entry entry_of(const std::string& values) {
  Entry entry;
  entry.request = agreement_of("n", kFields);
  entry.values = values;
  return entry;
}

// Two ranks whose schedule is the agreement "n" again and again.
struct Tables {
  Tables() {
    for (int m = 0; m < 2; ++m) {
      tables.push_back(
          std::make_unique<TensorTable>(std::make_shared<AnnouncedWords>(words, m), std::vector<int>{4, 5}));
      tables.back()->begin_schedule(1, {{{agreement_of("n", kFields), values_of('=')}}}, {});
    }
  }
  bool add(std::size_t m, const std::string& values) {
    return tables[m]->add(entry_of(values), handles).ok();
  }
  void complete(std::size_t m) {
    REQUIRE(tables[m]->extract("n"));
    tables[m]->release("n");
  }

  std::shared_ptr<AnnouncedWords::Words> words = std::make_shared<AnnouncedWords::Words>(2);
  complete::HandleTable handles;
  std::vector<std::unique_ptr<TensorTable>> tables;
};

TEST_CASE("tables under a lock agree without a message", "[schedule][agreement]") {
  Tables ranks;
  for (std::size_t submission = 0; submission < 5; ++submission) {
    REQUIRE(ranks.add(0, values_of('=', submission, 'a')));
    CHECK_FALSE(ranks.tables[0]->enter());
    REQUIRE(ranks.add(1, values_of('=', 90, 'b')));
    std::string all = values_of('=', submission, 'a');
    all[91] = 'b';
    for (const std::size_t m : {0U, 1U}) {
      const auto entered = ranks.tables[m]->enter();
      REQUIRE(entered);
      CHECK(entered->agreed == Agreed{all, {}, {}});
      CHECK(entered->fault.ok());
      ranks.complete(m);
    }
  }
  CHECK(ranks.tables[0]->schedule_open());
}

// Notes which cell a member had shown when it announced.
class WatchedWords final : public AnnouncedWords {
 public:
  using AnnouncedWords::AnnouncedWords;
  void announce(std::uint64_t word) override {
    AnnouncedWords::announce(word);
    shown.push_back(cell(0, 0).submission);
  }

  std::vector<std::uint64_t> shown;
};

TEST_CASE("a table shows the cell before it announces the position", "[schedule][agreement]") {
  const auto words =
      std::make_shared<WatchedWords>(std::make_shared<AnnouncedWords::Words>(std::size_t{2}), 0);
  TensorTable table(words, {4, 5});
  complete::HandleTable handles;
  table.begin_schedule(1, {{{agreement_of("n", kFields), values_of('=')}}}, {});
  REQUIRE(table.add(entry_of(values_of('!')), handles).ok());
  CHECK(words->shown == std::vector<std::uint64_t>{lock::announcement(1, 1)});
}

TEST_CASE("values that do not fit freeze the schedule, and are negotiated after it",
          "[schedule][agreement]") {
  Tables ranks;
  REQUIRE(ranks.add(0, std::string(100, 'x')));
  CHECK(ranks.tables[0]->frozen_after() == 0U);
  REQUIRE(ranks.add(1, values_of('=', 3, 'b')));
  for (const auto& table : ranks.tables) {
    table->freeze();
    CHECK_FALSE(table->enter_before(0));
    table->end_schedule();
  }
  const auto drained = [&](std::size_t m) {
    std::vector<wire::Submission> submissions;
    ranks.tables[m]->drain(submissions);
    return submissions;
  };
  CHECK(drained(0) == std::vector<wire::Submission>{{agreement_of("n", kFields), std::string(100, 'x')}});
  CHECK(drained(1) == std::vector<wire::Submission>{{agreement_of("n", kFields), values_of('=', 3, 'b')}});
}

TEST_CASE("a broken cell is a fault of the position", "[schedule][agreement]") {
  Tables ranks;
  for (const std::size_t m : {0U, 1U}) REQUIRE(ranks.add(m, values_of('=')));
  ranks.words->cell(1, 0) = {};
  const auto entered = ranks.tables[0]->enter();
  REQUIRE(entered);
  CHECK(entered->fault.code() == StatusCode::kInternal);
  CHECK_FALSE(entered->agreed);
}

// -- the negotiation

Room locking_room(int size) {
  negotiate::CoordinatorOptions options = negotiate::eager();
  options.schedule_lock = true;
  options.cache_capacity = 64;
  return Room(size, options);
}

bool locks(const Room& room) { return room.last_order.lock.has_value(); }

TEST_CASE("agreements that change in each step begin a lock, with their last result",
          "[schedule][agreement]") {
  Room room = locking_room(2);
  std::string last;
  for (int step = 0; step < 20 && !locks(room); ++step) {
    last = values_of('=', static_cast<std::size_t>(step), 'a');
    const std::string other = values_of(step % 2 == 0 ? '=' : '!');
    CHECK(room.agree(agreement_of("n", kFields), {last, other}).values == last);
  }
  REQUIRE(locks(room));
}

TEST_CASE("more agreements than there are cells begin no lock", "[schedule][agreement]") {
  const std::size_t names = GENERATE(lock::kLockedAgreements, lock::kLockedAgreements + 1);
  Room room = locking_room(2);
  bool locked = false;
  for (std::size_t step = 0; step < 8 * names && !locked; ++step) {
    room.agree(agreement_of("n" + std::to_string(step % names)), {std::string(4, 'x'), std::string(4, 'y')});
    locked = locks(room);
  }
  CHECK(locked == (names == lock::kLockedAgreements));
}

// Under the lock the members' results are other ones than the coordinator knows.
TEST_CASE("the end of a lock makes all bases zeros", "[schedule][agreement]") {
  Room room = locking_room(2);
  const wire::Request request = agreement_of("n");
  while (!locks(room)) room.agree(request, {"1000", "0100"});
  for (const std::size_t m : {0U, 1U}) {
    room.members[m].freeze(5);
    room.report(m);
  }
  room.take_orders();
  for (const std::size_t m : {0U, 1U}) CHECK(room.apply(m).unlock == 5U);
  CHECK(room.agree(request, {"1000", "0100"}).values == "1100");
  CHECK(room.last_report.cached.size() == 1);
  CHECK(room.last_report.contributions[0].change == ByteChange{{0, "0100"}});
  CHECK(room.last_order.operations[0].merged->change == ByteChange{{0, "1100"}});
}

TEST_CASE("an order that locks agreements without cells ends the job", "[schedule][agreement]") {
  Room room = locking_room(1);
  wire::Lock lock{1, {}};
  const std::size_t names = lock::kLockedAgreements + 1;
  std::vector<wire::CacheId> ids;
  for (std::size_t i = 0; i < names; ++i) {
    room.agree(agreement_of("n" + std::to_string(i)), {std::string(4, 'x')});
    ids.push_back(room.last_order.operations[0].tensors[0].id);
  }
  SECTION("too many") {
    for (const wire::CacheId id : ids) lock.operations.push_back({id});
  }
  SECTION("fused") { lock.operations = {{ids[0], ids[1]}}; }
  wire::Order order;
  order.sequence = room.last_order.sequence + 1;
  order.lock = lock;
  CHECK(room.members[0].apply(order).status().code() == StatusCode::kInternal);
}

}  // namespace
}  // namespace roundelay::submit
