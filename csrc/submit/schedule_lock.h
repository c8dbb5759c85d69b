// A rank's side of a locked schedule. Pure: uses in, positions out.
//
// The schedule is endless: its period again and again. A use belongs to the next position that has its name.
// A position is announced when all its members are submitted here and the one before it is announced; it is
// entered, in order, when all ranks have announced it. From freeze() on nothing more is announced, so that
// all ranks can agree on the position where the lock ends.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "wire/messages.h"

namespace roundelay::submit {

class ScheduleLock {
 public:
  // The members' requests by position, in buffer order. A name is in an operation once.
  using Operations = std::vector<std::vector<wire::Request>>;
  using Names = std::vector<std::string>;
  // What is submitted but not entered for so long makes a surprise: who is late is for negotiation to tell.
  static constexpr Duration kPatience = std::chrono::seconds(1);

  void begin(std::uint64_t number, const Operations& operations);
  [[nodiscard]] bool active() const { return !operations_.empty(); }
  [[nodiscard]] bool open() const { return active() && !frozen_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }

  // True: the use is part of the schedule. False: it is negotiated when the lock is over; a lock that was
  // open is frozen from here, so that uses stay in order.
  bool file(const wire::Request& request);
  void freeze() { frozen_ = active(); }
  [[nodiscard]] bool filed(const std::string& name) const;
  // Whether this use, which was filed, is behind one that is not submitted here.
  [[nodiscard]] bool blocked(const std::string& name) const;
  [[nodiscard]] bool any_blocked() const { return blocked_ > 0; }

  [[nodiscard]] std::uint64_t announced() const { return announced_; }
  [[nodiscard]] std::uint64_t entered() const { return entered_; }
  // The next operation, if all ranks have announced it; `least`: how many positions they all have.
  [[nodiscard]] bool may_enter(std::uint64_t least) const;
  std::optional<Names> enter(std::uint64_t least);

  // Freezes what has waited too long. Returns when to look again; never: when something was submitted.
  Deadline look(TimePoint now);
  // The lock is over: the uses that were not entered, to be negotiated.
  std::vector<wire::Request> end();

  friend bool operator==(const ScheduleLock&, const ScheduleLock&) = default;

 private:
  struct Name {
    wire::Request request;
    std::vector<std::uint64_t> places;  // in the period, ascending
    std::uint64_t uses = 0;             // filed under this lock
    friend bool operator==(const Name&, const Name&) = default;
  };

  [[nodiscard]] std::uint64_t position_of(const Name& name, std::uint64_t use) const;
  [[nodiscard]] const Names& at(std::uint64_t position) const;
  // Where its last use is to run; nothing if there was none, or it was entered.
  [[nodiscard]] std::optional<std::uint64_t> waits_at(const Name& name) const;

  std::uint64_t number_ = 0;
  std::vector<Names> operations_;  // one period; empty: no lock
  std::unordered_map<std::string, Name> names_;
  bool frozen_ = false;
  std::uint64_t announced_ = 0;
  std::uint64_t entered_ = 0;
  std::deque<std::size_t> ahead_;  // members filed, by position from announced_ on
  std::size_t blocked_ = 0;        // their sum
  std::uint64_t entered_at_look_ = UINT64_MAX;
  std::optional<TimePoint> waits_since_;  // as the looks saw it
};

}  // namespace roundelay::submit
