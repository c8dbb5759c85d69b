// The response cache, and a rank's side of the negotiation, each alone.
#include <string>
#include <vector>

#include "negotiate/participant.h"
#include "negotiate/response_cache.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/negotiate_requests.h"

namespace roundelay::negotiate {
namespace {

const auto kIdle = [](const std::string&) { return false; };

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

TEST_CASE("a request with another technique is another request", "[negotiate][cache]") {
  ResponseCache cache(4);
  Ids evicted;
  const auto dense = cache.insert(request_of("a"), kIdle, evicted);
  wire::Request cyclic = request_of("a");
  cyclic.technique = "cyclic:parts=4";
  CHECK(cache.id_of(cyclic) == wire::kNoCacheId);
  const auto id = cache.insert(cyclic, kIdle, evicted);
  CHECK(evicted == Ids{dense});
  CHECK(cache.id_of(cyclic) == id);
  CHECK(cache.id_of(request_of("a")) == wire::kNoCacheId);
}

TEST_CASE("what ranks need not agree on gives a request no new id", "[negotiate][cache]") {
  // Otherwise the order would evict an id that some ranks have just reported.
  ResponseCache cache(4);
  Ids evicted;
  wire::Request barrier = request_of("b", {});
  barrier.operation = Operation::kBarrier;
  const auto id = cache.insert(barrier, kIdle, evicted);
  barrier.dtype = DType::kInt8;
  CHECK(cache.id_of(barrier) == id);
  barrier.operation = Operation::kAllreduce;
  CHECK(cache.id_of(barrier) == wire::kNoCacheId);
}

TEST_CASE("the least recently used name goes, and its id never comes back", "[negotiate][cache]") {
  ResponseCache cache(2);
  Ids evicted;
  cache.insert(request_of("a"), kIdle, evicted);
  cache.insert(request_of("b"), kIdle, evicted);
  cache.touch(1);
  cache.touch(99);  // unknown ids change nothing
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
  wire::Order run(std::vector<wire::FusedTensor> members) {
    wire::Order order = next();
    order.operations.push_back({std::move(members), {}, {}});
    return order;
  }
  wire::Order failed(const std::string& name, const std::string& text) {
    wire::Order order = next();
    order.failures.push_back({name, StatusCode::kMismatch, text});
    return order;
  }
};

std::vector<Names> names_in(const Applied& applied) {
  std::vector<Names> names;
  for (const OrderedOperation& ordered : applied.operations) names.push_back(ordered.names);
  return names;
}

Applied applied(Participant& participant, const wire::Order& order) {
  auto result = participant.apply(order);
  INFO(result.status().message());
  REQUIRE(result.ok());
  return std::move(result).value();
}

TEST_CASE("a request is reported in full first and by its id from then on", "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
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
  CHECK(names_in(done) == std::vector<Names>{{"a", "b"}});
  CHECK(participant.outstanding() == 0);
  participant.submit(request_of("b"));
  participant.submit(request_of("a"));
  report = participant.take_report();
  REQUIRE(report);
  CHECK(report->requests.empty());
  CHECK(report->cached == Ids{1, 2});
  CHECK(report->last_order == 1);
  CHECK(names_in(applied(participant, orders.run({{2, {}}, {1, {}}}))) == std::vector<Names>{{"b", "a"}});
}

TEST_CASE("a changed shape is reported in full again", "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
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

TEST_CASE("what was reported by an id that is then evicted is reported again in full",
          "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
  Orders orders;
  participant.submit(request_of("a"));
  REQUIRE(participant.take_report());
  applied(participant, orders.run({{1, "a"}}));
  participant.submit(request_of("a"));
  REQUIRE(participant.take_report()->cached == Ids{1});
  wire::Order evicting = orders.next();
  evicting.evicted = {1, 17};  // 17 was never known here
  applied(participant, evicting);
  const auto report = participant.take_report();
  REQUIRE(report);
  CHECK(report->requests == std::vector{request_of("a")});
  CHECK(report->last_order == 2);
  CHECK(names_in(applied(participant, orders.run({{2, "a"}}))) == std::vector<Names>{{"a"}});
}

TEST_CASE("a submission that fails between its id's eviction and its new report is not reported",
          "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
  Orders orders;
  participant.submit(request_of("a"));
  REQUIRE(participant.take_report());
  applied(participant, orders.run({{1, "a"}}));
  participant.submit(request_of("a"));
  REQUIRE(participant.take_report());
  wire::Order order = orders.failed("a", "rank 1: bad input");
  order.evicted = {1};
  CHECK(applied(participant, order).failed.size() == 1);
  CHECK_FALSE(participant.take_report());
}

TEST_CASE("what was reported in full survives the eviction of its older id", "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
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

TEST_CASE("an end of the linger is reported once, and only behind something new",
          "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
  participant.end_linger();
  CHECK_FALSE(participant.take_report());
  participant.submit(request_of("a"));
  REQUIRE_FALSE(participant.take_report()->end_linger);
  participant.end_linger();
  const auto asked = participant.take_report();
  REQUIRE(asked);
  CHECK(asked->end_linger);
  CHECK(asked->requests.empty());
  participant.end_linger();
  CHECK_FALSE(participant.take_report());
  participant.submit(request_of("b"));
  participant.end_linger();
  const auto both = participant.take_report();
  REQUIRE(both);
  CHECK(both->end_linger);
  CHECK(both->requests.size() == 1);
  participant.end_linger();
  CHECK_FALSE(participant.take_report());
}

TEST_CASE("leaving is said once", "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
  participant.leave();
  const auto report = participant.take_report();
  REQUIRE(report);
  CHECK(report->leaving);
  participant.leave();
  CHECK_FALSE(participant.take_report());
  Orders orders;
  wire::Order last = orders.next();
  last.shutdown_by = 3;
  CHECK(applied(participant, last).shutdown_by == 3);
}

TEST_CASE("an error of this rank's own is reported; its order ends nothing here",
          "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
  Orders orders;
  participant.submit(error_of("a"));
  const auto report = participant.take_report();
  REQUIRE(report);
  CHECK(report->requests == std::vector{error_of("a")});
  CHECK(participant.outstanding() == 0);
  const auto done = applied(participant, orders.failed("a", "rank 0: bad input"));
  CHECK(done.failed.empty());  // the caller has already got its error
  CHECK(participant.take_failed().empty());
  participant.submit(request_of("a"));  // The next submission is normal again.
  CHECK(participant.take_report()->requests == std::vector{request_of("a")});
}

TEST_CASE("a peer's error fails the submission in flight", "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
  Orders orders;
  participant.submit(request_of("a"));
  REQUIRE(participant.take_report());
  const auto done = applied(participant, orders.failed("a", "rank 1: bad input"));
  REQUIRE(done.failed.size() == 1);
  CHECK(done.failed[0].name == "a");
  CHECK(done.failed[0].status == Status::mismatch("rank 1: bad input"));
  CHECK(participant.outstanding() == 0);
}

TEST_CASE("a failed submission that was not reported yet is not reported later", "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
  Orders orders;
  participant.submit(request_of("a"));
  CHECK(applied(participant, orders.failed("a", "text")).failed.size() == 1);
  CHECK_FALSE(participant.take_report());
  participant.submit(error_of("b"));
  CHECK(applied(participant, orders.failed("b", "text")).failed.empty());
  CHECK_FALSE(participant.take_report());
}

TEST_CASE("a failure ahead of the submission meets the next submission, one each",
          "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
  Orders orders;
  CHECK(applied(participant, orders.failed("a", "first")).failed.empty());
  CHECK(applied(participant, orders.failed("a", "second")).failed.empty());
  participant.submit(request_of("a"));
  auto failed = participant.take_failed();
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].status == Status::mismatch("first"));
  participant.submit(error_of("a"));  // the caller has already got an error
  CHECK(participant.take_failed().empty());
  CHECK_FALSE(participant.take_report());
  participant.submit(request_of("a"));
  CHECK(participant.take_failed().empty());
  CHECK(participant.take_report()->requests.size() == 1);
}

TEST_CASE("submissions wait until the one before them of their name has ended", "[negotiate][participant]") {
  Participant participant(LaneId{}, 0);
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
  Participant participant(LaneId{}, 0);
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

}  // namespace
}  // namespace roundelay::negotiate
