// The one owner of MPI in a process: starts it (or joins who started it), knows what it allows, ends it.
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

// The ranks of one init: all of MPI's world, or some of them in this order, or a communicator of the user's.
struct Members {
  std::vector<int> ranks{};           // of the world; empty: all
  std::optional<int> communicator{};  // by its Fortran handle

  bool operator==(const Members&) const = default;
};

// "Open MPI v5.0.11"; may be asked before MPI is started.
std::string library_version();

// Thread-safe where MPI is (any_thread()).
class Session {
 public:
  // Starts MPI at the first call, collectively over all that the launcher started. An MPI that someone else
  // started (mpi4py) is joined and never finalised. Collective over the members, where they are not those of
  // the last call; from then on ranks are counted among them. No communicator of an earlier call may be in
  // use. Errors: kUnavailable, one line with cause and cure, also after poison(); kInvalidArgument (members).
  // A start that hangs ends the process at the deadline: MPI_Init cannot be cancelled.
  static Result<Session*> open(const Environment& environment, const Members& members, Deadline deadline);
  // Null before a successful open().
  static Session* current();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool any_thread() const { return thread_level_ == MPI_THREAD_MULTIPLE; }
  // The ranks on this machine outnumber the cores this process may use.
  [[nodiscard]] bool crowded() const { return crowded_; }
  // "Open MPI v5.0.11, MPI_THREAD_MULTIPLE".
  [[nodiscard]] std::string description() const;

  // A communicator of its own for `group`, errors returned. Collective over the group, in the same order on
  // all members. The world's is made without blocking; a smaller group's creation that hangs ends the
  // process.
  Result<MPI_Comm> communicator(const Group& group, Deadline deadline);
  // Only for communicators without outstanding transfers.
  void release(MPI_Comm communicator);

  // MPI must not be finalised any more: transfers are out that nobody will finish.
  void poison(const std::string& why) EXCLUDES(mutex_);
  // kUnavailable after poison() and after anyone's MPI_Finalize.
  [[nodiscard]] Status usable() const EXCLUDES(mutex_);
  [[nodiscard]] bool finalized() const { return finalized_; }

 private:
  Session() = default;
  Status start(const Environment& environment, Deadline deadline);
  Status ask(const Environment& environment);
  Status enter(const Members& members, Deadline deadline);
  Result<MPI_Comm> members_of_world(const std::vector<int>& ranks) const;
  Result<MPI_Comm> members_of(int communicator, Deadline deadline);
  void count_cores();
  Result<MPI_Comm> duplicate(MPI_Comm parent, Deadline deadline);
  static void finalize_at_exit(int exit_code);
  static int on_finalize(MPI_Comm communicator, int key, void* attribute, void* extra);

  int rank_ = 0;
  int size_ = 1;
  int thread_level_ = MPI_THREAD_SINGLE;
  bool crowded_ = false;
  bool ours_ = false;  // we called MPI_Init_thread
  std::string library_;
  Members members_;
  MPI_Comm base_ = MPI_COMM_NULL;  // of the members; it only creates others
  std::atomic<bool> finalized_{false};
  std::atomic<bool> poisoned_{false};
  mutable Mutex mutex_;
  std::string poison_ GUARDED_BY(mutex_);
};

// OK, or kAborted: "MPI_Isend: ..." with MPI's own text.
Status check(int code, const char* call);

}  // namespace roundelay::mpi
