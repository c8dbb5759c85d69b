#include "platform/mpi/time_limit.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace roundelay::mpi {
namespace {

// Returns this rank's name. MPI cannot be called while it hangs, so it uses the launcher's variables.
std::string who() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  std::string text = "process " + std::to_string(getpid()) + " on " + host.data();
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(variable)) return std::string("rank ") + rank + " (" + text + ")";
  }
  return text;
}

}  // namespace

TimeLimit::TimeLimit(std::string what, Deadline deadline)
    : what_(std::move(what)), begin_(steady_now()), deadline_(deadline), thread_([this] { watch(); }) {}

TimeLimit::~TimeLimit() {
  {
    MutexLock lock(mutex_);
    over_ = true;
  }
  over_changed_.notify_all();
  thread_.join();
}

void TimeLimit::watch() {
  MutexLock lock(mutex_);
  while (!over_) {
    if (deadline_.passed()) {
      std::fprintf(stderr,
                   "roundelay: %s waited %s in %s for the other ranks, which did not come; ends now\n",
                   who().c_str(), seconds_text(steady_now() - begin_).c_str(), what_.c_str());
      _exit(EXIT_FAILURE);
    }
    over_changed_.wait_until(mutex_, deadline_);
  }
}

}  // namespace roundelay::mpi
