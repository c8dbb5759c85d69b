// The response cache, a rank's side and the coordinator's side of the negotiation, each by itself.
#include <string>
#include <vector>

#include "negotiate/coordinator.h"
#include "negotiate/participant.h"
#include "negotiate/response_cache.h"
#include "negotiate/validate.h"
#include "tests/cpp/catch.h"

namespace roundelay::negotiate {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Ids = std::vector<wire::CacheId>;
using Names = std::vector<std::string>;

const TimePoint kStart{std::chrono::hours(1)};
const auto kIdle = [](const std::string&) { return false; };

wire::Request request_of(const std::string& name, std::vector<std::int64_t> shape = {4}) {
  wire::Request request;
  request.name = name;
  request.shape = std::move(shape);
  return request;
}

wire::Request error_of(const std::string& name, const std::string& text = "bad input") {
  wire::Request request = request_of(name);
  request.error = text;
  return request;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// --- the cache ---

TEST_CASE("the cache knows the very request it was given", "[negotiate][cache]") {
  ResponseCache cache(4);
  Ids evicted;
  const auto id = cache.insert(request_of("a"), kIdle, evicted);
  CHECK(id == 1);
  REQUIRE(cache.find(id));
  CHECK(*cache.find(id) == request_of("a"));
  CHECK(cache.id_of(request_of("a")) == id);
  CHECK(cache.id_of(request_of("a", {5})) == wire::kNoCacheId);
  CHECK(cache.id_of(request_of("b")) == wire::kNoCacheId);
  CHECK(cache.was_given(1));
  CHECK_FALSE(cache.was_given(2));
  CHECK_FALSE(cache.was_given(wire::kNoCacheId));
  CHECK(evicted.empty());
}

TEST_CASE("the least recently used name goes, and its id never comes back", "[negotiate][cache]") {
  ResponseCache cache(2);
  Ids evicted;
  cache.insert(request_of("a"), kIdle, evicted);
  cache.insert(request_of("b"), kIdle, evicted);
  cache.touch(1);
  cache.touch(99);  // unknown: nothing happens
  CHECK(cache.insert(request_of("c"), kIdle, evicted) == 3);
  CHECK(evicted == Ids{2});
  CHECK(cache.find(2) == nullptr);
  CHECK(cache.was_given(2));
  CHECK(cache.insert(request_of("b"), kIdle, evicted) == 4);
  CHECK(evicted == Ids{2, 1});
  CHECK(cache.find(3) != nullptr);
}

TEST_CASE("a changed request replaces its name's line", "[negotiate][cache]") {
  ResponseCache cache(2);
  Ids evicted;
  cache.insert(request_of("a"), kIdle, evicted);
  cache.insert(request_of("b"), kIdle, evicted);
  CHECK(cache.insert(request_of("a", {5}), kIdle, evicted) == 3);
  CHECK(evicted == Ids{1});
  CHECK(cache.find(2) != nullptr);
  CHECK(cache.id_of(request_of("a", {5})) == 3);
}

TEST_CASE("names in use stay; without room there is no id", "[negotiate][cache]") {
  ResponseCache cache(2);
  Ids evicted;
  cache.insert(request_of("a"), kIdle, evicted);
  cache.insert(request_of("b"), kIdle, evicted);
  const auto a_is_used = [](const std::string& name) { return name == "a"; };
  CHECK(cache.insert(request_of("c"), a_is_used, evicted) == 3);
  CHECK(evicted == Ids{2});  // "a" is older, but in use
  const auto all_used = [](const std::string&) { return true; };
  CHECK(cache.insert(request_of("d"), all_used, evicted) == wire::kNoCacheId);
  CHECK(evicted == Ids{2});
  CHECK(cache.insert(request_of("d"), kIdle, evicted) == 4);  // no id was lost
}

TEST_CASE("capacity 0 caches nothing", "[negotiate][cache]") {
  ResponseCache cache(0);
  Ids evicted;
  CHECK(cache.insert(request_of("a"), kIdle, evicted) == wire::kNoCacheId);
  CHECK(evicted.empty());
  CHECK_FALSE(cache.was_given(1));
}

// --- a rank's side ---

struct Orders {
  std::uint64_t sequence = 0;

  wire::Order next() {
    wire::Order order;
    order.sequence = ++sequence;
    return order;
  }
  wire::Order run(std::vector<wire::Member> members) {
    wire::Order order = next();
    order.operations.push_back({std::move(members)});
    return order;
  }
  wire::Order failed(const std::string& name, const std::string& text) {
    wire::Order order = next();
    order.failures.push_back({name, StatusCode::kMismatch, text});
    return order;
  }
};

Applied applied(Participant& participant, const wire::Order& order) {
  auto result = participant.apply(order);
  INFO(result.status().message());
  REQUIRE(result.ok());
  return std::move(result).value();
}

TEST_CASE("a request is reported in full first and by its id from then on", "[negotiate][participant]") {
  Participant participant(LaneId{});
  Orders orders;
  CHECK_FALSE(participant.take_report());
  participant.submit(request_of("b"));
  participant.submit(request_of("a"));
  auto report = participant.take_report();
  REQUIRE(report);
  CHECK(report->requests == std::vector{request_of("b"), request_of("a")});
  CHECK(report->cached.empty());
  CHECK(report->last_order == 0);
  CHECK_FALSE(participant.take_report());
  CHECK(participant.outstanding() == 2);

  const auto done = applied(participant, orders.run({{1, "a"}, {2, "b"}}));
  CHECK(done.operations == std::vector<Names>{{"a", "b"}});
  CHECK(participant.outstanding() == 0);
  participant.submit(request_of("b"));
  participant.submit(request_of("a"));
  report = participant.take_report();
  REQUIRE(report);
  CHECK(report->requests.empty());
  CHECK(report->cached == Ids{1, 2});
  CHECK(report->last_order == 1);
  CHECK(applied(participant, orders.run({{2, {}}, {1, {}}})).operations == std::vector<Names>{{"b", "a"}});
}

TEST_CASE("a changed shape is reported in full again", "[negotiate][participant]") {
  Participant participant(LaneId{});
  Orders orders;
  participant.submit(request_of("a"));
  REQUIRE(participant.take_report());
  applied(participant, orders.run({{1, "a"}}));
  participant.submit(request_of("a", {8}));
  const auto report = participant.take_report();
  REQUIRE(report);
  CHECK(report->cached.empty());
  CHECK(report->requests == std::vector{request_of("a", {8})});
}

TEST_CASE("what was reported by an id that is then evicted is reported again in full", "[negotiate][participant]") {
  Participant participant(LaneId{});
  Orders orders;
  participant.submit(request_of("a"));
  REQUIRE(participant.take_report());
  applied(participant, orders.run({{1, "a"}}));
  participant.submit(request_of("a"));
  REQUIRE(participant.take_report()->cached == Ids{1});
  wire::Order evicting = orders.next();
  evicting.evicted = {1, 17};  // 17: never known here
  applied(participant, evicting);
  const auto report = participant.take_report();
  REQUIRE(report);
  CHECK(report->requests == std::vector{request_of("a")});
  CHECK(report->last_order == 2);
  CHECK(applied(participant, orders.run({{2, "a"}})).operations == std::vector<Names>{{"a"}});
}

TEST_CASE("what was reported in full survives the eviction of its older id", "[negotiate][participant]") {
  Participant participant(LaneId{});
  Orders orders;
  participant.submit(request_of("a"));
  REQUIRE(participant.take_report());
  applied(participant, orders.run({{1, "a"}}));
  participant.submit(request_of("a", {8}));
  REQUIRE(participant.take_report());
  wire::Order evicting = orders.next();
  evicting.evicted = {1};
  applied(participant, evicting);
  CHECK_FALSE(participant.take_report());
}

TEST_CASE("a flush is news once, and only behind something new", "[negotiate][participant]") {
  Participant participant(LaneId{});
  participant.flush();
  CHECK_FALSE(participant.take_report());
  participant.submit(request_of("a"));
  REQUIRE_FALSE(participant.take_report()->flush);
  participant.flush();
  const auto flushed = participant.take_report();
  REQUIRE(flushed);
  CHECK(flushed->flush);
  CHECK(flushed->requests.empty());
  participant.flush();
  CHECK_FALSE(participant.take_report());
  participant.submit(request_of("b"));
  participant.flush();
  const auto both = participant.take_report();
  REQUIRE(both);
  CHECK(both->flush);
  CHECK(both->requests.size() == 1);
  participant.flush();
  CHECK_FALSE(participant.take_report());
}

TEST_CASE("leaving is said once", "[negotiate][participant]") {
  Participant participant(LaneId{});
  participant.leave();
  const auto report = participant.take_report();
  REQUIRE(report);
  CHECK(report->leaving);
  participant.leave();
  CHECK_FALSE(participant.take_report());
  Orders orders;
  wire::Order last = orders.next();
  last.shut_down_by = 3;
  CHECK(applied(participant, last).shut_down_by == 3);
}

TEST_CASE("an error of this rank's own is reported; its order settles nothing here", "[negotiate][participant]") {
  Participant participant(LaneId{});
  Orders orders;
  participant.submit(error_of("a"));
  const auto report = participant.take_report();
  REQUIRE(report);
  CHECK(report->requests == std::vector{error_of("a")});
  CHECK(participant.outstanding() == 0);
  const auto done = applied(participant, orders.failed("a", "rank 0: bad input"));
  CHECK(done.failed.empty());  // the caller has its error
  CHECK(participant.take_settled().empty());
  participant.submit(request_of("a"));  // and the next use is a use like any other
  CHECK(participant.take_report()->requests == std::vector{request_of("a")});
}

TEST_CASE("a peer's error fails the use in flight", "[negotiate][participant]") {
  Participant participant(LaneId{});
  Orders orders;
  participant.submit(request_of("a"));
  REQUIRE(participant.take_report());
  const auto done = applied(participant, orders.failed("a", "rank 1: bad input"));
  REQUIRE(done.failed.size() == 1);
  CHECK(done.failed[0].name == "a");
  CHECK(done.failed[0].status == Status::mismatch("rank 1: bad input"));
  CHECK(participant.outstanding() == 0);
}

TEST_CASE("a failed use that was not reported yet is not reported later", "[negotiate][participant]") {
  Participant participant(LaneId{});
  Orders orders;
  participant.submit(request_of("a"));
  CHECK(applied(participant, orders.failed("a", "text")).failed.size() == 1);
  CHECK_FALSE(participant.take_report());
  participant.submit(error_of("b"));
  CHECK(applied(participant, orders.failed("b", "text")).failed.empty());
  CHECK_FALSE(participant.take_report());
}

TEST_CASE("a failure ahead of the use meets the next use, one each", "[negotiate][participant]") {
  Participant participant(LaneId{});
  Orders orders;
  CHECK(applied(participant, orders.failed("a", "first")).failed.empty());
  CHECK(applied(participant, orders.failed("a", "second")).failed.empty());
  participant.submit(request_of("a"));
  auto settled = participant.take_settled();
  REQUIRE(settled.size() == 1);
  CHECK(settled[0].status == Status::mismatch("first"));
  participant.submit(error_of("a"));  // its caller has an error already
  CHECK(participant.take_settled().empty());
  CHECK_FALSE(participant.take_report());
  participant.submit(request_of("a"));
  CHECK(participant.take_settled().empty());
  CHECK(participant.take_report()->requests.size() == 1);
}

TEST_CASE("uses behind an unsettled one wait for their turn", "[negotiate][participant]") {
  Participant participant(LaneId{});
  Orders orders;
  participant.submit(request_of("a"));
  participant.submit(error_of("a", "in flight"));
  participant.submit(request_of("a", {9}));
  CHECK(participant.take_report()->requests == std::vector{request_of("a")});
  CHECK(applied(participant, orders.run({{1, "a"}})).operations.size() == 1);
  CHECK(participant.take_report()->requests == std::vector{error_of("a", "in flight")});
  CHECK(applied(participant, orders.failed("a", "rank 0: in flight")).failed.empty());
  CHECK(participant.take_report()->requests == std::vector{request_of("a", {9})});
  CHECK_FALSE(participant.take_report());
}

TEST_CASE("orders that cannot be are errors", "[negotiate][participant]") {
  Participant participant(LaneId{});
  Orders orders;
  participant.submit(request_of("a"));
  SECTION("a gap in the sequence") {
    orders.sequence = 1;
    CHECK(participant.apply(orders.next()).status().code() == StatusCode::kInternal);
  }
  SECTION("an unknown id") {
    CHECK(contains(participant.apply(orders.run({{9, {}}})).status().message(), "cache id 9"));
  }
  SECTION("a name that was not reported") {
    CHECK(contains(participant.apply(orders.run({{1, "a"}})).status().message(), "'a'"));
  }
  SECTION("an id given twice") {
    participant.submit(request_of("b"));
    REQUIRE(participant.take_report());
    CHECK(contains(participant.apply(orders.run({{1, "a"}, {1, "b"}})).status().message(), "twice"));
  }
}

// --- the coordinator's side ---

CoordinatorOptions eager() {
  CoordinatorOptions options;
  options.plan = {std::size_t{1} << 20, 0, SIZE_MAX};
  options.fire = {1, Duration{0}};
  return options;
}

// World ranks differ from members: member i is rank 10 + i.
Group group_of(int size) {
  Group group;
  for (int i = 0; i < size; ++i) group.ranks.push_back(10 + i);
  return group;
}

struct Desk {
  explicit Desk(CoordinatorOptions options, int size = 2)
      : coordinator(LaneId{}, group_of(size), options), newest(static_cast<std::size_t>(size), 0) {}

  Status say(int member, const wire::Report& report, TimePoint now = kStart) {
    return coordinator.on_report(member, report, now);
  }
  void request(int member, std::vector<wire::Request> requests, TimePoint now = kStart) {
    wire::Report report;
    report.last_order = newest[static_cast<std::size_t>(member)];
    report.requests = std::move(requests);
    REQUIRE(say(member, report, now).ok());
  }
  void cached(int member, Ids ids) {
    wire::Report report;
    report.last_order = newest[static_cast<std::size_t>(member)];
    report.cached = std::move(ids);
    REQUIRE(say(member, report).ok());
  }
  void everyone(const std::vector<wire::Request>& requests, TimePoint now = kStart) {
    for (std::size_t m = 0; m < newest.size(); ++m) request(static_cast<int>(m), requests, now);
  }
  void flush(int member) {
    wire::Report report;
    report.last_order = newest[static_cast<std::size_t>(member)];
    report.flush = true;
    REQUIRE(say(member, report).ok());
  }
  std::optional<wire::Order> order(TimePoint now = kStart) {
    auto taken = coordinator.take_order(now);
    if (taken) newest.assign(newest.size(), taken->sequence);
    return taken;
  }

  Coordinator coordinator;
  std::vector<std::uint64_t> newest;  // by member: the order it has applied
};

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
  CHECK(first->operations == std::vector<wire::FusedOperation>{{{{1, "a"}}}});
  CHECK(desk.coordinator.waiting() == 0);
  CHECK_FALSE(desk.order());
  for (int member = 0; member < 3; ++member) desk.cached(member, {1});
  const auto second = desk.order();
  REQUIRE(second);
  CHECK(second->operations == std::vector<wire::FusedOperation>{{{{1, ""}}}});
}

TEST_CASE("what is ready gathers until theta, a flush or the end of the linger", "[negotiate][coordinator]") {
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
    CHECK(order->operations[0].members.size() == 2);
  }
  SECTION("flush") {
    desk.flush(1);
    CHECK(desk.order());
    desk.everyone({request_of("c")});
    CHECK_FALSE(desk.order());  // it was for what was ready then
  }
  SECTION("linger, from the oldest") {
    desk.everyone({request_of("b", {1})}, kStart + microseconds(900));
    CHECK_FALSE(desk.order(kStart + microseconds(999)));
    const auto order = desk.order(kStart + milliseconds(1));
    REQUIRE(order);
    CHECK(order->operations[0].members.size() == 2);
    CHECK(desk.coordinator.next_due() == Deadline::never());
  }
}

TEST_CASE("a mismatch names tensor, ranks and values, and the name is usable again", "[negotiate][coordinator]") {
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
  for (const bool swapped : {false, true}) {  // the text does not depend on who came first
    Desk desk(eager());
    desk.request(swapped ? 1 : 0, {swapped ? other : request_of("w")});
    desk.request(swapped ? 0 : 1, {swapped ? request_of("w") : other});
    const auto order = desk.order();
    REQUIRE(order);
    CHECK(order->operations.empty());
    REQUIRE(order->failures.size() == 1);
    CHECK(order->failures[0].name == "w");
    CHECK(order->failures[0].code == StatusCode::kMismatch);
    const std::string expected = " of 'w': rank 10 has " + what + " " + mine + ", rank 11 has " + what + " " + theirs;
    INFO(order->failures[0].text);
    CHECK(contains(order->failures[0].text, expected));
    CHECK(desk.coordinator.waiting() == 0);
    desk.everyone({request_of("w")});
    CHECK(desk.order()->operations.size() == 1);
  }
}

TEST_CASE("equal requests do not mismatch", "[negotiate][coordinator]") {
  CHECK(mismatch(request_of("a"), 0, request_of("a"), 1).empty());
  CHECK(shape_text({}) == "[]");
  CHECK(shape_text({7}) == "[7]");
}

TEST_CASE("an error request fails the use everywhere, also for those who report it later", "[negotiate][coordinator]") {
  Desk desk(eager(), 3);
  desk.request(0, {request_of("a")});
  desk.request(1, {error_of("a", "no tensor")});
  const auto order = desk.coordinator.take_order(kStart);
  REQUIRE(order);
  REQUIRE(order->failures.size() == 1);
  CHECK(order->failures[0].text == "rank 11: no tensor");
  CHECK(desk.coordinator.waiting() == 0);
  desk.request(2, {request_of("a")});  // had not applied the order: its use is the failed one
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

TEST_CASE("many overdue names make one line", "[negotiate][coordinator]") {
  Desk desk(eager());
  for (int i = 10; i < 20; ++i) desk.request(0, {request_of("t" + std::to_string(i))});
  const auto lines = desk.coordinator.take_stall_warnings(kStart + seconds(60));
  REQUIRE(lines.size() == 1);
  CHECK(contains(lines[0], "rank 11 did not submit 't10', 't11'"));
  CHECK(contains(lines[0], "'t15' and 4 more"));
}

TEST_CASE("without a warning time there are no warnings", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.stall_warning = Duration{0};
  Desk desk(options);
  desk.request(0, {request_of("a")});
  CHECK(desk.coordinator.take_stall_warnings(kStart + std::chrono::hours(9)).empty());
  CHECK(desk.coordinator.next_due() == Deadline::never());
}

TEST_CASE("after the abort time an overdue tensor is given up, naming who is missing", "[negotiate][coordinator]") {
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
  CHECK(order->failures[0].code == StatusCode::kAborted);
  CHECK(contains(order->failures[0].text, "allreduce of 'a' was given up: rank 11 did not submit it within 100 s"));
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
  CHECK(last->shut_down_by == 12);  // the first to leave
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
      like("broadcast", [](auto& r) { r.operation = Operation::kBroadcast; }),
      like("broadcast too", [](auto& r) { r.operation = Operation::kBroadcast; }),
      like("shape", [](auto& r) { r.shape = {2, 2, 2}; }),
  };
  Desk desk(eager());
  desk.everyone(requests);
  const auto order = desk.order();
  REQUIRE(order);
  std::vector<Names> operations;
  for (const auto& operation : order->operations) {
    auto& names = operations.emplace_back();
    for (const auto& member : operation.members) names.push_back(member.name);
  }
  CHECK(operations == std::vector<Names>{{"base", "shape"}, {"dtype"}, {"op"}, {"average"}, {"pre"}, {"post"},
                                         {"post by"}, {"broadcast"}, {"broadcast too"}});
}

TEST_CASE("unnamed operations get no id", "[negotiate][coordinator]") {
  Desk desk(eager());
  wire::Request unnamed = request_of("allreduce.noname.1");
  unnamed.cacheable = false;
  desk.everyone({unnamed, request_of("a")});
  const auto order = desk.order();
  REQUIRE(order);
  CHECK(order->operations == std::vector<wire::FusedOperation>{{{{0, "allreduce.noname.1"}, {1, "a"}}}});
}

TEST_CASE("an order evicts no id that it names, nor one that a report may name", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.cache_capacity = 1;
  Desk desk(options);
  desk.everyone({request_of("a")});
  REQUIRE(desk.order()->operations[0].members[0].id == 1);
  SECTION("reported by one") {
    desk.cached(0, {1});
    desk.everyone({request_of("b")});
    const auto order = desk.order();
    REQUIRE(order);
    CHECK(order->evicted.empty());
    CHECK(order->operations[0].members[0].id == wire::kNoCacheId);
    desk.cached(1, {1});
    CHECK(desk.order()->operations == std::vector<wire::FusedOperation>{{{{1, ""}}}});
  }
  SECTION("in this order") {
    desk.cached(0, {1});
    desk.cached(1, {1});
    desk.everyone({request_of("b")});
    const auto order = desk.order();
    REQUIRE(order);
    CHECK(order->evicted.empty());
    CHECK(order->operations == std::vector<wire::FusedOperation>{{{{1, ""}, {0, "b"}}}});
  }
  SECTION("idle: it goes, and a late report of it is waited for in full") {
    desk.everyone({request_of("b")});
    const auto order = desk.coordinator.take_order(kStart);
    REQUIRE(order);
    CHECK(order->evicted == Ids{1});
    desk.cached(0, {1});  // written before that order was applied
    CHECK(desk.coordinator.waiting() == 0);
    desk.everyone({request_of("a")});
    CHECK(desk.order()->operations[0].members[0].id == 3);
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
