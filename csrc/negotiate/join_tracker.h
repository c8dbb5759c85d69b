// Members that have joined: they take part in nothing until all members have joined. Pure.
//
// A join is a request like any other, with an entry in the table: a member that has reported this entry has
// joined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

  // A member has reported `join`. The table keeps the entry until end().
  void begin(PendingRequest& join) { entry_ = &join; }
  // The entry is about to leave the table: all members have joined, or the join failed.
  void end();
  // True while some members have joined.
  [[nodiscard]] bool active() const { return entry_ != nullptr; }
  [[nodiscard]] bool is_join(const PendingRequest& entry) const { return &entry == entry_; }
  [[nodiscard]] bool has_joined(int member) const;
  // A member that works is not late with its join: the join counts as seen now.
  void restart_clock(TimePoint now);

  // Members (ascending) that have joined and did not report `entry`.
  [[nodiscard]] std::vector<std::int32_t> absent_from(const PendingRequest& entry) const;
  // World ranks (ascending) that have neither reported `entry` nor joined.
  [[nodiscard]] std::vector<int> awaited_by(const PendingRequest& entry) const;
  // Why `entry` cannot go on without the members that have joined. Empty if it can.
  [[nodiscard]] std::string refusal_of(const PendingRequest& entry) const;

  // All members have joined: the next order says so.
  void complete(wire::Joined joined) { joined_ = std::move(joined); }
  [[nodiscard]] std::optional<wire::Joined> take_joined() { return std::exchange(joined_, std::nullopt); }
  // True once after end(): the next order has to take all that is ready.
  [[nodiscard]] bool take_ended() { return std::exchange(ended_, false); }
  [[nodiscard]] bool ended() const { return ended_; }

  // Joins that were reported before uses that must come first (AppliedOrders::heard_all()).
  void defer(int member, const wire::Request& join) { deferred_.emplace(member, join); }
  [[nodiscard]] std::optional<wire::Request> take_deferred(int member);
  // The join of this name failed.
  void drop_deferred(const std::string& name);
  [[nodiscard]] std::size_t deferred() const { return deferred_.size(); }

 private:
  const Group& group_;
  PendingRequest* entry_ = nullptr;  // in the table
  bool ended_ = false;
  std::optional<wire::Joined> joined_;
  std::unordered_map<int, wire::Request> deferred_;  // by member
};

}  // namespace roundelay::negotiate
