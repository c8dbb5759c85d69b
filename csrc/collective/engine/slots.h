// Numbered places for transfers in progress. A Transport's ids are such numbers. A free slot is used
// again, with the memory that it has.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "collective/program/transport.h"

namespace roundelay::collective {

// One thread at a time. A slot's address does not change.
template <typename Slot>
class Slots {
 public:
  // Returns a free slot, in the state in which its last user left it.
  TransferId acquire() {
    if (free_.empty()) {
      slots_.emplace_back();
      return static_cast<TransferId>(slots_.size() - 1);
    }
    const TransferId id = free_.back();
    free_.pop_back();
    return id;
  }
  void release(TransferId id) { free_.push_back(id); }
  [[nodiscard]] bool all_free() const { return free_.size() == slots_.size(); }

  Slot& operator[](TransferId id) { return slots_[id]; }
  // Iterate over all slots, free ones too.
  [[nodiscard]] auto begin() const { return slots_.begin(); }
  [[nodiscard]] auto end() const { return slots_.end(); }

 private:
  std::deque<Slot> slots_;
  std::vector<TransferId> free_;
};

}  // namespace roundelay::collective
