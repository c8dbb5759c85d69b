// The coordinator's side of the negotiation alone.
#include <set>
#include <string>
#include <vector>

#include "negotiate/validate.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/coordinator_desk.h"

namespace roundelay::negotiate {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("an order comes when all members have reported, and knows its ids", "[negotiate][coordinator]") {
  Desk desk(eager(), 3);
  desk.request(0, {request_of("a")});
  desk.request(2, {request_of("a")});
  CHECK_FALSE(desk.order());
  CHECK(desk.coordinator.waiting() == 1);
  desk.request(1, {request_of("a")}, kStart + milliseconds(3));
  const auto notes = desk.coordinator.take_ready_notes();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].last_rank == 11);
  CHECK(notes[0].waited == milliseconds(3));
  const auto first = desk.order(kStart + milliseconds(3));
  REQUIRE(first);
  CHECK(first->sequence == 1);
  CHECK(first->operations == std::vector<wire::FusedOperation>{{{{1, "a"}}, {}, {}}});
  CHECK(desk.coordinator.waiting() == 0);
  CHECK_FALSE(desk.order());
  for (int member = 0; member < 3; ++member) desk.cached(member, {1});
  const auto second = desk.order();
  REQUIRE(second);
  CHECK(second->operations == std::vector<wire::FusedOperation>{{{{1, ""}}, {}, {}}});
}

TEST_CASE("what is ready waits for theta, or for the end of the linger", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.fire = {32, milliseconds(1)};  // request_of has 16 bytes
  options.stall_warning = Duration{0};
  Desk desk(options);
  CHECK(desk.coordinator.next_due() == Deadline::never());
  desk.everyone({request_of("a")});
  CHECK_FALSE(desk.order());
  CHECK(desk.coordinator.next_due() == Deadline::at(kStart + milliseconds(1)));
  SECTION("theta") {
    desk.everyone({request_of("b")}, kStart + microseconds(10));
    const auto order = desk.order(kStart + microseconds(10));
    REQUIRE(order);
    CHECK(order->operations.size() == 1);
    CHECK(order->operations[0].tensors.size() == 2);
  }
  SECTION("the end of the linger") {
    desk.end_linger(1);
    CHECK(desk.order());
    desk.everyone({request_of("c")});
    CHECK_FALSE(desk.order());  // that was for what was ready then
  }
  SECTION("linger, from the oldest") {
    desk.everyone({request_of("b", {1})}, kStart + microseconds(900));
    CHECK_FALSE(desk.order(kStart + microseconds(999)));
    const auto order = desk.order(kStart + milliseconds(1));
    REQUIRE(order);
    CHECK(order->operations[0].tensors.size() == 2);
    CHECK(desk.coordinator.next_due() == Deadline::never());
  }
}

TEST_CASE("a mismatch names tensor, ranks and values, and the name is usable again",
          "[negotiate][coordinator]") {
  wire::Request other = request_of("w");
  std::string what, mine, theirs;
  SECTION("operation") {
    other.operation = Operation::kBroadcast;
    what = "operation", mine = "allreduce", theirs = "broadcast";
  }
  SECTION("dtype") {
    other.dtype = DType::kBFloat16;
    what = "dtype", mine = "float32", theirs = "bfloat16";
  }
  SECTION("shape") {
    other.shape = {2, 3};
    what = "shape", mine = "[4]", theirs = "[2, 3]";
  }
  SECTION("reduction") {
    other.reduce_op = ReduceOp::kMax;
    what = "reduction", mine = "Sum", theirs = "Max";
  }
  SECTION("root") {
    other.root = 3;
    what = "root rank", mine = "-1", theirs = "3";
  }
  SECTION("prescale") {
    other.prescale.factor = 0.5;
    what = "prescale factor", mine = "1", theirs = "0.5";
  }
  SECTION("postscale") {
    other.postscale = {2, 3};
    what = "postscale factor", mine = "1", theirs = "2 / 3";
  }
  for (const bool swapped : {false, true}) {  // the text does not depend on the order of arrival
    Desk desk(eager());
    desk.request(swapped ? 1 : 0, {swapped ? other : request_of("w")});
    desk.request(swapped ? 0 : 1, {swapped ? request_of("w") : other});
    const auto order = desk.order();
    REQUIRE(order);
    CHECK(order->operations.empty());
    REQUIRE(order->failures.size() == 1);
    CHECK(order->failures[0].name == "w");
    CHECK(order->failures[0].code == StatusCode::kMismatch);
    const std::string expected =
        " of 'w': rank 10 has " + what + " " + mine + ", rank 11 has " + what + " " + theirs;
    INFO(order->failures[0].text);
    CHECK(contains(order->failures[0].text, expected));
    CHECK(desk.coordinator.waiting() == 0);
    desk.everyone({request_of("w")});
    CHECK(desk.order()->operations.size() == 1);
  }
}

TEST_CASE("equal requests do not mismatch", "[negotiate][coordinator]") {
  CHECK(mismatch(request_of("a"), 0, request_of("a"), 1).empty());
  CHECK(list_text(Shape{}) == "[]");
  CHECK(list_text(Shape{7}) == "[7]");
}

TEST_CASE("an error request fails the submission everywhere, also for those who report it later",
          "[negotiate][coordinator]") {
  Desk desk(eager(), 3);
  desk.request(0, {request_of("a")});
  desk.request(1, {error_of("a", "no tensor")});
  const auto order = desk.coordinator.take_order(kStart);
  REQUIRE(order);
  REQUIRE(order->failures.size() == 1);
  CHECK(order->failures[0].text == "rank 11: no tensor");
  CHECK(desk.coordinator.waiting() == 0);
  desk.request(2, {request_of("a")});  // this member had not applied the order, so its use is the failed one
  CHECK(desk.coordinator.waiting() == 0);
  desk.newest = {1, 1, 1};
  desk.everyone({request_of("a")});
  CHECK(desk.order()->operations.size() == 1);
}

TEST_CASE("failures do not wait for theta nor for company", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.fire = {1000, seconds(10)};
  Desk desk(options);
  desk.everyone({request_of("good")});
  desk.request(0, {error_of("bad")});
  const auto order = desk.order();
  REQUIRE(order);
  CHECK(order->operations.empty());
  CHECK(order->failures.size() == 1);
}

TEST_CASE("overdue tensors are warned of with their ranks, again and again", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.stall_warning = seconds(60);
  Desk desk(options, 4);
  desk.request(0, {request_of("b"), request_of("a")});
  desk.request(2, {request_of("a"), request_of("b")}, kStart + seconds(1));
  desk.request(1, {request_of("b")}, kStart + seconds(1));
  CHECK(desk.coordinator.next_due() == Deadline::at(kStart + seconds(60)));
  CHECK(desk.coordinator.take_stall_warnings(kStart + seconds(59)).empty());
  auto lines = desk.coordinator.take_stall_warnings(kStart + seconds(60));
  REQUIRE(lines.size() == 2);
  CHECK(contains(lines[0], "rank 13 did not submit 'b'"));
  CHECK(contains(lines[0], "60 s"));
  CHECK(contains(lines[1], "ranks 11, 13 did not submit 'a'"));
  CHECK(desk.coordinator.take_stall_warnings(kStart + seconds(119)).empty());
  CHECK(desk.coordinator.next_due() == Deadline::at(kStart + seconds(120)));
  desk.request(1, {request_of("a")}, kStart + seconds(110));
  lines = desk.coordinator.take_stall_warnings(kStart + seconds(120));
  REQUIRE(lines.size() == 1);
  CHECK(contains(lines[0], "rank 13 did not submit 'a', 'b'"));
  CHECK(contains(lines[0], "120 s"));
  desk.request(3, {request_of("a"), request_of("b")}, kStart + seconds(121));
  CHECK(desk.order(kStart + seconds(121)));
  CHECK(desk.coordinator.take_stall_warnings(kStart + seconds(1000)).empty());
}

TEST_CASE("what is overdue in a moment is named with what is overdue now", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.stall_warning = seconds(60);
  Desk desk(options, 4);
  desk.request(0, {request_of("now")});
  desk.request(0, {request_of("soon")}, kStart + seconds(5));
  desk.request(0, {request_of("later")}, kStart + seconds(7));
  auto lines = desk.coordinator.take_stall_warnings(kStart + seconds(60));
  REQUIRE(lines.size() == 1);
  CHECK(contains(lines[0], "did not submit 'now', 'soon', for which other ranks have waited 60 s"));
  CHECK(desk.coordinator.next_due() == Deadline::at(kStart + seconds(67)));
}

TEST_CASE("many overdue names make one line", "[negotiate][coordinator]") {
  Desk desk(eager());
  for (int i = 10; i < 20; ++i) desk.request(0, {request_of("t" + std::to_string(i))});
  const auto lines = desk.coordinator.take_stall_warnings(kStart + seconds(60));
  REQUIRE(lines.size() == 1);
  CHECK(contains(lines[0], "rank 11 did not submit 't10', 't11'"));
  CHECK(contains(lines[0], "'t15' and 4 more"));
}

TEST_CASE("ranks that wait for each other's operations may mean the same one", "[negotiate][coordinator]") {
  Desk desk(eager(), 3);
  desk.request(0, {request_of("x")});
  desk.request(2, {request_of("x")});
  desk.request(1, {request_of("y")});
  CHECK(desk.coordinator.take_late_ranks().empty());
  auto lines = desk.coordinator.take_stall_warnings(kStart + seconds(60));
  REQUIRE(lines.size() == 2);
  CHECK(contains(lines[0], "rank 11 did not submit 'x'"));
  CHECK(contains(lines[0], "; meanwhile rank 11 submitted 'y', which ranks 10, 12 did not: do names differ"));
  CHECK(contains(lines[1], "ranks 10, 12 did not submit 'y'"));
  CHECK(contains(lines[1], "; meanwhile ranks 10, 12 submitted 'x', which rank 11 did not: do names differ"));
  CHECK(desk.coordinator.take_late_ranks() == std::set<int>{10, 11, 12});
  CHECK(desk.coordinator.take_late_ranks().empty());

  desk.request(1, {request_of("x")}, kStart + seconds(61));  // this member was only late
  lines = desk.coordinator.take_stall_warnings(kStart + seconds(120));
  REQUIRE(lines.size() == 1);
  CHECK_FALSE(contains(lines[0], "meanwhile"));
}

TEST_CASE("without a warning time there are no warnings", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.stall_warning = Duration{0};
  Desk desk(options);
  desk.request(0, {request_of("a")});
  CHECK(desk.coordinator.take_stall_warnings(kStart + std::chrono::hours(9)).empty());
  CHECK(desk.coordinator.next_due() == Deadline::never());
}

TEST_CASE("after the abort time an overdue tensor is given up, naming who is missing",
          "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.stall_warning = Duration{0};
  options.stall_abort = seconds(100);
  Desk desk(options, 3);
  desk.request(0, {request_of("a")});
  desk.request(2, {request_of("a")}, kStart + seconds(50));
  desk.request(2, {request_of("young")}, kStart + seconds(50));
  CHECK(desk.coordinator.next_due() == Deadline::at(kStart + seconds(100)));
  CHECK_FALSE(desk.order(kStart + seconds(99)));
  const auto order = desk.order(kStart + seconds(100));
  REQUIRE(order);
  REQUIRE(order->failures.size() == 1);
  CHECK(order->failures[0].code == StatusCode::kIncomplete);
  CHECK(contains(order->failures[0].text,
                 "allreduce of 'a' was given up: rank 11 did not submit it within 100 s"));
  CHECK(contains(order->failures[0].text, "ranks 10, 12"));
  CHECK(desk.coordinator.waiting() == 1);
}

TEST_CASE("who leaves closes the lane, with what is ready left undone", "[negotiate][coordinator]") {
  Desk desk(eager(), 3);
  wire::Report leaving;
  leaving.leaving = true;
  REQUIRE(desk.say(2, leaving).ok());
  REQUIRE(desk.say(1, leaving).ok());
  desk.everyone({request_of("a")});
  const auto last = desk.order();
  REQUIRE(last);
  CHECK(last->shutdown_by == 12);  // rank 12 was the first to leave
  CHECK(last->operations.empty());
  CHECK_FALSE(desk.order());
  CHECK(desk.coordinator.next_due() == Deadline::never());
  desk.everyone({request_of("b")});
  CHECK_FALSE(desk.order());
}

TEST_CASE("only like operations are fused", "[negotiate][coordinator]") {
  const wire::Request base = request_of("base");
  const auto like = [](const std::string& name, auto change) {
    wire::Request request = request_of(name);
    change(request);
    return request;
  };
  const std::vector<wire::Request> requests = {
      base,
      like("dtype", [](auto& r) { r.dtype = DType::kFloat64; }),
      like("op", [](auto& r) { r.reduce_op = ReduceOp::kMax; }),
      like("average", [](auto& r) { r.reduce_op = ReduceOp::kAverage; }),
      like("pre", [](auto& r) { r.prescale.factor = 0.5; }),
      like("post", [](auto& r) { r.postscale.factor = 0.5; }),
      like("post by", [](auto& r) { r.postscale.divisor = 2; }),
      like("technique", [](auto& r) { r.technique = "negate"; }),
      like("same technique", [](auto& r) { r.technique = "negate"; }),
      like("broadcast", [](auto& r) { r.operation = Operation::kBroadcast; }),
      like("broadcast too", [](auto& r) { r.operation = Operation::kBroadcast; }),
      like("shape",
           [](auto& r) {
             r.shape = {2, 2, 2};
           }),
  };
  Desk desk(eager());
  desk.everyone(requests);
  const auto order = desk.order();
  REQUIRE(order);
  std::vector<Names> operations;
  for (const auto& operation : order->operations) {
    auto& names = operations.emplace_back();
    for (const auto& member : operation.tensors) names.push_back(member.name);
  }
  CHECK(operations == std::vector<Names>{{"base", "shape"},
                                         {"dtype"},
                                         {"op"},
                                         {"average"},
                                         {"pre"},
                                         {"post"},
                                         {"post by"},
                                         {"technique"},
                                         {"same technique"},
                                         {"broadcast"},
                                         {"broadcast too"}});
}

TEST_CASE("unnamed operations get no id", "[negotiate][coordinator]") {
  Desk desk(eager());
  wire::Request unnamed = request_of("allreduce.noname.1");
  unnamed.cacheable = false;
  desk.everyone({unnamed, request_of("a")});
  const auto order = desk.order();
  REQUIRE(order);
  CHECK(order->operations ==
        std::vector<wire::FusedOperation>{{{{0, "allreduce.noname.1"}, {1, "a"}}, {}, {}}});
}

TEST_CASE("an order evicts no id that it names, nor one that a report may name", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.cache_capacity = 1;
  Desk desk(options);
  desk.everyone({request_of("a")});
  REQUIRE(desk.order()->operations[0].tensors[0].id == 1);
  SECTION("reported by one") {
    desk.cached(0, {1});
    desk.everyone({request_of("b")});
    const auto order = desk.order();
    REQUIRE(order);
    CHECK(order->evicted.empty());
    CHECK(order->operations[0].tensors[0].id == wire::kNoCacheId);
    desk.cached(1, {1});
    CHECK(desk.order()->operations == std::vector<wire::FusedOperation>{{{{1, ""}}, {}, {}}});
  }
  SECTION("in this order") {
    desk.cached(0, {1});
    desk.cached(1, {1});
    desk.everyone({request_of("b")});
    const auto order = desk.order();
    REQUIRE(order);
    CHECK(order->evicted.empty());
    CHECK(order->operations == std::vector<wire::FusedOperation>{{{{1, ""}, {0, "b"}}, {}, {}}});
  }
  SECTION("idle: it goes, and a late report of it is waited for in full") {
    desk.everyone({request_of("b")});
    const auto order = desk.coordinator.take_order(kStart);
    REQUIRE(order);
    CHECK(order->evicted == Ids{1});
    desk.cached(0, {1});  // this member wrote it before it applied that order
    CHECK(desk.coordinator.waiting() == 0);
    desk.everyone({request_of("a")});
    CHECK(desk.order()->operations[0].tensors[0].id == 3);
  }
}

TEST_CASE("a recently reported id outlives the others", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.cache_capacity = 2;
  Desk desk(options);
  desk.everyone({request_of("a"), request_of("b")});
  REQUIRE(desk.order());
  desk.cached(0, {1});
  desk.cached(1, {1});
  REQUIRE(desk.order());
  desk.everyone({request_of("c")});
  CHECK(desk.order()->evicted == Ids{2});
}

TEST_CASE("reports that break the protocol are errors naming the rank", "[negotiate][coordinator]") {
  Desk desk(eager());
  wire::Report report;
  SECTION("an id that was never given") { report.cached = {5}; }
  SECTION("the same use twice") {
    desk.request(1, {request_of("a")});
    report.requests = {request_of("a")};
  }
  const Status status = desk.say(1, report);
  CHECK(status.code() == StatusCode::kInternal);
  CHECK(contains(status.message(), "rank 11"));
}

}  // namespace
}  // namespace roundelay::negotiate
