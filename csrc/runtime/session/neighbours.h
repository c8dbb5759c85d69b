// The ranks of this node, whose processes the kernel shows: what one that is late does, and whether it is
// stopped, is seen without its help. One thread at a time.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/group.h"

namespace roundelay::runtime {

struct Neighbour {
  int rank = 0;  // of the world
  pid_t process = 0;
  bool stopped = false;  // when last looked at
};

class Neighbours {
 public:
  explicit Neighbours(std::vector<Neighbour> all = {}) : all_(std::move(all)) {}

  // A line for each member of the group that has been stopped since the last call. Empty on all but one of
  // the group's members on this node, the first that runs.
  std::vector<std::string> look(const Group& group);
  // What the rank does: "its process 4711 waits in the system call read"; "" where that cannot be seen.
  [[nodiscard]] std::string account(int rank) const;
  [[nodiscard]] bool empty() const { return all_.empty(); }

 private:
  std::vector<Neighbour> all_;
};

// When to look(): now and then while this rank waits for others. Pure.
class NeighbourWatch {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(2);

  bool check(bool waiting, TimePoint now);
  [[nodiscard]] Deadline next_due() const { return due_; }

 private:
  Deadline due_ = Deadline::never();
};

}  // namespace roundelay::runtime
