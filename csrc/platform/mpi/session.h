// Owns MPI in this process: starts it (or joins an MPI that other code started), knows its limits, ends it.
#pragma once

#include <mpi.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/group.h"
#include "base/status.h"

namespace roundelay::mpi {

// The ranks of one init: all ranks of MPI_COMM_WORLD, a list of them in this order, or a user's communicator.
struct Members {
  std::vector<int> ranks{};           // ranks of MPI_COMM_WORLD; empty: all
  std::optional<int> communicator{};  // the Fortran handle of a communicator

  bool operator==(const Members&) const = default;
};

// Returns "Open MPI v5.0.11". May be called before MPI is started.
std::string library_version();

// Any thread may call it if any_thread(); otherwise one thread at a time. A process has one.
class Session {
 public:
  // Starts MPI at the first call, collectively over all ranks that the launcher started. Joins an MPI that
  // other code (mpi4py) started, and never finalises that one. If `members` differ from those of the last
  // call, the call is collective over them, and ranks are numbered among them from then on; no communicator
  // of an earlier call may still be in use. Errors: kUnavailable with cause and cure, also after poison();
  // kInvalidArgument (members). If the start hangs until the deadline, ends the process: MPI_Init cannot be
  // cancelled.
  static Result<Session*> open(const Environment& environment, const Members& members, Deadline deadline);
  // Returns the session; null before the first open() that succeeds.
  static Session* current();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool any_thread() const { return thread_level_ == MPI_THREAD_MULTIPLE; }
  // Returns whether this machine has more ranks than cores (base/cores.h).
  [[nodiscard]] bool crowded() const { return crowded_; }
  // Returns "Open MPI v5.0.11, MPI_THREAD_MULTIPLE".
  [[nodiscard]] std::string description() const;

  // Makes a new communicator for `group` that returns errors. Collective over the group; all members make
  // their communicators in the same order. For all ranks it does not block inside MPI and gives up at the
  // deadline; for a smaller group, if it hangs until then, it ends the process. Errors: kAborted,
  // kUnavailable.
  Result<MPI_Comm> communicator(const Group& group, Deadline deadline);
  // Frees a communicator that has no transfers in progress. Does nothing if usable() is not OK.
  void release(MPI_Comm communicator);

  // Forbids MPI_Finalize and new communicators, because some transfers will never finish. The control plane
  // may still use MPI to report the fault. Any thread may call it; the first reason stays.
  void poison(const std::string& why) EXCLUDES(mutex_);
  // Returns kUnavailable after poison() and after anyone's MPI_Finalize, otherwise OK.
  [[nodiscard]] Status usable() const EXCLUDES(mutex_);
  [[nodiscard]] bool finalized() const { return finalized_; }

 private:
  Session() = default;
  Status start(const Environment& environment, Deadline deadline);
  Status ask(const Environment& environment);
  Status enter(const Members& members, Deadline deadline);
  Result<MPI_Comm> members_of_world(const std::vector<int>& ranks) const;
  Result<MPI_Comm> members_of(int communicator, Deadline deadline);
  void count_ranks_of_node();
  Result<MPI_Comm> duplicate(MPI_Comm parent, Deadline deadline);
  static void finalize_at_exit(int exit_code);
  static int on_finalize(MPI_Comm communicator, int key, void* attribute, void* extra);

  int rank_ = 0;
  int size_ = 1;
  int thread_level_ = MPI_THREAD_SINGLE;
  bool crowded_ = false;
  bool ours_ = false;  // this class called MPI_Init_thread
  std::string library_;
  Members members_;
  MPI_Comm base_ = MPI_COMM_NULL;  // the members' communicator; only used to make others
  std::atomic<bool> finalized_{false};
  std::atomic<bool> poisoned_{false};
  mutable Mutex mutex_;
  std::string poison_ GUARDED_BY(mutex_);
};

// Returns OK, or kAborted with MPI's own text: "MPI_Isend: ...".
Status check(int code, const char* call);

}  // namespace roundelay::mpi
