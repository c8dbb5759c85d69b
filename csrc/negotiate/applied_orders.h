// Records which orders each member has applied, so that the coordinator reads its reports correctly. Pure.
//
// A member may write a report before it has applied the newest order. Such a report may name a cache id that
// the order evicts, or a submission that the order has failed. Orders are known by their sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "wire/messages.h"

namespace roundelay::negotiate {

class AppliedOrders {
 public:
  explicit AppliedOrders(int members)
      : newest_(static_cast<std::size_t>(members), 0), unheard_until_(newest_.size(), 0) {}

  // A report of these members says that they have applied all orders up to this one.
  void on_report(std::span<const int> members, std::uint64_t last_order);
  // The order of this sequence evicts these ids.
  void on_evicted(const std::vector<wire::CacheId>& ids, std::uint64_t sequence);
  // The order of this sequence fails the submission of this name.
  void on_failed(const std::string& name, std::uint64_t sequence) { failed_by_[name] = sequence; }

  // The members reported an id that the cache does not have. They report the request again, in full, when
  // they have applied the order that evicted the id.
  void on_evicted_id(std::span<const int> members, wire::CacheId id);
  // Returns false while the member has to report such requests again. A join or a removal waits for them.
  [[nodiscard]] bool heard_all(int member) const {
    return newest_[index(member)] >= unheard_until_[index(member)];
  }
  // Returns true if a report of this name by this member belongs to a submission that has failed already.
  [[nodiscard]] bool already_failed(const std::string& name, int member) const;
  [[nodiscard]] bool any_failed() const { return !failed_by_.empty(); }
  // Forgets the orders that all members have applied.
  void forget();

 private:
  static std::size_t index(int member) { return static_cast<std::size_t>(member); }

  std::vector<std::uint64_t> newest_;         // one for each member
  std::vector<std::uint64_t> unheard_until_;  // one for each member
  std::unordered_map<wire::CacheId, std::uint64_t>
      evicted_by_;                                            // kept until all members have applied the order
  std::unordered_map<std::string, std::uint64_t> failed_by_;  // likewise
};

}  // namespace roundelay::negotiate
