// Tries every order in which the steps of a few members may come.
//
// A step is one access to a shared word, with all that the member does between its access before and this
// one. Members run on stacks of their own, in one thread. An order is replayed from the start up to where it
// differs from the last one (stateless search); a state that was there before is not gone through again. What
// makes two states equal: all bytes that members share or write, and of each member the way that it came. Of
// its way a look counts without the value that it found, but for the last one: a wait that is over is over,
// whatever the word was. So code under test keeps no word that it has waited for beyond its next access.
//
// The order of memory is sequentially consistent here: what weaker orders would allow is left to TSan and the
// random schedules of the contract tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace roundelay::explore {

class Scene {
 public:
  virtual ~Scene() = default;
  [[nodiscard]] virtual int members() const = 0;
  // All that members share or write, but for their stacks: as it was before anybody began.
  virtual void reset() = 0;
  [[nodiscard]] virtual std::vector<ConstByteSpan> memory() const = 0;
  // One member's whole part, the same in every run.
  virtual void run(int member) = 0;
};

struct Report {
  std::uint64_t states = 0, runs = 0;
  double orders = 0;      // of steps, from the start to an end
  std::string complaint;  // of the first order that went wrong, with the order; empty: none did
};

Report explore(Scene& scene);

}  // namespace roundelay::explore
