// Watches the ranks of this node. The kernel shows what their processes do and whether they are stopped,
// without their help.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/group.h"

namespace roundelay::control {

struct Neighbour {
  int rank = 0;  // its number in the world
  pid_t process = 0;
  bool stopped = false;  // the last look() has seen it stopped by a signal or a debugger
};

// One thread at a time may use it.
class Neighbours {
 public:
  explicit Neighbours(std::vector<Neighbour> all = {}) : all_(std::move(all)) {}

  // Returns a warning for each member of the group that has been stopped since the last call. Only the first
  // member on this node that runs gets warnings; others get none.
  std::vector<std::string> look(const Group& group);
  // Returns what the rank does: "its process 4711 waits in the system call read". Empty if the rank is not on
  // this node or its process is unknown.
  [[nodiscard]] std::string account(int rank) const;
  [[nodiscard]] bool empty() const { return all_.empty(); }

 private:
  std::vector<Neighbour> all_;
};

// Says when to call Neighbours::look(): every 2 seconds while this rank waits for others. Pure.
class NeighbourWatch {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(2);

  // Returns true if look() is due. `waiting`: this rank waits for others.
  bool check(bool waiting, TimePoint now);
  // Returns the time at which check() may return true next, if this rank still waits then.
  [[nodiscard]] Deadline next_due() const { return due_; }

 private:
  Deadline due_ = Deadline::never();
};

}  // namespace roundelay::control
