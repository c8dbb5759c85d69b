// A lane's orders on their way from the coordinator to the members: one that takes a turn waits for its
// tickets, and those behind it wait too. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "wire/messages.h"

namespace roundelay::negotiate {

class OrderQueue {
 public:
  void push(wire::Order order) { orders_.push_back(std::move(order)); }
  // What rank 0 is to be asked: each once, in sequence.
  std::optional<wire::TicketRequest> take_request();
  // False: no order asks for that.
  [[nodiscard]] bool grant(std::uint64_t sequence, wire::Tickets tickets);
  // There will be no more tickets: the first that needs some becomes the lane's last, and says that rank 0
  // has left.
  void refuse();
  // The next that may go.
  std::optional<wire::Order> take();
  [[nodiscard]] bool waiting() const { return !orders_.empty(); }

 private:
  [[nodiscard]] static bool waits(const wire::Order& order) {
    return order.tickets && order.tickets->tickets.first == 0;
  }

  std::deque<wire::Order> orders_;
  std::uint64_t asked_ = 0;  // up to this sequence
};

}  // namespace roundelay::negotiate
