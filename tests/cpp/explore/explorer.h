// Tries every order in which the steps of a few members may come.
//
// A step is one access to a shared word, with all that the member does between its last access and this one.
// Members run on stacks of their own, in one thread. The search replays an order from the start up to the
// point at which it differs from the last one. It does not continue from a state that it has seen before.
//
// Two states are equal if all bytes that members share or write are equal, and if each member has read the
// same words in the same sequence. The comparison uses the last value that a member has read, and the values
// that it has stored. A value that only ended a wait makes no difference later: code under test must not use
// such a value after its next access.
//
// Memory is sequentially consistent here. TSan and the random schedules of the contract tests look for what
// weaker orders allow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace roundelay::explore {

// A member dies in place of its write number `writes` to a shared word, from 0. A member that dies between
// two writes looks the same to the others. Its words stay as they are.
struct Death {
  int member = 0;
  std::uint64_t writes = 0;
};

// A program to explore.
class Scene {
 public:
  virtual ~Scene() = default;
  [[nodiscard]] virtual int members() const = 0;
  // Sets memory() to its state at the start.
  virtual void reset() = 0;
  // All that members share or write, except their stacks.
  [[nodiscard]] virtual std::vector<ConstByteSpan> memory() const = 0;
  // Where a member dies in every order. The others may then wait for ever.
  [[nodiscard]] virtual std::optional<Death> death() const { return std::nullopt; }
  // Runs one member's whole part, the same in every run.
  virtual void run(int member) = 0;
};

struct Report {
  std::uint64_t states = 0, runs = 0;
  std::uint64_t left_waiting = 0;  // ends in which the members that live wait for the dead one
  double orders = 0;               // how many orders of steps lead from the start to an end
  std::string complaint;           // the first fault, with the order that led to it; empty: there is none
};

// Tries all orders, or all up to the first fault.
Report explore(Scene& scene);

}  // namespace roundelay::explore
