// Any number of members in one process: threads, or one thread that tests each member's calls in turn.
// Nothing blocks. A transfer is over when both sides have posted it: the strictest medium there is, so that
// a program that relies on buffering fails here. Faults can be injected.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/group.h"
#include "collective/fabric.h"
#include "collective/select.h"
#include "collective/transport.h"

namespace roundelay::collective {

// The medium of one group. Thread-safe; outlives its transports through shared ownership.
class InprocHub : public std::enable_shared_from_this<InprocHub> {
 public:
  explicit InprocHub(int members);

  // At most one for each member.
  std::unique_ptr<Transport> transport(int index) EXCLUDES(mutex_);

  // Nothing that this member has posted or will post reaches anyone: a stopped process.
  void silence(int index) EXCLUDES(mutex_);
  // Transfers with this member fail from now on: a lost connection.
  void fail(int index) EXCLUDES(mutex_);

 private:
  friend class InprocTransport;
  struct Posted {
    int from, to, tag;
    ConstByteSpan source;  // of a send
    ByteSpan target;       // of a receive
    bool done = false;
    bool sizes_differ = false;
  };
  using PostedPtr = std::shared_ptr<Posted>;
  struct Link {  // from one member to another
    std::deque<PostedPtr> sends, receives;
  };

  PostedPtr post(Posted posted, bool is_send) EXCLUDES(mutex_);
  Result<bool> test(const Posted& posted) EXCLUDES(mutex_);
  void withdraw(int index) EXCLUDES(mutex_);
  Link& link(int from, int to) REQUIRES(mutex_);

  const std::size_t members_;
  Mutex mutex_;
  std::vector<Link> links_ GUARDED_BY(mutex_);
  std::vector<bool> silent_ GUARDED_BY(mutex_);
  std::vector<bool> failed_ GUARDED_BY(mutex_);
};

// group.index is this member's index in the hub.
std::unique_ptr<Fabric> make_inproc_fabric(const std::shared_ptr<InprocHub>& hub, Group group,
                                           Select select = select_algorithm);

}  // namespace roundelay::collective
