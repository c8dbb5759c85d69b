// A medium for any number of members in one process: threads, or one thread that tests each member's calls in
// turn. Nothing blocks. A transfer is over when both sides have posted it, so that a program that relies on
// buffering fails here; over a network (simulated_network.h) it takes its time after that. Tests can inject
// faults.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/group.h"
#include "collective/fabric.h"
#include "collective/inproc/simulated_network.h"
#include "collective/program/transport.h"
#include "collective/tuning/select.h"

namespace roundelay::collective {

// The medium of one group. Thread-safe. Its transports share its ownership.
class InprocHub : public std::enable_shared_from_this<InprocHub> {
 public:
  // `network`: how long messages take; null: no time. One thread then steps all members.
  explicit InprocHub(int members, std::shared_ptr<SimulatedNetwork> network = nullptr);

  // Makes the transport of a member. Call it once at most for each member.
  std::unique_ptr<Transport> transport(int index) EXCLUDES(mutex_);

  // Acts as a stopped process: nothing that this member has posted or will post reaches anyone.
  void silence(int index) EXCLUDES(mutex_);
  // Acts as a lost connection: transfers with this member fail from now on.
  void fail(int index) EXCLUDES(mutex_);

 private:
  friend class InprocTransport;
  struct Posted {
    int from, to, tag;
    ConstByteSpan source;  // the bytes of a send
    ByteSpan target;       // the memory of a receive
    bool done = false;     // both sides have posted it
    Duration arrives{};    // then: on the network's clock
    bool sizes_differ = false;
  };
  using PostedPtr = std::shared_ptr<Posted>;
  struct Link {  // messages from one member to another
    std::deque<PostedPtr> sends, receives;
  };

  PostedPtr post(Posted posted, bool is_send) EXCLUDES(mutex_);
  Result<bool> test(const Posted& posted) EXCLUDES(mutex_);
  void withdraw(int index) EXCLUDES(mutex_);
  Link& link(int from, int to) REQUIRES(mutex_);

  const std::size_t members_;
  Mutex mutex_;
  const std::shared_ptr<SimulatedNetwork> network_;  // used under mutex_
  std::vector<Link> links_ GUARDED_BY(mutex_);
  std::vector<bool> silent_ GUARDED_BY(mutex_);
  std::vector<bool> failed_ GUARDED_BY(mutex_);
};

// Makes the fabric of a member, whose index in the hub is group.index.
std::unique_ptr<Fabric> make_inproc_fabric(const std::shared_ptr<InprocHub>& hub, Group group,
                                           Select select = {});

}  // namespace roundelay::collective
