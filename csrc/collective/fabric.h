// The data plane's interface: a fabric moves bytes between the members of a group.
//
// Contract of every fabric:
// - All members start the same calls in the same order. Results have the same bits on all members.
// - One thread at a time calls start() and the functions of a PendingCall.
// - The caller owns a call's memory. It neither frees nor writes it until a test() says true.
// - A call ends by its deadline, and when its abort token (base/abort.h) is raised.
// - After an error, or when a PendingCall is destroyed before its end, the fabric is poisoned: all other
//   calls fail with the first cause. The medium may still write to the buffers of unfinished calls, so that
//   the caller must leak them (Fabric::poisoned()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/backoff.h"
#include "base/group.h"
#include "base/region.h"
#include "base/status.h"
#include "collective/call.h"
#include "lock/announcements.h"

namespace roundelay::collective {

// Counts the work of one member, for stats() and for tests. One thread at a time writes, any
// thread reads; relaxed.
struct FabricCounters {
  std::atomic<std::int64_t> bytes_staged{0};  // copied into the fabric's own memory for the peers
  std::atomic<std::int64_t> sleeps{0};        // sleeps of this member's threads in calls
  std::atomic<std::int64_t> wakes{0};         // wake-ups of sleeping peers
  // Kernels that added up parts from several members, and the bytes of their results.
  std::atomic<std::int64_t> gpu_sums{0}, gpu_sum_bytes{0};

  static void add(std::atomic<std::int64_t>& counter, std::size_t n = 1) {
    const std::int64_t now = counter.load(std::memory_order_relaxed);
    counter.store(now + static_cast<std::int64_t>(n), std::memory_order_relaxed);
  }
};

// A call in progress. It keeps what it works on, so it may outlive the fabric. One that is dropped before its
// end poisons the fabric, because the peers wait for this member's part.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  // Moves the call on without blocking. True: the result is in place, and no peer reads this member's
  // part any more. An error is the fabric's first cause.
  virtual Result<bool> test() = 0;
  // Returns the group's index of the member that the call waits for now, or -1. It names the culprit of a
  // missed deadline.
  [[nodiscard]] virtual int waiting_for() const { return -1; }
  // Returns the name of the algorithm, or plan, that carries out the call, for the timeline and the log. ""
  // if the fabric has only one way. The text lives as long as the fabric.
  [[nodiscard]] virtual std::string_view algorithm() const { return {}; }
  // Returns whether ranks outnumber cores, so that spinning would take the core that a peer needs.
  [[nodiscard]] virtual bool crowded() const { return false; }
  // Returns the pause before the next test(). Call it after a test() that said false. It may be a long sleep
  // where the fabric has a Waker.
  virtual Nap idle(Backoff& backoff) { return backoff.next(); }
  // Blocks until the call is over: tests it, and takes pauses between. Returns the error of test().
  Status wait();
};

// Makes a call that is over.
std::unique_ptr<PendingCall> finished_call();

// Ends sleeps in a fabric's calls. The fabric owns it.
class Waker {
 public:
  virtual ~Waker() = default;
  // Ends a sleep in one of this member's calls. Any thread may call it.
  virtual void wake() = 0;
};

// Reports on calls that are over for the host while a device still works on them. The fabric owns it. The
// thread that calls Fabric::start() calls it.
class DeviceCalls {
 public:
  virtual ~DeviceCalls() = default;
  // Returns OK, or the error that such a call has met since it was over for the host. After an error the
  // fabric is poisoned.
  [[nodiscard]] virtual Status health() = 0;
  // Ends such calls after a fault. Poisons the fabric with `cause`, unless it is poisoned already.
  virtual void give_up(const Status& cause) = 0;
};

// The abilities that only some fabrics have. An ability of every fabric is a virtual function of Fabric.
// Null, or false, means that the fabric does not have it. A fabric gets them when it is made and never
// changes them, so that a user may read them once.
struct FabricCapabilities {
  bool scattered = false;         // takes AllreduceCall::scattered; the same on all members
  bool messages = false;          // takes AlltoallCall::messages; the same on all members
  bool within_node = false;       // all members are on one node; the same on all members
  Waker* waker = nullptr;         // lives as long as the fabric
  DeviceCalls* device = nullptr;  // lives as long as the fabric
  std::size_t plans = 0;          // the number of those for which calls may ask (CallOptions::factors)
  // If nodes have different numbers of members, and level_fabrics() has levels all the same: the number of
  // members of each node that have peers between the nodes, and the number of nodes. Otherwise empty. The
  // same on all members.
  std::vector<int> uneven{};
  // Makes regions for buffers that the group's calls work on. Over levels they are those of the innermost
  // fabric. It may outlive the fabric. Any thread may call it.
  RegionMaker make_region = make_private_region;
  // The group's announcements, which all members see at once. May outlive the fabric.
  std::shared_ptr<lock::Announcements> announcements{};
  // Counts this member's work. May outlive the fabric.
  std::shared_ptr<const FabricCounters> counters{};
};

class Fabric {
 public:
  virtual ~Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // Returns a name for messages and the timeline: "shm", "nccl" ...
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual const Group& group() const = 0;
  // Starts a call, which is copied. A few calls may be in progress at once; they may end in any order.
  // Errors: kInvalidArgument where the call makes no sense, which leaves the fabric as it was; the first
  // cause where the fabric is poisoned; the abort token's cause.
  virtual Result<std::unique_ptr<PendingCall>> start(const Call& call) = 0;
  // Returns whether any thread may call into this fabric, one at a time. If not, only the lane's own thread
  // may (MPI below THREAD_MULTIPLE).
  [[nodiscard]] virtual bool any_thread() const = 0;
  // Returns whether the fabric is poisoned: the medium may write to the buffers of unfinished calls for ever.
  [[nodiscard]] virtual bool poisoned() const = 0;
  // Returns the fabrics inside nodes, between them and so on, innermost first. They connect this member with
  // its peers of each level. Between nodes of different sizes (FabricCapabilities::uneven) the members of one
  // place in their nodes are peers if each node has that place, and the others are alone. Returns this fabric
  // alone if its group is flat. They belong to this fabric. Call them only while this fabric has no call in
  // progress. The same number on all members.
  [[nodiscard]] virtual std::span<Fabric* const> level_fabrics() = 0;
  [[nodiscard]] const FabricCapabilities& capabilities() const { return capabilities_; }

 protected:
  explicit Fabric(FabricCapabilities capabilities = {}) : capabilities_(std::move(capabilities)) {}

  // The levels of a flat group.
  [[nodiscard]] std::span<Fabric* const> flat() const { return {&self_, 1}; }

 private:
  Fabric* const self_ = this;
  const FabricCapabilities capabilities_;
};

// Returns the fabric within this member's node. Null: this member is alone there, or the fabric has no levels
// and goes over several nodes; then each member counts as a node.
[[nodiscard]] inline Fabric* node_fabric(Fabric& fabric) {
  Fabric* const innermost = fabric.level_fabrics().front();
  return innermost->capabilities().within_node ? innermost : nullptr;
}

// Returns the fabrics between nodes, innermost first; none: the group is on one node.
[[nodiscard]] inline std::span<Fabric* const> fabrics_across(Fabric& fabric) {
  return fabric.level_fabrics().subspan(node_fabric(fabric) == nullptr ? 0 : 1);
}

// Returns the number of members of each level, the node first; 1: there is no fabric within the node. Of
// uneven nodes these are FabricCapabilities::uneven. The same on all members.
[[nodiscard]] inline std::vector<int> level_sizes(Fabric& fabric) {
  std::vector<int> sizes = fabric.capabilities().uneven;
  if (!sizes.empty()) return sizes;
  if (node_fabric(fabric) == nullptr) sizes.push_back(1);
  for (const Fabric* level : fabric.level_fabrics()) sizes.push_back(level->group().size());
  return sizes;
}

}  // namespace roundelay::collective
