// Keeps the requests that some members of a group have reported and others have not, by name. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "negotiate/agreement_values.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

struct ReportedRequest {
  wire::Request request;               // the first reporter's
  int first_member = 0;                // the first reporter's index in the group
  std::vector<bool> by_member;         // which members have reported it
  int missing = 0;                     // the number of members that have not reported it
  std::vector<std::int64_t> extents;   // those of wire::FusedOperation
  std::vector<ReportedValues> values;  // agreement: one for each member
  TimePoint first_seen{};
  TimePoint warned{};  // the last warning that named it; first_seen if none has
};

// Requests keep their address until they are taken or the table is cleared.
class RequestTable {
 public:
  using Requests = std::unordered_map<std::string, ReportedRequest>;
  using Iterator = Requests::iterator;

  explicit RequestTable(int members) : members_(static_cast<std::size_t>(members)) {}

  [[nodiscard]] Iterator find(const std::string& name) { return requests_.find(name); }
  [[nodiscard]] bool contains(const std::string& name) const { return requests_.contains(name); }
  // Adds a request that no member has reported yet; report() follows for `member`, the first one. The table
  // has no request of this name.
  Iterator open(int member, const wire::Request& request, TimePoint now);
  // Records the report of a member that has not reported the request yet. `values`: for an agreement.
  void report(ReportedRequest& reported, int member, const wire::Request& request,
              ReportedValues values = {});
  // Removes the request and returns it.
  ReportedRequest extract(Iterator position);
  void clear() { requests_.clear(); }

  [[nodiscard]] bool empty() const { return requests_.empty(); }
  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  [[nodiscard]] Requests& all() { return requests_; }
  [[nodiscard]] const Requests& all() const { return requests_; }

 private:
  std::size_t members_;
  Requests requests_;
};

}  // namespace roundelay::negotiate
