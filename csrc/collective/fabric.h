// The data plane: a group of ranks with one way to move bytes.
//
// Contract of every fabric: all members start the same calls in the same order; results are bit-equal on all
// members; a call ends by its deadline or when the abort word is raised. After an error the fabric is
// poisoned: later calls fail with the first cause, and buffers of unfinished calls may still be written by
// the medium, so the caller must leak them (Fabric::poisoned()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/announcements.h"
#include "base/group.h"
#include "base/region.h"
#include "base/status.h"
#include "collective/backoff.h"
#include "collective/call.h"

namespace roundelay::collective {

// What a member has done, for a test to bound: relaxed, one writer at a time.
struct FabricWork {
  std::atomic<std::int64_t> bytes_staged{0};  // copied to where only a fabric's members read them
  std::atomic<std::int64_t> sleeps{0}, wakes{0};

  static void add(std::atomic<std::int64_t>& counter, std::size_t n = 1) {
    const std::int64_t now = counter.load(std::memory_order_relaxed);
    counter.store(now + static_cast<std::int64_t>(n), std::memory_order_relaxed);
  }
};

// A call in progress. One thread at a time.
class Pending {
 public:
  virtual ~Pending() = default;
  // Moves the call on without blocking. True: the result is in place and no peer reads this rank's part any
  // more.
  virtual Result<bool> test() = 0;
  // The member of the group this call is waiting for now, -1 if none: names the culprit at a missed deadline.
  [[nodiscard]] virtual int waiting_for() const { return -1; }
  // True where ranks outnumber cores: spinning would take the core that a peer needs.
  [[nodiscard]] virtual bool crowded() const { return false; }
  // After a test() that said no: how to pass the time until another one makes sense. Where the medium wakes
  // sleepers, and Fabric::wake() does, this may be a long sleep.
  virtual Nap idle(Backoff& backoff) { return backoff.next(); }
  // Tests until done, spinning briefly, then yielding, then asleep.
  Status wait();
};

// A call that needs nobody.
std::unique_ptr<Pending> finished_call();

class Fabric {
 public:
  virtual ~Fabric() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual const Group& group() const = 0;
  // At most a few calls may be in progress at once; they may finish in any order.
  virtual Result<std::unique_ptr<Pending>> start(const Call& call) = 0;
  // False if only the lane's background thread may call into this fabric (MPI below THREAD_MULTIPLE).
  [[nodiscard]] virtual bool any_thread() const = 0;
  [[nodiscard]] virtual bool poisoned() const = 0;
  // Whether allreduces may be Call::scattered: the same on all members.
  [[nodiscard]] virtual bool takes_scattered() const { return false; }
  // What went wrong since, where calls that are done are still on their way (on a device). The thread as
  // start()'s.
  [[nodiscard]] virtual Status health() { return {}; }
  // Ends what is on its way: it can come to no good end any more. The fabric is poisoned with `cause`, if it
  // was not before. The thread as start()'s.
  virtual void give_up(const Status& cause) { static_cast<void>(cause); }
  // Ends a sleep in one of this member's calls. From any thread.
  virtual void wake() {}
  // Where members see at once what the others announce; null: nowhere. May outlive the fabric.
  [[nodiscard]] virtual std::shared_ptr<Announcements> announcements() const { return nullptr; }
  // For buffers that the group's calls work on. From any thread; the maker may outlive the fabric.
  [[nodiscard]] virtual RegionMaker region_maker() const { return make_private_region; }
  // Of this member; null where nobody counts. May outlive the fabric.
  [[nodiscard]] virtual std::shared_ptr<const FabricWork> work() const { return nullptr; }
};

}  // namespace roundelay::collective
