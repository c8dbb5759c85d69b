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

struct PendingRequest {
  wire::Request request;               // the first reporter's
  int first_member = 0;                // the first reporter's index in the group
  std::vector<bool> reported;          // one for each member
  int missing = 0;                     // the number of members that have not reported it
  std::vector<std::int64_t> extents;   // those of wire::FusedOperation
  std::vector<ReportedValues> values;  // agreement: one for each member
  TimePoint first_seen{};
  TimePoint warned{};  // the last warning that named it; first_seen if none has
};

// Entries keep their address until they are taken or the table is cleared.
class RequestTable {
 public:
  using Entries = std::unordered_map<std::string, PendingRequest>;
  using Iterator = Entries::iterator;

  explicit RequestTable(int members) : members_(static_cast<std::size_t>(members)) {}

  [[nodiscard]] Iterator find(const std::string& name) { return entries_.find(name); }
  [[nodiscard]] bool contains(const std::string& name) const { return entries_.contains(name); }
  // Adds an entry that no member has reported yet; report() follows for `member`, the first one. The table
  // has no entry of this name.
  Iterator open(int member, const wire::Request& request, TimePoint now);
  // Records the report of a member that has not reported the entry yet. `values`: for an agreement.
  void report(PendingRequest& entry, int member, const wire::Request& request, ReportedValues values = {});
  // Removes the entry and returns it.
  PendingRequest take(Iterator position);
  void clear() { entries_.clear(); }

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] Entries& entries() { return entries_; }
  [[nodiscard]] const Entries& entries() const { return entries_; }

 private:
  std::size_t members_;
  Entries entries_;
};

}  // namespace roundelay::negotiate
