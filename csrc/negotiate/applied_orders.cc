#include "negotiate/applied_orders.h"

#include <algorithm>

namespace roundelay::negotiate {

void AppliedOrders::on_report(std::span<const int> members, std::uint64_t last_order) {
  for (const int member : members) newest_[index(member)] = last_order;
}

void AppliedOrders::on_evicted(const std::vector<wire::CacheId>& ids, std::uint64_t sequence) {
  for (const wire::CacheId id : ids) evicted_by_.emplace(id, sequence);
}

void AppliedOrders::on_evicted_id(std::span<const int> members, wire::CacheId id) {
  const auto evicted = evicted_by_.find(id);
  if (evicted == evicted_by_.end()) return;
  for (const int member : members) {
    std::uint64_t& until = unheard_until_[index(member)];
    until = std::max(until, evicted->second);
  }
}

bool AppliedOrders::already_failed(const std::string& name, int member) const {
  const auto found = failed_by_.find(name);
  return found != failed_by_.end() && newest_[index(member)] < found->second;
}

void AppliedOrders::forget() {
  if (failed_by_.empty() && evicted_by_.empty()) return;
  const std::uint64_t everyone = *std::min_element(newest_.begin(), newest_.end());
  const auto applied = [&](const auto& entry) { return entry.second <= everyone; };
  std::erase_if(failed_by_, applied);
  std::erase_if(evicted_by_, applied);
}

}  // namespace roundelay::negotiate
