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
#include <utility>

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
  // sleepers, and Waker::wake() does, this may be a long sleep.
  virtual Nap idle(Backoff& backoff) { return backoff.next(); }
  // Tests until done, spinning briefly, then yielding, then asleep.
  Status wait();
};

// A call that needs nobody.
std::unique_ptr<Pending> finished_call();

// Ends sleeps. Belongs to a fabric.
class Waker {
 public:
  virtual ~Waker() = default;
  // Ends a sleep in one of this member's calls. From any thread.
  virtual void wake() = 0;
};

// The calls of a fabric that are done for the host and still on their way on a device. Belongs to the fabric.
// The thread is the one that calls Fabric::start().
class DeviceCalls {
 public:
  virtual ~DeviceCalls() = default;
  // Returns what has gone wrong with them since they were done. After an error the fabric is poisoned.
  [[nodiscard]] virtual Status health() = 0;
  // Ends them: they cannot end well any more. The fabric is poisoned with `cause`, unless it was before.
  virtual void give_up(const Status& cause) = 0;
};

// What only some fabrics have. A fabric gets it when it is made and keeps it unchanged, so that its users may
// read it once. A null pointer, or false, says that the fabric does not have it.
struct FabricCapabilities {
  bool scattered = false;         // takes AllreduceCall::scattered; the same on all members
  Waker* waker = nullptr;         // lives as long as the fabric
  DeviceCalls* device = nullptr;  // lives as long as the fabric
  // Makes regions for buffers that the group's calls work on. May outlive the fabric. From any thread.
  RegionMaker make_region = make_private_region;
  // Shows members at once what the others announce. May outlive the fabric.
  std::shared_ptr<Announcements> announcements{};
  // Counts this member's work. May outlive the fabric.
  std::shared_ptr<const FabricWork> work{};
};

class Fabric {
 public:
  virtual ~Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual const Group& group() const = 0;
  // Starts a call, which is copied. A few calls may be in progress at once; they may end in any order.
  // Errors: kInvalidArgument where the call makes no sense, which leaves the fabric as it was; the first
  // cause where the fabric is poisoned; the abort word's cause.
  virtual Result<std::unique_ptr<Pending>> start(const Call& call) = 0;
  // False if only the lane's background thread may call into this fabric (MPI below THREAD_MULTIPLE).
  [[nodiscard]] virtual bool any_thread() const = 0;
  // True after an error: the medium may write to the buffers of unfinished calls for ever.
  [[nodiscard]] virtual bool poisoned() const = 0;
  [[nodiscard]] const FabricCapabilities& capabilities() const { return capabilities_; }

 protected:
  explicit Fabric(FabricCapabilities capabilities = {}) : capabilities_(std::move(capabilities)) {}

 private:
  const FabricCapabilities capabilities_;
};

}  // namespace roundelay::collective
