// Agreements in the negotiation: what travels, the bases of changes, and what breaks the protocol.
#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/unit/agreement_room.h"

namespace roundelay::negotiate {
namespace {

std::string zeros(std::size_t bytes) { return std::string(bytes, '\0'); }

TEST_CASE("what has not changed costs its id alone", "[agreement][negotiate]") {
  Room room(2);
  const wire::Request request = agreement_of("a", {{Merge::kEqual, 300}, {Merge::kMax, 1}});
  const std::string same = std::string(300, 'e') + "m";
  CHECK(room.agree(request, {same, same}).values == same);
  CHECK(room.last_order.operations[0].merged->change.size() == 1);

  CHECK(room.agree(request, {same, same}) == Agreed{same, {}, {}});
  CHECK(room.last_report.contributions.empty());
  CHECK(room.last_order.operations[0].merged->change.empty());
  CHECK(wire::encode(room.last_report).size() <= 12);
  CHECK(wire::encode(room.last_order).size() <= 20);

  const std::string more = std::string(300, 'e') + "z";
  CHECK(room.agree(request, {same, more}).values == more);
  CHECK(room.last_report.contributions == std::vector<wire::Contribution>{{0, {{300, "z"}}}});
  CHECK(room.last_order.operations[0].merged->change == ByteChange{{300, "z"}});
}

TEST_CASE("ranks that differ are both named, and the lowest one's value counts", "[agreement][negotiate]") {
  Room room(3);
  const wire::Request request = agreement_of("a", {{Merge::kOr, 1}, {Merge::kEqual, 2}});
  const std::vector<Difference> expected = {{1, 10, 12, "bc", "xy"}};
  for (int time = 0; time < 3; ++time) {
    const Agreed agreed = room.agree(request, {"abc", "abc", "axy"});
    CHECK(agreed == Agreed{"abc", expected, {}});
  }
}

TEST_CASE("the root's values reach all members", "[agreement][negotiate]") {
  Room room(3);
  const wire::Request request = agreement_of("a", {{Merge::kRoot, 2}, {Merge::kAnd, 1}}, 11);
  CHECK(room.agree(request, {"aa\x3", "bb\x7", "cc\x6"}).values == "bb\x2");
  CHECK(room.agree(request, {"aa\x3", "bx\x3", "cc\x7"}).values == "bx\x3");
}

TEST_CASE("members whose fields or root differ are told both", "[agreement][negotiate]") {
  const auto said = [](wire::Request a, wire::Request b) {
    Room room(2);
    room.members[0].submit({a, zeros(bytes_of(a.fields))});
    room.members[1].submit({b, zeros(bytes_of(b.fields))});
    for (const std::size_t m : {0U, 1U}) room.report(m);
    room.take_orders();
    const Applied applied = room.apply(1);
    REQUIRE(applied.failed.size() == 1);
    CHECK(applied.failed[0].status.code() == StatusCode::kMismatch);
    return applied.failed[0].status.message();
  };
  CHECK(contains(
      said(agreement_of("a", {{Merge::kMax, 4}}), agreement_of("a", {{Merge::kMax, 4}, {Merge::kOr, 1}})),
      "Mismatched agreement of 'a': rank 10 has 1 fields, rank 11 has 2 fields."));
  CHECK(contains(said(agreement_of("a", {{Merge::kMax, 4}}), agreement_of("a", {{Merge::kMax, 5}})),
                 "rank 10 has field 0 (max) of 4 bytes, rank 11 has field 0 (max) of 5 bytes."));
  CHECK(contains(said(agreement_of("a", {{Merge::kEqual, 1}, {Merge::kOr, 1}}),
                      agreement_of("a", {{Merge::kEqual, 1}, {Merge::kRoot, 1}})),
                 "rank 10 has field 1 (or) of 1 bytes, rank 11 has field 1 (root) of 1 bytes."));
  CHECK(contains(said(agreement_of("a", {{Merge::kRoot, 1}}, 10), agreement_of("a", {{Merge::kRoot, 1}}, 11)),
                 "rank 10 has root rank 10, rank 11 has root rank 11."));
}

TEST_CASE("a submission that fails leaves the base as it was", "[agreement][negotiate]") {
  Room room(2);
  const wire::Request request = agreement_of("a");
  room.agree(request, {"1000", "0100"});
  wire::Request wrong = request;
  wrong.error = "bad input";
  room.members[0].submit({request, "9999"});
  room.members[1].submit(wrong);
  for (const std::size_t m : {0U, 1U}) room.report(m);
  room.take_orders();
  CHECK(room.apply(0).failed.size() == 1);
  CHECK(room.apply(1).failed.empty());
  CHECK(room.agree(request, {"1100", "1100"}).values == "1100");
  CHECK(room.last_report.contributions.empty());  // 1100 is the last result
}

TEST_CASE("a member that joins keeps the base that the others make meanwhile", "[agreement][negotiate]") {
  Room room(3);
  const wire::Request request = agreement_of("a");
  room.agree(request, {"1000", "0100", "0010"});
  room.join(1);
  const Agreed without = room.agree(request, {"2000", std::nullopt, "0020"});
  CHECK(without.values == "2020");
  room.agree(request, {"3000", std::nullopt, "0030"});
  for (const std::size_t m : {0U, 2U}) room.join(m);
  for (const std::size_t m : {0U, 1U, 2U}) CHECK(room.apply(m).joined);
  CHECK(room.agree(request, {"3030", "3030", "3030"}).values == "3030");
  CHECK(room.last_report.contributions.empty());
  CHECK(room.last_order.operations[0].merged->change.empty());
}

TEST_CASE("an agreement that is new while a member has joined gets no id", "[agreement][negotiate]") {
  Room room(3);
  room.join(2);
  const wire::Request request = agreement_of("a", {{Merge::kEqual, 1}, {Merge::kRoot, 1}}, 12);
  for (int time = 0; time < 2; ++time) {
    const Agreed agreed = room.agree(request, {"ax", "by", std::nullopt});
    CHECK(agreed == Agreed{std::string("a\0", 2), {{0, 10, 11, "a", "b"}}, {}});
    CHECK(room.last_order.operations[0].tensors[0] == wire::FusedTensor{wire::kNoCacheId, "a"});
  }
  for (const std::size_t m : {0U, 1U}) room.join(m);
  for (const std::size_t m : {0U, 1U, 2U}) room.apply(m);
  CHECK(room.agree(request, {"ax", "ay", "az"}) == Agreed{"az", {}, {}});
}

TEST_CASE("an id that was evicted takes its base away", "[agreement][negotiate]") {
  const std::size_t capacity = GENERATE(0, 1, 2);
  Room room(2, capacity);
  for (int round = 0; round < 4; ++round) {
    const std::string values = std::to_string(1000 + round);
    for (const char* name : {"a", "b", "a", "a"}) {
      CHECK(room.agree(agreement_of(name), {values, zeros(4)}).values == values);
    }
  }
}

// Member 1 reports by an id that an order, which it has not seen, evicts.
TEST_CASE("a change against an evicted base is reported again in full", "[agreement][negotiate]") {
  Room room(2, 1);
  const wire::Request a = agreement_of("a"), b = agreement_of("b");
  room.agree(a, {"1000", "0100"});
  for (Participant& member : room.members) member.submit({b, "5555"});
  for (const std::size_t m : {0U, 1U}) room.report(m);
  room.members[1].submit({a, "1101"});  // a byte changes in 1100
  room.take_orders();                   // evicts a's id for b
  CHECK(room.last_order.evicted.size() == 1);
  room.report(1);
  CHECK(room.last_report.cached.size() == 1);
  CHECK(room.last_report.contributions[0].change == ByteChange{{3, "1"}});
  for (const std::size_t m : {0U, 1U}) CHECK(room.apply(m).operations[0].agreed->values == "5555");
  room.report(1);
  CHECK(room.last_report.requests == std::vector<wire::Request>{a});
  CHECK(room.last_report.contributions[0].change == ByteChange{{0, "1101"}});
  room.members[0].submit({a, "0000"});
  room.report(0);
  room.take_orders();
  for (const std::size_t m : {0U, 1U}) CHECK(room.apply(m).operations[0].agreed->values == "1101");
}

// Its request changes in what ranks need not agree on, so that it is not the one that has the id.
TEST_CASE("a member may report in full what the others report by id", "[agreement][negotiate]") {
  Room room(2);
  wire::Request by_id = agreement_of("a"), in_full = by_id;
  in_full.dtype = DType::kInt8;
  room.agree(by_id, {"1000", "0100"});
  for (const char* values : {"1000", "0200", "0000"}) {
    for (const auto& [m, request] : {std::pair(0U, by_id), std::pair(1U, in_full)}) {
      room.members[m].submit({request, m == 0 ? values : zeros(3) + "1"});
      room.report(m);
    }
    CHECK(room.last_report.requests.size() == 1);
    room.take_orders();
    std::string expected = values;
    expected.back() = '1';
    for (const std::size_t m : {0U, 1U}) CHECK(room.apply(m).operations[0].agreed->values == expected);
  }
}

TEST_CASE("submissions of one name that wait for each other have one base after the other",
          "[agreement][negotiate]") {
  Room room(2);
  const wire::Request request = agreement_of("a");
  for (const char* values : {"1000", "2000", "0300"}) room.members[0].submit({request, values});
  for (const char* values : {"0100", "0200", "3000"}) room.members[1].submit({request, values});
  for (const char* expected : {"1100", "2200", "3300"}) {
    for (const std::size_t m : {0U, 1U}) room.report(m);
    room.take_orders();
    for (const std::size_t m : {0U, 1U}) CHECK(room.apply(m).operations[0].agreed->values == expected);
  }
}

TEST_CASE("one name with other fields is another agreement, whose base is zeros", "[agreement][negotiate]") {
  Room room(2);
  room.agree(agreement_of("a"), {"1000", "0100"});
  CHECK(room.agree(agreement_of("a", {{Merge::kOr, 2}}), {zeros(2), zeros(2)}).values == zeros(2));
  CHECK(room.agree(agreement_of("a"), {zeros(4), zeros(4)}).values == zeros(4));
}

// --- hostile messages ---

TEST_CASE("a report whose change goes past the values ends the job, naming the rank",
          "[agreement][negotiate]") {
  Desk desk(eager());
  wire::Report report;
  report.requests = {agreement_of("a")};
  report.contributions = {{0, {{2, "abc"}}}};
  const Status status = desk.say(1, report);
  CHECK(status.code() == StatusCode::kInternal);
  CHECK(contains(status.message(), "rank 11 reported 'a' with a change past its values"));
  report.requests = {request_of("tensor")};
  CHECK(desk.say(1, report).code() == StatusCode::kInternal);
}

TEST_CASE("an order whose result is not within the fields ends the job", "[agreement][negotiate]") {
  Participant participant(LaneId{}, 0);
  wire::Order order;
  order.sequence = 1;
  order.operations.push_back({{{1, "a"}}, {}, {}, wire::Merged{}});
  const auto refused = [&] {
    participant.submit({agreement_of("a"), "1234"});
    static_cast<void>(participant.take_report());
    const auto applied = participant.apply(order);
    REQUIRE_FALSE(applied.ok());
    CHECK(applied.status().code() == StatusCode::kInternal);
  };
  SECTION("the change") { order.operations[0].merged->change = {{4, "x"}}; }
  SECTION("a difference") { order.operations[0].merged->differences = {{1, 0, 1, "", ""}}; }
  SECTION("it has none") { order.operations[0].merged.reset(); }
  SECTION("several tensors") { order.operations[0].tensors.push_back({2, "b"}); }
  refused();
}

TEST_CASE("an order that takes an allreduce for an agreement ends the job", "[agreement][negotiate]") {
  Participant participant(LaneId{}, 0);
  participant.submit(request_of("a"));
  static_cast<void>(participant.take_report());
  wire::Order order;
  order.sequence = 1;
  order.operations.push_back({{{1, "a"}}, {}, {}, wire::Merged{}});
  CHECK(participant.apply(order).status().code() == StatusCode::kInternal);
}

}  // namespace
}  // namespace roundelay::negotiate
