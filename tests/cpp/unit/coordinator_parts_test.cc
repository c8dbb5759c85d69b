// The coordinator's parts, each by itself.
#include "negotiate/applied_orders.h"
#include "negotiate/cached_requests.h"
#include "negotiate/stall_clock.h"
#include "tests/cpp/unit/coordinator_desk.h"

namespace roundelay::negotiate {
namespace {

using std::chrono::seconds;

std::vector<int> of(int member) { return {member}; }

TEST_CASE("a report from before an order is read as it was meant", "[negotiate]") {
  AppliedOrders orders(2);
  orders.on_failed("t", 3);
  orders.on_evicted({7}, 3);
  orders.on_report(of(0), 2);
  orders.on_report(of(1), 3);
  CHECK(orders.already_failed("t", 0));
  CHECK_FALSE(orders.already_failed("t", 1));
  CHECK_FALSE(orders.already_failed("other", 0));
  orders.on_evicted_id(of(0), 7);
  orders.on_evicted_id(of(1), 8);  // no order on its way evicts it
  CHECK_FALSE(orders.heard_all(0));
  CHECK(orders.heard_all(1));
  orders.forget();
  CHECK(orders.any_failed());
  orders.on_report(of(0), 3);
  CHECK(orders.heard_all(0));
  orders.forget();
  CHECK_FALSE(orders.any_failed());
}

struct Waiting {
  void report(int member, const std::string& name, TimePoint now) {
    wire::Report report;
    report.requests.push_back(request_of(name));
    const wire::Request& request = report.requests.front();
    auto position = table.find(name);
    if (position == table.all().end()) {
      position = table.open(member, request, now);
      clock.on_opened(table, position->second);
    }
    table.report(position->second, {{&member, 1}, report}, request, 0);
  }

  const Group group = group_of(3);
  RequestTable table{group};
  JoinTracker joins{group};
  StallClock clock{group, joins, {seconds(10), seconds(30)}};
};

TEST_CASE("the stall clock names who is late, and when to look again", "[negotiate]") {
  Waiting waiting;
  CHECK(waiting.clock.next_due(waiting.table) == Deadline::never());
  waiting.report(1, "t", kStart);
  CHECK(waiting.clock.next_due(waiting.table) == Deadline::at(kStart + seconds(10)));
  std::set<int> late;
  CHECK(waiting.clock.take_warnings(waiting.table, kStart + seconds(9), late).empty());
  const auto lines = waiting.clock.take_warnings(waiting.table, kStart + seconds(10), late);
  REQUIRE(lines.size() == 1);
  CHECK(lines.front().find("ranks 10, 12 did not submit 't'") == 0);
  CHECK(late == std::set<int>{10, 12});
  CHECK(waiting.clock.next_due(waiting.table) == Deadline::at(kStart + seconds(20)));
  CHECK(waiting.clock.overdue(waiting.table, kStart + seconds(29)).empty());
  CHECK(waiting.clock.overdue(waiting.table, kStart + seconds(30)) == std::vector<std::string>{"t"});
}

TEST_CASE("nobody waits for a member that has joined", "[negotiate]") {
  Waiting waiting;
  waiting.report(1, "t", kStart);
  waiting.report(0, "join", kStart);
  waiting.joins.begin(waiting.table.find("join")->second);
  const ReportedRequest& reported = waiting.table.find("t")->second;
  CHECK(waiting.joins.has_joined(0));
  CHECK(waiting.joins.awaited_by(reported) == std::vector<int>{12});
  CHECK(waiting.joins.absent_from(reported) == std::vector<std::int32_t>{0});
  waiting.joins.end();
  CHECK_FALSE(waiting.joins.active());
  CHECK(waiting.joins.awaited_by(reported) == std::vector<int>{10, 12});
  CHECK(waiting.joins.take_ended());
  CHECK_FALSE(waiting.joins.take_ended());
}

TEST_CASE("a member reports by id what it knows exactly", "[negotiate]") {
  CachedRequests cache;
  const wire::Request request = request_of("t");
  REQUIRE(cache.assign({3, "t"}, request).ok());
  CHECK(cache.id_of(request) == 3);
  wire::Request other = request;
  other.shape.push_back(2);
  CHECK(cache.id_of(other) == wire::kNoCacheId);
  CHECK(*cache.name_of({3, {}}) == "t");
  CHECK(cache.assign({3, "u"}, request_of("u")).code() == StatusCode::kInternal);
  REQUIRE(cache.assign({4, "t"}, other).ok());  // a newer request of this name
  CHECK_FALSE(cache.request_of(3).ok());
  CHECK(**cache.request_of(4) == other);
  CHECK(cache.evict(3) == "t");
  CHECK(cache.id_of(other) == 4);
  CHECK_FALSE(cache.evict(3).has_value());
}

}  // namespace
}  // namespace roundelay::negotiate
