// Reports that go through leaders: what the coordinator decides is what it decides without them.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "negotiate/report_merger.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/coordinator_desk.h"

namespace roundelay::negotiate {
namespace {

std::vector<int> even(int nodes, int each) {
  std::vector<int> of_members;
  for (int member = 0; member < nodes * each; ++member) of_members.push_back(member / each);
  return of_members;
}

// Members whose reports go up at once, and the coordinator.
struct Office {
  Office(const std::vector<int>& nodes, int fan_out, CoordinatorOptions options = eager())
      : coordinator(LaneId{}, group_of(static_cast<int>(nodes.size())), options) {
    const auto size = static_cast<int>(nodes.size());
    for (int member = 0; member < size; ++member) {
      trees.push_back(std::make_unique<ReportTree>(nodes, size, member, fan_out));
      const ReportTree& tree = *trees.back();
      const StallLimits limits{options.stall_warning, options.stall_abort};
      if (member > 0 && !tree.below().empty())
        mergers[member] = std::make_unique<ReportMerger>(LaneId{}, tree, member, limits);
    }
  }

  void say(int member, wire::Report report) { say_before(newest, member, std::move(report)); }
  // The member has not applied all orders yet.
  void say_before(std::uint64_t last_order, int member, wire::Report report) {
    report.last_order = last_order;
    pass(member, member, {.member = member, .report = std::move(report)});
    settle();
  }
  void cached(int member, Ids ids) {
    wire::Report report;
    report.cached = std::move(ids);
    say(member, report);
  }
  void request(int member, std::vector<wire::Request> requests) {
    wire::Report report;
    report.requests = std::move(requests);
    say(member, report);
  }
  // Every member reports the names, and the order gives them ids.
  Ids name(const Names& names) {
    std::vector<wire::Request> requests;
    for (const std::string& one : names) requests.push_back(request_of(one));
    for (int member = 0; member < static_cast<int>(trees.size()); ++member) request(member, requests);
    Ids ids;
    while (const auto given = order()) {
      for (const wire::FusedOperation& operation : given->operations) {
        for (const wire::FusedTensor& tensor : operation.tensors) ids.push_back(tensor.id);
      }
    }
    return ids;
  }
  std::optional<wire::Order> order() {
    auto given = coordinator.take_order(now);
    if (!given) return given;
    newest = given->sequence;
    for (auto& [member, merger] : mergers) merger->on_order(*given);
    settle();
    return given;
  }
  // Carries on all that leaders have to send.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [member, merger] : mergers) {
        auto reports = merger->take_reports(now);
        moved = moved || !reports.empty();
        const int above = trees[static_cast<std::size_t>(member)]->above();
        messages[above] += reports.empty() ? 0 : 1;
        for (auto& report : reports) pass(above, member, std::move(report));
      }
    }
  }

  TimePoint now = kStart;
  Coordinator coordinator;
  std::vector<std::unique_ptr<ReportTree>> trees;
  std::map<int, std::unique_ptr<ReportMerger>> mergers;
  std::map<int, int> messages;              // that each member has got from others
  std::vector<wire::MemberReport> arrived;  // at the coordinator
  std::uint64_t newest = 0;

 private:
  // `from` has sent it, or has written it itself.
  void pass(int to, int from, wire::MemberReport said) {
    if (const auto merger = mergers.find(to); merger != mergers.end())
      return merger->second->take(from, std::move(said), now);
    if (to > 0) {
      ++messages[trees[static_cast<std::size_t>(to)]->above()];
      return pass(trees[static_cast<std::size_t>(to)]->above(), from, std::move(said));
    }
    const auto members = said.all_below ? trees[0]->subtree(said.member) : std::span(&said.member, 1);
    REQUIRE(coordinator.on_report({members, said.report, said.others}, now).ok());
    arrived.push_back(std::move(said));
  }
};

}  // namespace

TEST_CASE("a tree of reports reaches each member once, and nobody has many neighbours", "[leaders]") {
  const int fan_out = GENERATE(1, 2, 8);
  const int nodes = GENERATE(2, 3, 9, 64);
  const int each = GENERATE(1, 4);
  const std::vector<int> of_members = even(nodes, each);
  const int size = nodes * each;
  const bool small = (nodes - 1) * each <= fan_out;
  std::set<int> reached{0};
  for (int member = 0; member < size; ++member) {
    const ReportTree tree(of_members, size, member, fan_out);
    REQUIRE(std::ranges::is_sorted(tree.below()));
    REQUIRE((small || std::ssize(tree.below()) <= each - 1 + fan_out));
    REQUIRE((tree.above() < 0) == (member == 0));
    std::size_t below = 1;
    for (const int child : tree.below()) {
      REQUIRE(reached.insert(child).second);
      REQUIRE(ReportTree(of_members, size, child, fan_out).above() == member);
      REQUIRE(std::ranges::binary_search(tree.subtree(child), child));
      below += tree.subtree(child).size();
    }
    if (member == 0) REQUIRE(below == static_cast<std::size_t>(size));
    if (!tree.below().empty()) REQUIRE(tree.subtree(member).size() == below);
    REQUIRE(tree.subtree(size).empty());
  }
  REQUIRE(reached.size() == static_cast<std::size_t>(size));
}

TEST_CASE("a coordinator with few ranks on other nodes has no leaders", "[leaders]") {
  const std::vector<int> nodes = even(2, 4);
  CHECK(ReportTree(nodes, 8, 0, 4).below().size() == 7);
  CHECK(ReportTree(nodes, 8, 5, 4).above() == 0);
  CHECK(ReportTree(nodes, 8, 5, 3).above() == 4);
  CHECK(ReportTree({}, 8, 5, 1).above() == 0);
}

TEST_CASE("what all report alike arrives as one report from each leader", "[leaders]") {
  Office office(even(16, 4), 2);
  const Ids ids = office.name({"a", "b"});
  office.arrived.clear();
  office.messages.clear();
  for (int member = 63; member >= 0; --member) office.cached(member, ids);
  const auto order = office.order();
  REQUIRE(order);
  CHECK(order->operations.size() == 1);
  CHECK(office.arrived.size() == 2 + 4);  // two leaders, and the four members of the first node
  for (const auto& [member, messages] : office.messages) CHECK(messages <= 3 + 2);
}

TEST_CASE("new requests merge too, and one that differs is named", "[leaders]") {
  Office office(even(8, 2), 2);
  for (int member = 1; member < 16; ++member)
    office.request(member, {request_of("a", {member == 11 ? 5 : 4})});
  office.request(0, {request_of("a")});
  const auto order = office.order();
  REQUIRE(order);
  REQUIRE(order->failures.size() == 1);
  CHECK(contains(order->failures[0].text, "rank 21"));
  // The name can be used again.
  CHECK(office.name({"a"}).size() == 1);
}

TEST_CASE("an agreement through leaders has the values that it has without", "[leaders]") {
  const auto how = GENERATE(Merge::kEqual, Merge::kAnd, Merge::kOr, Merge::kMax, Merge::kSum, Merge::kRoot);
  wire::Request request = request_of("x", {});
  request.operation = Operation::kAgreement;
  request.root = 10 + 9;
  request.fields = {{how, 8}};
  std::vector<Agreed> results;
  for (const int fan_out : {1, 2, 100}) {
    Office office(even(6, 3), fan_out);
    std::string base(8, '\0');
    wire::CacheId id = wire::kNoCacheId;
    for (int step = 0; step < 4; ++step) {
      for (int member = 17; member >= 0; --member) {
        const double mine = 1.0 / (1 + (member * (step + 1)) % (step == 2 ? 1 : 5));
        std::string values(8, '\0');
        std::memcpy(values.data(), &mine, sizeof mine);
        if (step == 3) values = base;
        wire::Report report;
        if (id == wire::kNoCacheId) report.requests = {request};
        if (id != wire::kNoCacheId) report.cached = {id};
        if (values != base) report.contributions = {{0, change_between(base, values)}};
        office.say(member, report);
      }
      const auto order = office.order();
      REQUIRE(order);
      const wire::FusedOperation& operation = order->operations.at(0);
      id = operation.tensors[0].id;
      apply_change(operation.merged->change, base);
      results.push_back({base, operation.merged->differences});
    }
  }
  for (std::size_t i = 4; i < results.size(); ++i) CHECK(results[i] == results[i - 4]);
}

TEST_CASE("a leader's flag to end the linger comes with the last report, or at once", "[leaders]") {
  CoordinatorOptions lazy = eager();
  lazy.fire = {std::size_t{1} << 30, std::chrono::hours(1)};
  Office office(even(3, 2), 1, lazy);
  const auto report_of = [](const std::string& name, bool waits) {
    wire::Report report;
    if (!name.empty()) report.requests = {request_of(name)};
    report.end_linger = waits;
    return report;
  };
  for (int member = 0; member < 6; ++member) office.say(member, report_of("a", member == 5));
  CHECK(office.order());
  for (int member = 0; member < 6; ++member) office.say(member, report_of("b", false));
  CHECK_FALSE(office.order());
  office.say(5, report_of("c", true));  // it waits for b too, whose reports have gone on
  CHECK(office.order());
}

TEST_CASE("a leader keeps nothing back for long, so that late ranks are named", "[leaders]") {
  CoordinatorOptions options = eager();
  options.stall_abort = std::chrono::seconds(8);
  Office office(even(4, 2), 1, options);
  for (int member = 0; member < 8; ++member) {
    if (member != 5) office.request(member, {request_of("a")});
  }
  CHECK_FALSE(office.order());
  for (const int later : {2, 11}) {
    office.now = kStart + std::chrono::seconds(later);
    office.settle();
  }
  const auto order = office.order();
  REQUIRE(order);
  CHECK(contains(order->failures.at(0).text, "rank 15 did not submit"));
}

TEST_CASE("a freeze is heard at once, and the others' counts come merged", "[leaders]") {
  CoordinatorOptions options = eager();
  options.schedule_lock = true;
  Office office(even(8, 2), 2, options);
  const Ids ids = office.name({"a"});
  bool locked = false;
  for (int step = 0; step < 20 && !locked; ++step) {
    for (int member = 0; member < 16; ++member) office.cached(member, ids);
    const auto order = office.order();
    REQUIRE(order);
    locked = order->lock.has_value();
  }
  REQUIRE(locked);
  office.arrived.clear();
  const auto freeze = [&](int member, std::uint64_t announced) {
    wire::Report report;
    report.frozen = announced;
    office.say(member, report);
  };
  freeze(13, 7);
  auto order = office.order();
  REQUIRE(order);
  CHECK(order->freeze);
  for (int member = 15; member >= 0; --member) {
    if (member != 13) freeze(member, 5 + static_cast<std::uint64_t>(member));
  }
  order = office.order();
  REQUIRE(order);
  CHECK(order->unlock == 5U);
  CHECK(office.arrived.size() == 1 + 2 + 2);  // the first, both of the first node, and both leaders
}

TEST_CASE("a join that has failed before it comes keeps no leader from merging", "[leaders]") {
  Office office(even(4, 2), 1);
  const Ids ids = office.name({"a"});
  const std::uint64_t before = office.newest;
  wire::Report join;
  join.requests = {request_of("join", {})};
  join.requests[0].operation = Operation::kJoin;
  wire::Report wrong = join;
  wrong.requests[0].error = "bad input";
  office.say(0, wrong);
  const auto order = office.order();
  REQUIRE(order);
  CHECK(order->failures.size() == 1);
  office.say_before(before, 7, join);
  office.arrived.clear();
  for (int member = 7; member >= 0; --member) office.cached(member, ids);
  CHECK(office.order());
  CHECK(office.arrived.size() == 3);  // the first node's two, and one leader
}

TEST_CASE("a join and a departure go through leaders as they came", "[leaders]") {
  Office office(even(4, 2), 1);
  const Ids ids = office.name({"a"});
  wire::Request join = request_of("join", {});
  join.operation = Operation::kJoin;
  office.request(6, {join});
  for (int member = 0; member < 8; ++member) {
    if (member != 6) office.cached(member, ids);
  }
  auto order = office.order();
  REQUIRE(order);
  CHECK(order->operations.at(0).absent == std::vector<std::int32_t>{6});
  for (int member = 0; member < 8; ++member) {
    if (member != 6) office.request(member, {join});
  }
  order = office.order();
  REQUIRE(order);
  REQUIRE(order->joined);
  CHECK(order->joined->last_rank == 17);
  office.arrived.clear();
  for (int member = 7; member >= 0; --member) office.cached(member, ids);
  CHECK(office.order());
  CHECK(office.arrived.size() == 3);  // it merges again: the first node's two, and one leader

  office.cached(7, ids);  // the others never will
  wire::Report leaves;
  leaves.leaving = true;
  office.say(3, leaves);
  order = office.order();
  REQUIRE(order);
  CHECK(order->shutdown_by == 13);
}

}  // namespace roundelay::negotiate
