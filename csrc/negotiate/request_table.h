// Keeps the requests that some members of a group have reported and others have not, by name. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/group.h"
#include "negotiate/agreement_values.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

struct ReportedRequest {
  wire::Request request;               // the first reporter's
  int first_member = 0;                // the first reporter's index in the group
  std::vector<char> by_member;         // for each member: not 0 if it has reported it
  int missing = 0;                     // the number of members that have not reported it
  std::vector<std::int64_t> extents;   // those of wire::FusedOperation
  std::vector<ReportedValues> values;  // agreement: one for each member
  TimePoint first_seen{};
  TimePoint warned{};  // the last warning that named it; first_seen if none has

  // Returns whether one of these members has reported it.
  [[nodiscard]] bool reported_by(std::span<const int> members) const {
    return std::ranges::any_of(
        members, [this](int member) { return by_member[static_cast<std::size_t>(member)] != 0; });
  }
};

// Requests keep their address until they are taken or the table is cleared.
class RequestTable {
 public:
  using Requests = std::unordered_map<std::string, ReportedRequest>;
  using Iterator = Requests::iterator;

  // `group` outlives the table.
  explicit RequestTable(const Group& group) : group_(group), members_(group.ranks.size()) {}

  [[nodiscard]] Iterator find(const std::string& name) { return requests_.find(name); }
  [[nodiscard]] bool contains(const std::string& name) const { return requests_.contains(name); }
  // Adds a request that no member has reported yet; report() follows for `member`, the first one. The table
  // has no request of this name.
  Iterator open(int member, const wire::Request& request, TimePoint now);
  // Records that these members, which have not reported it yet, report the request; it is number `number` of
  // their report.
  void report(ReportedRequest& reported, const Reporters& who, const wire::Request& request,
              std::size_t number);
  // Removes the request and returns it.
  ReportedRequest extract(Iterator position);
  void clear() { requests_.clear(); }

  [[nodiscard]] bool empty() const { return requests_.empty(); }
  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  [[nodiscard]] Requests& all() { return requests_; }
  [[nodiscard]] const Requests& all() const { return requests_; }

 private:
  const Group& group_;
  const std::size_t members_;
  Requests requests_;
};

}  // namespace roundelay::negotiate
