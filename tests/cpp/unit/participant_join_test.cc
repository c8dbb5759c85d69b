// A rank's side of join and of the removal of its process set.
#include <string>
#include <vector>

#include "negotiate/participant.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/negotiate_requests.h"

namespace roundelay::negotiate {
namespace {

constexpr int kMember = 1;

wire::Request join() {
  wire::Request request = request_of("join", {});
  request.operation = Operation::kJoin;
  request.cacheable = false;
  return request;
}

struct Side {
  Participant participant{LaneId{}, kMember};
  wire::Order order{};

  void submit(const std::vector<wire::Request>& requests) {
    for (const wire::Request& request : requests) participant.submit(request);
  }
  std::vector<wire::Request> reported() {
    const auto report = participant.take_report();
    return report ? report->requests : std::vector<wire::Request>{};
  }
  Applied apply() {
    ++order.sequence;
    auto applied = participant.apply(order);
    const std::uint64_t sequence = order.sequence;
    order = {};
    order.sequence = sequence;
    INFO(applied.status().message());
    REQUIRE(applied.ok());
    return std::move(applied).value();
  }
  void run(std::vector<wire::FusedTensor> members, std::vector<std::int32_t> absent = {}) {
    order.operations.push_back({std::move(members), {}, std::move(absent)});
  }
  void fail(const std::string& name) { order.failures.push_back({name, StatusCode::kMismatch, "why"}); }
};

TEST_CASE("a joined rank skips what it never submitted", "[negotiate][participant][join]") {
  Side side;
  side.submit({request_of("a"), join()});
  CHECK(side.reported() == std::vector{request_of("a"), join()});
  side.run({{1, "a"}}, {0, 2});
  side.order.operations.push_back({{{0, "b"}}, {4, 0, 4}, {1}});
  side.run({{17, ""}}, {0, 1});  // it may not know this id
  const Applied done = side.apply();
  CHECK(done.operations == std::vector<OrderedOperation>{{{"a"}, {}, {0, 2}, false},
                                                         {{}, {4, 0, 4}, {1}, true},
                                                         {{}, {}, {0, 1}, true}});
  CHECK(side.participant.outstanding() == 1);
  side.order.joined = wire::Joined{2, {1, 2}};
  CHECK(side.apply().joined == wire::Joined{2, {1, 2}});
  CHECK(side.participant.outstanding() == 0);
}

TEST_CASE("orders that take a rank for joined which is not are errors", "[negotiate][participant][join]") {
  Side side;
  side.submit({request_of("a")});
  REQUIRE(side.participant.take_report());
  ++side.order.sequence;
  SECTION("an operation without it") { side.run({{1, "a"}}, {kMember}); }
  SECTION("the end of a join") { side.order.joined = wire::Joined{}; }
  CHECK(side.participant.apply(side.order).status().code() == StatusCode::kInternal);
}

TEST_CASE("a join that was not reported cannot have ended", "[negotiate][participant][join]") {
  Side side;
  side.submit({join()});
  ++side.order.sequence;
  side.order.joined = wire::Joined{};
  CHECK(side.participant.apply(side.order).status().code() == StatusCode::kInternal);
}

TEST_CASE("failed submissions of others are not this rank's, neither during its join nor after",
          "[negotiate][participant][join]") {
  Side side;
  side.fail("before");
  side.apply();
  side.submit({join()});
  REQUIRE(side.participant.take_report());
  side.fail("during");
  CHECK(side.apply().failed.empty());
  side.order.joined = wire::Joined{};
  side.apply();
  side.submit({request_of("before"), request_of("during")});
  CHECK(side.participant.take_failed().empty());
  CHECK(side.reported().size() == 2);
}

TEST_CASE("a submission in flight fails during a join as ever, and so does a join",
          "[negotiate][participant][join]") {
  Side side;
  side.submit({request_of("a"), join()});
  REQUIRE(side.participant.take_report());
  side.fail("a");
  CHECK(side.apply().failed.size() == 1);
  side.fail("join");
  CHECK(side.apply().failed.size() == 1);
  side.submit({error_of("b")});  // it is no longer joined
  CHECK(side.reported() == std::vector{error_of("b")});
}

TEST_CASE("the end of a failed join hands on where unnamed operations are",
          "[negotiate][participant][join]") {
  Side side;
  side.submit({join()});
  REQUIRE(side.participant.take_report());
  side.fail("join");
  side.order.failures.back().counters = {3, 0, 1};
  const Applied ended = side.apply();
  REQUIRE(ended.failed.size() == 1);
  CHECK(ended.failed[0].counters == std::vector<std::uint64_t>{3, 0, 1});
}

TEST_CASE("any number of wrong submissions behind one name", "[negotiate][participant][join]") {
  Side side;
  side.submit({request_of("a")});
  REQUIRE(side.participant.take_report());
  constexpr int kMany = 200'000;  // a recursion this deep would overflow the stack
  for (int i = 0; i < kMany; ++i) side.participant.submit(error_of("a"));
  side.submit({join()});
  REQUIRE(side.participant.take_report());
  side.run({{1, "a"}});
  side.apply();
  CHECK_FALSE(side.participant.take_report());
  CHECK(side.participant.outstanding() == 1);
}

TEST_CASE("a submission behind a failed one is reported before the join", "[negotiate][participant][join]") {
  Side side;
  side.submit({error_of("a"), request_of("a"), join()});
  CHECK(side.reported() == std::vector{error_of("a")});
  CHECK_FALSE(side.participant.take_report());
  side.fail("a");
  side.apply();
  CHECK(side.reported() == std::vector{request_of("a"), join()});
}

TEST_CASE("an error behind an operation is nobody's business after the join",
          "[negotiate][participant][join]") {
  Side side;
  side.submit({request_of("a"), error_of("a"), join()});
  CHECK(side.reported() == std::vector{request_of("a"), join()});
  side.run({{1, "a"}});
  side.apply();
  CHECK_FALSE(side.participant.take_report());
  side.order.joined = wire::Joined{};
  side.apply();
  side.submit({request_of("a")});
  CHECK(side.participant.take_report()->cached == Ids{1});
}

TEST_CASE("a second join while one is in flight is a failed submission, reported after it",
          "[negotiate][participant][join]") {
  Side side;
  wire::Request again = join();
  again.error = "still in flight";
  side.submit({join(), again});
  CHECK(side.reported() == std::vector{join()});
  side.order.joined = wire::Joined{};
  side.apply();
  CHECK(side.reported() == std::vector{again});
}

TEST_CASE("an eviction that concerns a joined rank's submission is answered, whatever becomes of it",
          "[negotiate][participant][join]") {
  Side side;
  side.submit({request_of("a")});
  REQUIRE(side.participant.take_report());
  side.run({{1, "a"}});
  side.apply();
  side.submit({request_of("a"), join()});
  REQUIRE(side.participant.take_report()->cached == Ids{1});
  side.order.evicted = {1};
  const bool fails = GENERATE(true, false);
  if (fails) side.fail("a");
  side.apply();
  const auto report = side.participant.take_report();
  REQUIRE(report);
  CHECK(report->last_order == 2);
  CHECK(report->requests.size() == (fails ? 0 : 1));
  CHECK_FALSE(side.participant.take_report());
}

TEST_CASE("an eviction is answered also if the submission had failed before it",
          "[negotiate][participant][join]") {
  Side side;
  side.submit({request_of("a")});
  REQUIRE(side.participant.take_report());
  side.run({{1, "a"}});
  side.apply();
  side.submit({request_of("a")});
  const bool removal = GENERATE(true, false);
  if (removal) side.participant.remove();
  if (!removal) side.submit({join()});
  REQUIRE(side.participant.take_report()->cached == Ids{1});
  side.fail("a");
  side.apply();
  CHECK_FALSE(side.participant.take_report());
  side.order.evicted = {1};
  side.apply();
  const auto report = side.participant.take_report();
  REQUIRE(report);
  CHECK(report->last_order == 3);
  CHECK_FALSE(side.participant.take_report());
}

TEST_CASE("a removal is said once, behind every submission", "[negotiate][participant]") {
  Side side;
  side.submit({error_of("a"), request_of("a")});
  side.participant.remove();
  auto report = side.participant.take_report();
  REQUIRE(report);
  CHECK_FALSE(report->removing);
  side.fail("a");
  side.apply();
  report = side.participant.take_report();
  REQUIRE(report);
  CHECK(report->removing);
  CHECK(report->requests == std::vector{request_of("a")});
  CHECK_FALSE(side.participant.take_report());
  side.fail("a");
  side.order.removed = true;
  const Applied last = side.apply();
  CHECK(last.removed);
  CHECK(last.failed.size() == 1);
  CHECK(side.participant.outstanding() == 0);
}

}  // namespace
}  // namespace roundelay::negotiate
