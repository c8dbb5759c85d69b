// What this process and this thread have used of the machine. Tests count it where a clock would depend on
// the load.
#pragma once

#include <sys/resource.h>

namespace roundelay::testing {

// Returns the process's CPU time, the system's part included.
inline double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Returns how often the calling thread has slept.
inline long sleeps_so_far() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

}  // namespace roundelay::testing
