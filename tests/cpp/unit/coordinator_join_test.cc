// The coordinator while members have joined.
#include <string>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/unit/coordinator_desk.h"

namespace roundelay::negotiate {
namespace {

using std::chrono::seconds;

wire::Request join_of() {
  wire::Request request = request_of("join", {});
  request.operation = Operation::kJoin;
  request.cacheable = false;
  return request;
}

wire::Request unnamed(std::uint64_t number, Operation operation = Operation::kAllreduce) {
  wire::Request request = request_of(std::string(name_of(operation)) + ".noname." + std::to_string(number));
  request.operation = operation;
  request.unnamed = number;
  request.cacheable = false;
  return request;
}

// Makes an order's counters: of allreduces and barriers; other operations have none.
std::vector<std::uint64_t> counters_of(std::uint64_t allreduces, std::uint64_t barriers = 0) {
  std::vector<std::uint64_t> counters(kOperationCount, 0);
  counters[static_cast<std::size_t>(Operation::kAllreduce)] = allreduces;
  counters[static_cast<std::size_t>(Operation::kBarrier)] = barriers;
  return counters;
}

wire::Request of(Operation operation, int root = -1) {
  wire::Request request = request_of("x");
  request.operation = operation;
  request.root = root;
  return request;
}

using Operations = std::vector<wire::FusedOperation>;

TEST_CASE("who has joined is not waited for, whatever came first", "[negotiate][join]") {
  Desk desk(eager(), 3);
  desk.request(2, {request_of("mine")});
  desk.request(0, {request_of("a"), request_of("mine")});
  desk.request(1, {request_of("a")});
  CHECK_FALSE(desk.order());
  desk.request(2, {join_of()});
  CHECK(desk.order()->operations == Operations{{{{0, "a"}}, {}, {2}}});  // no id: member 2 does not know it
  desk.request(1, {request_of("mine"), request_of("b")});
  CHECK(desk.order()->operations == Operations{{{{1, "mine"}}, {}, {}}});
  desk.request(0, {request_of("b")});
  CHECK(desk.order()->operations == Operations{{{{0, "b"}}, {}, {2}}});
  CHECK(desk.coordinator.waiting() == 1);  // the join waits
}

TEST_CASE("all have joined: the last one, the largest counters, behind everything else",
          "[negotiate][join]") {
  CoordinatorOptions options = eager();
  options.fire = {1000000, seconds(10)};
  Desk desk(options, 3);
  desk.request(0, {unnamed(3), join_of()});
  desk.request(2, {unnamed(5), unnamed(7, Operation::kBarrier), join_of()});
  CHECK_FALSE(desk.order());
  desk.request(1, {join_of()});
  const auto order = desk.order();
  REQUIRE(order);
  REQUIRE(order->operations.size() == 3);  // absent sets differ: not fused
  CHECK(order->operations[0].absent == std::vector<std::int32_t>{1, 2});
  CHECK(order->operations[1].absent == std::vector<std::int32_t>{0, 1});
  CHECK(order->joined == wire::Joined{11, counters_of(5, 7)});
  CHECK(desk.coordinator.waiting() == 0);
  CHECK_FALSE(desk.order());
  desk.everyone({request_of("a")});  // nobody is absent any more
  desk.end_linger(0);
  CHECK(desk.order()->operations == Operations{{{{1, "a"}}, {}, {}}});
  desk.everyone({join_of()});
  CHECK(desk.order()->joined == wire::Joined{12, counters_of(5, 7)});
}

TEST_CASE("a rank that is alone joins at once", "[negotiate][join]") {
  Desk desk(eager(), 1);
  desk.request(0, {unnamed(3), join_of()});
  CHECK(desk.order()->joined == wire::Joined{10, counters_of(3)});
}

TEST_CASE("an absent member's part of an allgather is empty", "[negotiate][join]") {
  Desk desk(eager(), 3);
  desk.request(1, {join_of()});
  desk.request(0, {of(Operation::kAllgather)});
  desk.request(2, {of(Operation::kAllgather)});
  CHECK(desk.order()->operations == Operations{{{{0, "x"}}, {4, 0, 4}, {1}}});
}

TEST_CASE("what cannot go on without a joined rank fails for everybody at once", "[negotiate][join]") {
  const bool join_first = GENERATE(true, false);
  const auto text_of = [&](const wire::Request& request) {
    Desk desk(eager(), 3);
    if (join_first) desk.request(1, {join_of()});
    desk.request(0, {request});
    if (!join_first) desk.request(1, {join_of()});
    const auto order = desk.coordinator.take_order(kStart);
    if (!order) return std::string();
    REQUIRE(order->failures.size() == 1);
    CHECK(order->failures[0].code == StatusCode::kIncomplete);
    desk.request(2, {request});  // this use has failed
    CHECK(desk.coordinator.waiting() == 1);
    return order->failures[0].text;
  };
  CHECK(contains(text_of(of(Operation::kBroadcast, 11)), "broadcast of 'x': rank 11, its root, has joined"));
  CHECK(contains(text_of(of(Operation::kAlltoall)), "alltoall of 'x': rank 11 has joined"));
  CHECK(contains(text_of(of(Operation::kReducescatter)), "rank 11 has joined"));
  CHECK(contains(text_of(of(Operation::kProcessSet)), "rank 11 has joined"));
  for (const Operation operation : {Operation::kAllreduce, Operation::kAllgather, Operation::kBarrier})
    CHECK(text_of(of(operation)).empty());
  CHECK(text_of(of(Operation::kBroadcast, 12)).empty());
}

TEST_CASE("errors and disagreements of the others are theirs while a rank has joined", "[negotiate][join]") {
  Desk desk(eager(), 3);
  desk.request(1, {join_of()});
  desk.request(0, {request_of("a")});
  desk.request(2, {error_of("a")});
  CHECK(desk.order()->failures.size() == 1);
  desk.request(0, {request_of("b")});
  desk.request(2, {request_of("b", {5})});
  CHECK(desk.order()->failures.size() == 1);
  desk.request(0, {join_of()});
  desk.request(2, {join_of()});
  CHECK(desk.order()->joined);
}

TEST_CASE("a join by another name's operation is a mismatch that ends it", "[negotiate][join]") {
  Desk desk(eager());
  desk.request(1, {join_of()});
  desk.request(0, {request_of("join")});
  CHECK(contains(desk.order()->failures.at(0).text, "operation allreduce, rank 11 has operation join"));
  desk.request(0, {request_of("a")});
  CHECK_FALSE(desk.order());  // member 1 is back
  desk.request(1, {request_of("a")});
  CHECK(desk.order()->operations.size() == 1);
}

TEST_CASE("a join that fails says where unnamed operations are, behind all that went on without it",
          "[negotiate][join]") {
  CoordinatorOptions options = eager();
  options.fire = {1000000, seconds(10)};
  options.stall_abort = seconds(100);
  Desk desk(options, 3);
  desk.request(2, {join_of()});
  wire::Request wrong = unnamed(2);
  wrong.error = "bad input";
  desk.request(0, {unnamed(1), wrong, unnamed(3), unnamed(4, Operation::kBarrier)});
  CHECK(desk.order()->failures.at(0).counters.empty());
  desk.request(1, {unnamed(1), unnamed(3)});
  CHECK_FALSE(desk.order());  // the others linger; nobody else has the barrier
  const bool given_up = GENERATE(false, true);
  if (given_up) {
    desk.request(1, {unnamed(4, Operation::kBarrier)});
    const auto order = desk.order(kStart + seconds(100));
    REQUIRE(order);
    REQUIRE(order->failures.size() == 1);
    CHECK(order->failures[0].counters == counters_of(3, 4));
  } else {
    wire::Request again = join_of();
    again.error = "still in flight";
    desk.request(1, {again});
    const auto order = desk.order();
    REQUIRE(order);
    CHECK(order->operations.at(0).absent == std::vector<std::int32_t>{2});
    CHECK(order->operations.at(0).tensors.size() == 2);
    REQUIRE(order->failures.size() == 1);
    CHECK(order->failures[0].name == join_of().name);
    CHECK(order->failures[0].counters == counters_of(3));
    desk.request(0, {request_of("later")});
    desk.request(1, {request_of("later")});
    CHECK_FALSE(desk.order());  // member 2 is back, and what is ready lingers again
  }
}

TEST_CASE("a join waits for what its rank has to say again", "[negotiate][join]") {
  CoordinatorOptions options = eager();
  options.cache_capacity = 1;
  Desk desk(options);
  desk.everyone({request_of("a")});
  REQUIRE(desk.order());
  desk.everyone({request_of("b")});
  const auto evicting = desk.coordinator.take_order(kStart);
  REQUIRE(evicting->evicted == Ids{1});
  wire::Report report;  // the member wrote it before it applied that order
  report.last_order = 1;
  report.cached = {1};
  report.requests = {join_of()};
  REQUIRE(desk.say(1, report).ok());
  CHECK(desk.coordinator.waiting() == 1);
  desk.newest[0] = 2;
  desk.request(0, {request_of("a")});
  CHECK_FALSE(desk.coordinator.take_order(kStart));
  desk.newest[1] = 2;
  SECTION("it says so") {
    desk.request(1, {request_of("a")});
    CHECK(desk.order()->operations.at(0).absent.empty());
  }
  SECTION("it has nothing to say any more") {
    desk.request(1, {});
    CHECK(desk.order()->operations.at(0).absent == std::vector<std::int32_t>{1});
  }
  desk.request(0, {join_of()});
  CHECK(desk.order()->joined);
}

TEST_CASE("only who does nothing else is late with a join", "[negotiate][join]") {
  CoordinatorOptions options = eager();
  options.stall_warning = seconds(60);
  options.stall_abort = seconds(200);
  Desk desk(options, 3);
  desk.request(2, {join_of()});
  const auto working = kStart + seconds(50);
  desk.request(0, {request_of("a")}, working);
  CHECK(desk.coordinator.take_stall_warnings(kStart + seconds(109)).empty());
  auto lines = desk.coordinator.take_stall_warnings(kStart + seconds(110));
  REQUIRE(lines.size() == 2);
  CHECK(contains(lines[0], "rank 11 did not submit 'a'"));  // rank 12 is not missing
  CHECK(contains(lines[1], "ranks 10, 11 did not submit 'join'"));
  desk.request(1, {request_of("a")}, kStart + seconds(120));
  REQUIRE(desk.order(kStart + seconds(120)));
  CHECK(desk.coordinator.take_stall_warnings(kStart + seconds(179)).empty());
  lines = desk.coordinator.take_stall_warnings(kStart + seconds(180));
  REQUIRE(lines.size() == 1);
  CHECK(contains(lines[0], "ranks 10, 11 did not submit 'join'"));
  CHECK_FALSE(desk.order(kStart + seconds(319)));
  const auto order = desk.order(kStart + seconds(320));
  REQUIRE(order);
  CHECK(contains(order->failures.at(0).text, "join() was given up: ranks 10, 11 did not submit it"));
}

TEST_CASE("an overdue operation is given up before the join", "[negotiate][join]") {
  CoordinatorOptions options = eager();
  options.stall_abort = seconds(100);
  Desk desk(options, 3);
  desk.request(2, {join_of()});
  desk.request(0, {request_of("a")});
  const auto order = desk.order(kStart + seconds(100));
  REQUIRE(order);
  REQUIRE(order->failures.size() == 1);
  CHECK(contains(order->failures[0].text, "'a' was given up: rank 11 did not submit it"));
  CHECK(desk.coordinator.waiting() == 1);
}

TEST_CASE("who leaves ends the lane for those who have joined", "[negotiate][join]") {
  Desk desk(eager());
  desk.request(1, {join_of()});
  wire::Report leaving;
  leaving.leaving = true;
  REQUIRE(desk.say(0, leaving).ok());
  desk.request(0, {join_of()});
  const auto order = desk.order();
  CHECK(order->shutdown_by == 10);
  CHECK_FALSE(order->joined);
}

TEST_CASE("a submission behind its own rank's join breaks the protocol", "[negotiate][join]") {
  Desk desk(eager());
  desk.request(1, {join_of()});
  wire::Report report;
  report.requests = {request_of("a")};
  const Status status = desk.say(1, report);
  CHECK(status.code() == StatusCode::kInternal);
  CHECK(contains(status.message(), "rank 11 reported 'a' after its join"));
}

}  // namespace
}  // namespace roundelay::negotiate
