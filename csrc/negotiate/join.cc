// Members that have joined: what goes on without them, and what cannot.
#include <algorithm>
#include <utility>

#include "negotiate/coordinator.h"
#include "wire/describe.h"

namespace roundelay::negotiate {

bool Coordinator::has_joined(int member) const {
  return join_ != nullptr && join_->reported[static_cast<std::size_t>(member)];
}

std::vector<std::int32_t> Coordinator::absent_from(const Slot& slot) const {
  std::vector<std::int32_t> absent;
  if (join_ == nullptr || slot.missing == 0) return absent;
  for (int member = 0; member < group_.size(); ++member) {
    if (!slot.reported[static_cast<std::size_t>(member)] && has_joined(member)) absent.push_back(member);
  }
  return absent;
}

// Why the operation cannot go on without those who have joined; empty if it can.
std::string Coordinator::refusal_of(const Slot& slot) const {
  const wire::Request& request = slot.request;
  for (const std::int32_t member : absent_from(slot)) {
    const int rank = rank_of(member);
    const std::string who = wire::describe(request) + ": rank " + std::to_string(rank);
    switch (request.operation) {
      case Operation::kBroadcast:
        if (request.root == rank) return who + ", its root, has joined";
        break;
      case Operation::kAlltoall:
      case Operation::kReducescatter:
      case Operation::kProcessSet:
        return who + " has joined, and this operation needs every rank";
      default:
        break;
    }
  }
  return {};
}

void Coordinator::on_joined(Slots::iterator found, int member, TimePoint now) {
  Slot& join = found->second;
  join_ = &join;
  restart_join_clock(now);

  std::vector<std::pair<TimePoint, std::string>> waiting;
  for (const auto& [name, slot] : table_) {
    if (&slot != join_ && !slot.reported[static_cast<std::size_t>(member)])
      waiting.emplace_back(slot.first_seen, name);
  }
  std::sort(waiting.begin(), waiting.end());
  for (const auto& [seen, name] : waiting) settle_if_complete(table_.find(name), member, now);

  if (join.missing > 0) return;
  take_slot(found);
  joined_ = wire::Joined{rank_of(member), {unnamed_.begin(), unnamed_.end()}};
}

Status Coordinator::take_early_join(int member, TimePoint now) {
  if (!heard_all(member)) return {};
  const auto early = early_joins_.extract(member);
  return early.empty() ? Status{} : on_request(member, early.mapped(), now);
}

}  // namespace roundelay::negotiate
