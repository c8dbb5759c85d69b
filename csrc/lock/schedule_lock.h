// A rank's side of a locked schedule: a fixed sequence of operations that the ranks of a group run again and
// again without negotiation. Pure.
//
// The schedule repeats its period without end; a position is an index in this endless sequence. A submission
// belongs to the next position that has its name. A rank announces a position when all tensors of its
// operation are submitted here and the position before is announced. It enters a position (starts the
// operation there), in order, when all ranks have announced it. After freeze() it announces no more, so that
// all ranks can agree on the position where the schedule ends.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "lock/locked_agreement.h"
#include "wire/submission.h"

namespace roundelay::lock {

class ScheduleLock {
 public:
  // The requests of each operation of the period, in buffer order. An operation has a name at most once. An
  // agreement is an operation of its own, and has its last result as values.
  using Operations = std::vector<std::vector<wire::Submission>>;
  using Names = std::vector<std::string>;
  // A submission that is not entered after this time freezes the schedule. Negotiation then tells which rank
  // is late.
  static constexpr Duration kFreezeTimeout = std::chrono::seconds(1);

  // Begins schedule `number` at position 0.
  void begin(std::uint64_t number, const Operations& operations);
  // Returns true from begin() to end().
  [[nodiscard]] bool active() const { return !operations_.empty(); }
  // Returns true while active and not frozen.
  [[nodiscard]] bool open() const { return active() && !frozen_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }

  // Files a submission. True: it is part of the schedule. False: the caller negotiates it when the schedule
  // is over. A submission that does not fit freezes an open schedule, so that submissions stay in order.
  // `values`: an agreement's. The caller shows its cell before it announces what file() has.
  bool file(const wire::Request& request, std::string_view values = {});
  void freeze() { frozen_ = active(); }
  // Returns whether a submission of `name` is filed and not entered.
  [[nodiscard]] bool filed(const std::string& name) const;
  // Returns whether the filed submission of `name` comes after an operation that is not wholly submitted
  // here.
  [[nodiscard]] bool blocked(const std::string& name) const;
  [[nodiscard]] bool any_blocked() const { return blocked_ > 0; }

  // The number of positions that this rank has announced, and entered.
  [[nodiscard]] std::uint64_t announced() const { return announced_; }
  [[nodiscard]] std::uint64_t entered() const { return entered_; }
  // Returns whether this rank may enter its next position. `least`: the number of positions that all ranks
  // have announced (Announcements::least()).
  [[nodiscard]] bool may_enter(std::uint64_t least) const;
  // Enters the next position and returns the names of its operation. Nothing: may_enter() is false.
  std::optional<Names> enter(std::uint64_t least);

  // Returns the agreement of this name, which lives until end(). Null: the schedule has none. The caller lets
  // it enter when the schedule has entered its position.
  [[nodiscard]] LockedAgreement* agreement(const std::string& name);

  // Freezes the schedule if a filed submission has waited for kFreezeTimeout. Returns when to call again.
  // Never: after the next file().
  Deadline look(TimePoint now);
  // Ends the schedule. Returns the submissions that were filed and not entered, by position. The caller
  // negotiates them.
  std::vector<wire::Submission> end();

  friend bool operator==(const ScheduleLock&, const ScheduleLock&) = default;

 private:
  struct Name {
    wire::Request request;
    std::vector<std::uint64_t> places;  // positions in the first period, ascending
    std::uint64_t submissions = 0;      // submissions filed since begin()
    std::optional<LockedAgreement> agreement{};
    friend bool operator==(const Name&, const Name&) = default;
  };

  // Returns the position of submission number `submission` (from 0).
  [[nodiscard]] std::uint64_t position_of(const Name& name, std::uint64_t submission) const;
  [[nodiscard]] const Names& at(std::uint64_t position) const;
  // Returns the position of the name's last submission. Nothing: it was entered, or there was none.
  [[nodiscard]] std::optional<std::uint64_t> waits_at(const Name& name) const;

  std::uint64_t number_ = 0;
  std::vector<Names> operations_;  // one period; empty: no schedule
  std::unordered_map<std::string, Name> names_;
  bool frozen_ = false;
  std::uint64_t announced_ = 0;
  std::uint64_t entered_ = 0;
  std::deque<std::size_t> unannounced_;  // number of submissions filed at each position from announced_ on
  std::size_t blocked_ = 0;              // sum of unannounced_
  std::uint64_t entered_at_look_ = UINT64_MAX;  // entered_ at the last look()
  std::optional<TimePoint> waits_since_;  // the first look() that saw a submission wait at this position
};

}  // namespace roundelay::lock
