// For calls into MPI that cannot be cancelled: ends the process, with one line, when one takes too long.
#pragma once

#include <string>
#include <thread>

#include "base/annotations.h"
#include "base/clock.h"

namespace roundelay::mpi {

// From construction to destruction is the guarded stretch.
class Watchdog {
 public:
  // `what`: "MPI_Init" ...; the line names this process too.
  Watchdog(std::string what, Deadline deadline);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

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
