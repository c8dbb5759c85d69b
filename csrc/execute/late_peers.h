// Watches for whom a call of its own waits (collective/whole_call.h): no report tells of ranks that have not
// come to it.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "execute/batch.h"

namespace roundelay::execute {

class LatePeers {
 public:
  // `warn_after`: the log says once that a call takes so long; 0: never.
  explicit LatePeers(Duration warn_after) : warn_after_(warn_after) {}

  // Notes that a rank makes no more calls: those that wait for it, wait in vain. Any thread.
  void note_left(int rank);
  // Returns that rank, when all that it sent before must have come; -1: there is none. Any thread.
  [[nodiscard]] int left_rank() const;

  // Looks at a batch that is carried out and has not moved. Does nothing if it has no call of its own.
  // Errors: kAborted (it waits for the rank that has left). The holder of the lane's token calls it.
  Status look(Batch& batch) const;
  // Returns the text of a batch whose call is past its deadline. `rank`: this one.
  [[nodiscard]] static std::string past_its_time(const Batch& batch, int rank);

 private:
  const Duration warn_after_;
  std::atomic<int> left_{-1};
  std::atomic<TimePoint> left_at_{TimePoint{}};
};

}  // namespace roundelay::execute
