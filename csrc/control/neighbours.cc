#include "control/neighbours.h"

#include <algorithm>

#include "platform/process.h"

namespace roundelay::control {

std::vector<std::string> Neighbours::look(const Group& group) {
  std::vector<std::string> lines;
  bool first_that_runs = true;
  for (Neighbour& one : all_) {
    if (!std::binary_search(group.ranks.begin(), group.ranks.end(), one.rank)) continue;
    const bool stopped = platform::activity_of(one.process) == platform::Activity::kStopped;
    if (!stopped && one.rank < group.world_rank()) first_that_runs = false;
    if (stopped && !one.stopped) {
      lines.push_back("rank " + std::to_string(one.rank) + ", which other ranks wait for, " +
                      "is stopped: its process " + std::to_string(one.process) +
                      " got SIGSTOP or Ctrl-Z, or a debugger holds it; kill -CONT " +
                      std::to_string(one.process) + " lets it go on");
    }
    one.stopped = stopped;
  }
  if (!first_that_runs) lines.clear();
  return lines;
}

std::string Neighbours::account(int rank) const {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [rank](const Neighbour& one) { return one.rank == rank; });
  if (found == all_.end()) return {};
  return platform::describe_process(found->process);
}

bool NeighbourWatch::check(bool waiting, TimePoint now) {
  const bool look = waiting && due_.passed(now);
  if (!waiting) {
    due_ = Deadline::never();
  } else if (look || due_ == Deadline::never()) {
    due_ = Deadline::at(now + kPeriod);
  }
  return look;
}

}  // namespace roundelay::control
