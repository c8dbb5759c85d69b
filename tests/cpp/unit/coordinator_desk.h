// A coordinator, and what its members know.
#pragma once

#include <optional>
#include <vector>

#include "negotiate/coordinator.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/negotiate_requests.h"

namespace roundelay::negotiate {

inline constexpr TimePoint kStart{std::chrono::hours(1)};

inline CoordinatorOptions eager() {
  CoordinatorOptions options;
  options.plan = {std::size_t{1} << 20, 0};
  options.fire = {1, Duration{0}};
  return options;
}

// Returns a group in which member i is world rank 10 + i, so that the two numbers differ.
inline Group group_of(int size) {
  Group group;
  for (int i = 0; i < size; ++i) group.ranks.push_back(10 + i);
  return group;
}

struct Desk {
  explicit Desk(CoordinatorOptions options, int size = 2)
      : coordinator(LaneId{}, group_of(size), options), newest(static_cast<std::size_t>(size), 0) {}

  Status say(int member, const wire::Report& report, TimePoint now = kStart) {
    return coordinator.on_report({{&member, 1}, report}, now);
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
  void end_linger(int member) {
    wire::Report report;
    report.last_order = newest[static_cast<std::size_t>(member)];
    report.end_linger = true;
    REQUIRE(say(member, report).ok());
  }
  std::optional<wire::Order> order(TimePoint now = kStart) {
    auto taken = coordinator.take_order(now);
    if (taken) newest.assign(newest.size(), taken->sequence);
    return taken;
  }

  Coordinator coordinator;
  std::vector<std::uint64_t> newest;  // the last order that each member has applied
};

}  // namespace roundelay::negotiate
