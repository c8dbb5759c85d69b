// Numbered places of transfers in progress: what Transport's tickets are. Each is used again, with its
// memory.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "collective/transport.h"

namespace roundelay::collective {

// One thread at a time. A slot stays where it is.
template <typename Slot>
class Slots {
 public:
  // A slot as its last user left it.
  Ticket take() {
    if (free_.empty()) {
      slots_.emplace_back();
      return static_cast<Ticket>(slots_.size() - 1);
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    return ticket;
  }
  void give_back(Ticket ticket) { free_.push_back(ticket); }
  [[nodiscard]] bool all_free() const { return free_.size() == slots_.size(); }

  Slot& operator[](Ticket ticket) { return slots_[ticket]; }
  // All that there are, free ones too.
  [[nodiscard]] auto begin() const { return slots_.begin(); }
  [[nodiscard]] auto end() const { return slots_.end(); }

 private:
  std::deque<Slot> slots_;
  std::vector<Ticket> free_;
};

}  // namespace roundelay::collective
