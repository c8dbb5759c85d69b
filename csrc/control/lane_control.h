// The control plane's state of the lanes on this rank. Only the holder of the negotiation token uses it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/group.h"
#include "control/neighbours.h"
#include "negotiate/coordinator.h"
#include "negotiate/coordinator_watch.h"
#include "negotiate/order_queue.h"
#include "negotiate/participant.h"
#include "negotiate/report_merger.h"
#include "negotiate/report_tree.h"
#include "negotiate/watchdog.h"
#include "submit/table.h"

namespace roundelay::control {

// The objects that negotiate one lane. (runtime::Lane carries out its orders.)
struct LaneControl {
  LaneControl(LaneId id, const Group& members, negotiate::ReportTree reports, submit::TensorTable& submitted,
              negotiate::CoordinatorOptions options);

  // Returns true if this rank waits for an order, or for the other ranks to answer its freeze.
  [[nodiscard]] bool waits() const { return participant.outstanding() > 0 || participant.frozen(); }
  // Returns the world rank whose messages the next order needs: the one to which this rank reports; for the
  // coordinator rank 0, which gives tickets.
  [[nodiscard]] int awaited_rank() const { return coordinator ? 0 : rank_of(tree.above()); }
  [[nodiscard]] int rank_of(int member) const { return group.ranks[static_cast<std::size_t>(member)]; }
  // Returns whether this rank can carry out the order, which is the next one: it sees what all have announced
  // before the end of a schedule.
  [[nodiscard]] bool may_apply(const wire::Order& order) const;
  // Moves the table's new requests to the participant. Under a schedule lock the table keeps them, and only a
  // freeze is a change. `drained`: memory for them.
  void take_submissions(std::vector<wire::Submission>& drained);
  // Returns the index of a world rank in the group; nothing if it is no member.
  [[nodiscard]] std::optional<int> member_of(int rank) const;

  Group group;
  negotiate::ReportTree tree;
  std::vector<int> below;      // the world ranks that report to this one
  submit::TensorTable* table;  // not owned
  negotiate::Participant participant;
  std::unique_ptr<negotiate::Coordinator> coordinator;  // null except on the group's first rank
  std::unique_ptr<negotiate::ReportMerger> merger;      // null except on other leaders
  negotiate::OrderQueue orders;                         // used on the group's first rank only
  negotiate::CoordinatorWatch watch;                    // notices that the awaited rank is silent
  negotiate::Watchdog watchdog;                         // blames a rank when an operation is stuck
  NeighbourWatch neighbour_watch;                       // says when to look at the processes of this node
  std::deque<wire::Order>
      waiting;              // orders that came, from one on that ends a schedule too early for this rank
  bool closed = false;      // the last order has come
  bool end_linger = false;  // the next report asks for the end of the linger
};

// The LaneControls of all lanes of this rank, by id.
class LaneControls {
 public:
  using Map = std::map<LaneId, LaneControl>;

  // Adds a lane whose id is new. `table` outlives it. `options` are the coordinator's.
  const LaneControl& add(LaneId id, const Group& group, const negotiate::ReportTree& tree,
                         submit::TensorTable& table, const negotiate::CoordinatorOptions& options);
  void remove(LaneId id) { lanes_.erase(id); }
  // Returns null if this rank has no such lane. The pointer is valid until remove().
  [[nodiscard]] LaneControl* find(LaneId id);
  // Returns true if the rank is a member of a lane that still gets orders. Such a rank has not left in order.
  [[nodiscard]] bool shares_open_lane(int rank) const;
  // Returns the number of requests that are neither ordered nor failed: this rank's own, and those that its
  // coordinators know.
  [[nodiscard]] std::size_t outstanding() const;

  Map::iterator begin() { return lanes_.begin(); }
  Map::iterator end() { return lanes_.end(); }
  [[nodiscard]] Map::const_iterator begin() const { return lanes_.begin(); }
  [[nodiscard]] Map::const_iterator end() const { return lanes_.end(); }

 private:
  Map lanes_;
};

}  // namespace roundelay::control
