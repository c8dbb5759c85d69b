// Keeps for the coordinator the members that have joined: they take part in nothing until all members have
// joined. Pure.
//
// A join is a request like any other, kept in the table: a member that has reported it has joined.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/group.h"
#include "negotiate/request_table.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

class JoinTracker {
 public:
  // `group` outlives the tracker.
  explicit JoinTracker(const Group& group) : group_(group) {}

  // Call it when a member has reported `join`. The table keeps it until end().
  void begin(ReportedRequest& join) { join_ = &join; }
  // Call it before the join leaves the table: all members have joined, or the join failed.
  void end();
  // Returns true while some members have joined.
  [[nodiscard]] bool active() const { return join_ != nullptr; }
  [[nodiscard]] bool is_join(const ReportedRequest& reported) const { return &reported == join_; }
  [[nodiscard]] bool has_joined(int member) const;
  [[nodiscard]] bool any_joined(std::span<const int> members) const {
    return active() && std::ranges::any_of(members, [this](int member) { return has_joined(member); });
  }
  // Counts the join as reported now. Call it when a member has reported something else: such a member is not
  // late with its join.
  void restart_clock(TimePoint now);

  // Returns the members (ascending) that have joined and have not reported this request.
  [[nodiscard]] std::vector<std::int32_t> absent_from(const ReportedRequest& reported) const;
  // Returns the world ranks (ascending) that have neither reported this request nor joined.
  [[nodiscard]] std::vector<int> awaited_by(const ReportedRequest& reported) const;
  // Returns why this request cannot go on without the members that have joined. Empty if it can.
  [[nodiscard]] std::string refusal_of(const ReportedRequest& reported) const;

  // Call it when all members have joined. The next order takes `joined` with take_joined().
  void complete(wire::Joined joined) { joined_ = std::move(joined); }
  [[nodiscard]] std::optional<wire::Joined> take_joined() { return std::exchange(joined_, std::nullopt); }
  // Returns true once after end(): the next order has to take all that is ready.
  [[nodiscard]] bool take_ended() { return std::exchange(ended_, false); }
  [[nodiscard]] bool ended() const { return ended_; }

  // Keeps a join that was reported before submissions that must come first, until AppliedOrders::heard_all().
  void defer(int member, const wire::Request& join) { deferred_.emplace(member, join); }
  [[nodiscard]] std::optional<wire::Request> take_deferred(int member);
  // Drops such joins of this name: the join has failed.
  void drop_deferred(const std::string& name);
  [[nodiscard]] std::size_t deferred() const { return deferred_.size(); }

 private:
  const Group& group_;
  ReportedRequest* join_ = nullptr;  // the join in the table
  bool ended_ = false;
  std::optional<wire::Joined> joined_;
  std::unordered_map<int, wire::Request> deferred_;  // keys: members
};

}  // namespace roundelay::negotiate
