#include "negotiate/order_queue.h"

#include <algorithm>
#include <utility>

namespace roundelay::negotiate {

std::optional<wire::TicketRequest> OrderQueue::take_request() {
  const auto next = std::find_if(orders_.begin(), orders_.end(), [&](const wire::Order& order) {
    return waits(order) && order.sequence > asked_;
  });
  if (next == orders_.end()) return std::nullopt;
  asked_ = next->sequence;
  return wire::TicketRequest{next->lane, next->sequence,
                             static_cast<std::uint32_t>(next->tickets->operations.size())};
}

bool OrderQueue::grant(std::uint64_t sequence, wire::Tickets tickets) {
  const auto asking = std::find_if(orders_.begin(), orders_.end(), [&](const wire::Order& order) {
    return waits(order) && order.sequence == sequence && sequence <= asked_;
  });
  if (asking == orders_.end()) return false;
  asking->tickets->tickets = std::move(tickets);
  return true;
}

void OrderQueue::refuse() {
  const auto first = std::find_if(orders_.begin(), orders_.end(), waits);
  if (first == orders_.end()) return;
  wire::Order last;
  last.lane = first->lane;
  last.sequence = first->sequence;
  last.shutdown_by = 0;
  orders_.erase(first, orders_.end());
  orders_.push_back(std::move(last));
}

std::optional<wire::Order> OrderQueue::pop() {
  if (orders_.empty() || waits(orders_.front())) return std::nullopt;
  wire::Order order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

}  // namespace roundelay::negotiate
