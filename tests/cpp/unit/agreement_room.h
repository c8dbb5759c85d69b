// A coordinator and its members, who exchange encoded messages by hand.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "negotiate/coordinator.h"
#include "negotiate/participant.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/coordinator_desk.h"
#include "wire/codec.h"

namespace roundelay::negotiate {

using Fields = std::vector<AgreementField>;

inline wire::Request agreement_of(const std::string& name, Fields fields = {{Merge::kMax, 4}},
                                  int root = -1) {
  wire::Request request = request_of(name, {});
  request.operation = Operation::kAgreement;
  request.fields = std::move(fields);
  request.root = root;
  return request;
}

inline wire::Request join_of() {
  wire::Request request = request_of("<join>", {});
  request.operation = Operation::kJoin;
  request.cacheable = false;
  return request;
}

class Room {
 public:
  explicit Room(int size, std::size_t cache_capacity = 16)
      : Room(size, with_capacity(eager(), cache_capacity)) {}
  Room(int size, const CoordinatorOptions& options)
      : coordinator(LaneId{}, group_of(size), options), orders(static_cast<std::size_t>(size)) {
    for (int m = 0; m < size; ++m) members.emplace_back(LaneId{}, m);
  }

  // Sends the member's report, if it has one.
  void report(std::size_t m) {
    auto report = members[m].take_report();
    if (!report) return;
    last_report = through_codec<wire::Report>(std::move(*report));
    const int member = static_cast<int>(m);
    const Status status = coordinator.on_report({{&member, 1}, last_report}, kStart);
    INFO(status.message());
    REQUIRE(status.ok());
  }
  // Takes the orders that are due. Members get them by apply().
  void take_orders() {
    while (auto order = coordinator.take_order(kStart)) {
      last_order = through_codec<wire::Order>(std::move(*order));
      for (auto& queue : orders) queue.push_back(last_order);
    }
  }
  Applied apply(std::size_t m) {
    REQUIRE_FALSE(orders[m].empty());
    auto applied = members[m].apply(orders[m].front());
    orders[m].pop_front();
    INFO(applied.status().message());
    REQUIRE(applied.ok());
    return std::move(applied).value();
  }

  // One submission by the members that have values, from the report to the result, which must be equal on all
  // of them. A member without values has joined.
  Agreed agree(const wire::Request& request, const std::vector<std::optional<std::string>>& values) {
    for (std::size_t m = 0; m < values.size(); ++m) {
      if (values[m]) members[m].submit({request, *values[m]});
      report(m);
    }
    take_orders();
    std::optional<Agreed> agreed;
    for (std::size_t m = 0; m < values.size(); ++m) {
      const Applied applied = apply(m);
      REQUIRE(applied.operations.size() == 1);
      REQUIRE(applied.operations[0].agreed);
      REQUIRE(applied.operations[0].skipped == !values[m]);
      if (!values[m]) continue;
      REQUIRE(applied.operations[0].names == Names{request.name});
      if (agreed) REQUIRE(*applied.operations[0].agreed == *agreed);
      agreed = applied.operations[0].agreed;
    }
    return *agreed;
  }

  void join(std::size_t m) {
    members[m].submit(join_of());
    report(m);
    take_orders();
  }

  Coordinator coordinator;
  std::deque<Participant> members;
  std::vector<std::deque<wire::Order>> orders;  // those that each member has not applied
  wire::Report last_report;
  wire::Order last_order;

 private:
  static CoordinatorOptions with_capacity(CoordinatorOptions options, std::size_t capacity) {
    options.cache_capacity = capacity;
    return options;
  }
  template <typename M>
  static M through_codec(M message) {
    const auto back = wire::decode(wire::encode(std::move(message)));
    REQUIRE(back.ok());
    return std::get<M>(*back);
  }
};

}  // namespace roundelay::negotiate
