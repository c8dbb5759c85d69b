// Queues a lane's orders between its coordinator and the members. An order that needs tickets waits for them
// to come from rank 0; the orders after it wait too. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "wire/messages.h"

namespace roundelay::negotiate {

class OrderQueue {
 public:
  // Adds the coordinator's next order.
  void push(wire::Order order) { orders_.push_back(std::move(order)); }
  // Returns the next request for tickets to send to rank 0; each once, in sequence.
  std::optional<wire::TicketRequest> take_request();
  // Gives the order of this sequence its tickets. False if no order has asked for them.
  [[nodiscard]] bool grant(std::uint64_t sequence, wire::Tickets tickets);
  // Rank 0 gives no more tickets. The first order that needs some becomes the lane's last: it says that rank
  // 0 has left. The orders after it are dropped.
  void refuse();
  // Returns the next order that may go to the members. Nothing: there is none, or it waits for tickets.
  std::optional<wire::Order> pop();
  // Returns true if an order is in the queue.
  [[nodiscard]] bool waiting() const { return !orders_.empty(); }

 private:
  [[nodiscard]] static bool waits(const wire::Order& order) {
    return order.tickets && order.tickets->tickets.first == 0;
  }

  std::deque<wire::Order> orders_;
  std::uint64_t asked_ = 0;  // tickets were requested for orders up to this sequence
};

}  // namespace roundelay::negotiate
