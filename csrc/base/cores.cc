#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace roundelay {
namespace {

// Returns the number of cores that a process may use; 0 if it is unknown.
int cores_of(pid_t process) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(process, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

// Process 1 usually has all cores of its machine or container. std::thread::hardware_concurrency() also
// counts those that a container may not use, or with glibc 2.34 only those to which this process is bound.
int count_cores() {
  if (const int known = std::max(cores_of(1), cores_of(0)); known > 0) return known;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

bool outnumber_cores(int ranks) { return ranks > count_cores(); }

}  // namespace roundelay
