// A time limit for MPI calls, which cannot be cancelled: prints one line and ends the process.
#pragma once

#include <string>
#include <thread>

#include "base/annotations.h"
#include "base/clock.h"

namespace roundelay::mpi {

// Guards the calls between its construction and its destruction. Owns a thread that waits for the deadline.
class TimeLimit {
 public:
  // `what` names the calls in the line: "MPI_Init". The line also names this rank.
  TimeLimit(std::string what, Deadline deadline);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  void watch() EXCLUDES(mutex_);

  const std::string what_;
  const TimePoint begin_;
  const Deadline deadline_;
  Mutex mutex_;
  CondVar over_changed_;
  bool over_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace roundelay::mpi
