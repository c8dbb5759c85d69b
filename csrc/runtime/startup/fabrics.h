// Chooses and makes the fabrics of one init.
//
// A group on one node gets shared memory, if all members can map it. A group on several nodes gets levels if
// they gain something (level_plan.h): shared memory inside the nodes, the outer fabric between them. Other
// groups get the outer fabric.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/group.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/topology.h"
#include "collective/fabric.h"
#include "collective/levels/levels_fabric.h"
#include "control/neighbours.h"
#include "execute/lane_executors.h"
#include "platform/shm/handover.h"
#include "runtime/backend.h"
#include "runtime/startup/algorithm_choice.h"
#include "runtime/startup/closed_nodes.h"
#include "runtime/startup/level_plan.h"
#include "runtime/startup/outer_fabric.h"

namespace roundelay::runtime {

// One thread at a time may use it.
class Fabrics {
 public:
  // `backend` outlives this object. It may be null if there is one rank. `given_up` is Start's.
  Fabrics(Config config, Backend* backend, const std::atomic<bool>* given_up);

  // Returns the fabric between nodes. Open it before exchange(), and set its peers before make().
  [[nodiscard]] OuterFabric& outer() { return outer_; }
  // Starts to hand out this rank's shared memory, and returns the address for its NodeInfo. Returns "" if
  // shared memory is not wanted or not possible. Call it at most once, before exchange().
  std::string open_shm_socket();
  // All ranks call it, with the node infos of all ranks, by rank, and the topology of these nodes. They agree
  // on the nodes whose ranks can share memory. Errors: those of the bootstrap; kUnavailable, on all ranks,
  // with the uid, if another user answers in a rank's place.
  Status exchange(bootstrap::Bootstrap& ranks, std::vector<NodeInfo> node_infos, bootstrap::Topology topology,
                  Deadline deadline);
  // Returns the ranks of `rank`'s node, itself too, whose processes are known from their shm sockets. `rank`
  // is this process's. Call it and all that follows after exchange().
  [[nodiscard]] std::vector<control::Neighbour> neighbours(int rank) const;
  // Returns whether ranks outnumber cores where this rank is: those of its node, or those of all nodes that
  // are emulated, or in containers, on its machine.
  [[nodiscard]] bool crowded(int rank) const;
  // Returns the node of a rank.
  [[nodiscard]] const std::string& node_of(int rank) const {
    return node_infos_[static_cast<std::size_t>(rank)].node;
  }
  // Returns why the members cannot share memory inside their nodes; "" if they can. The reason is that of the
  // first member with one.
  [[nodiscard]] std::string why_not_shm(const Group& group) const;
  // Makes zeroed memory for a group on one node. All members call it with the same `key`, which no other
  // memory has; `prepare` allocates the member's part. Waits up to limit(). Errors: handover.h's.
  Result<std::shared_ptr<platform::SharedMemory>> share(std::uint64_t key, const Group& group,
                                                        std::size_t bytes, const platform::Prepare& prepare);
  // Lets the cost formula choose the stages, and not ROUNDELAY_FACTORS. Call it before make().
  void forget_factors() { config_.factors = {}; }
  // Sets the rule for the algorithms of fabrics between nodes. Call it before make().
  void choose_by(AlgorithmChoice choice) { algorithms_ = std::move(choice); }
  // Makes the fabrics of a group's lane, as many and of the same kind on all members: one for each executor
  // (execute/lane_executors.h) if the group has levels, else one. All members call it. Errors: kUnavailable.
  Result<execute::LaneFabrics> make(const Group& group);
  [[nodiscard]] const AlgorithmChoice& algorithms() const { return algorithms_; }

 private:
  using FabricPtr = std::unique_ptr<collective::Fabric>;
  struct LevelsAttempt {
    FabricPtr fabric;        // goes over levels, or is the flat one if a member could not share memory
    bool flat = false;       // the same on all members
    bool failed = false;     // this member is the first that could not share memory
    std::string why_flat{};  // empty: it is not flat
  };

  // Returns true if ROUNDELAY_FABRIC names an outer fabric alone, so that no memory is shared.
  [[nodiscard]] bool shuns_memory() const {
    return config_.fabric != "auto" && !config_.fabric.starts_with("shm");
  }
  [[nodiscard]] bool on_one_node(const Group& group) const;
  Result<FabricPtr> between(const Group& group);
  Result<execute::LaneFabrics> make_flat(const Group& group);
  Result<execute::LaneFabrics> make_over_levels(const Group& group, const std::vector<LevelPlan>& plans);
  // Makes shared memory's fabric for a group on one node. `stage`: the index of the plan's stage that it is
  // for; 0 without a plan.
  Result<FabricPtr> make_shm(const Group& group, std::uint64_t stage);
  Result<FabricPtr> make_for_stage(const Group& group, bool in_node, std::uint64_t stage);
  Status make_stages(const Group& group, const LevelPlan& plan, bool in_node,
                     std::vector<collective::StageFabrics>& stages);
  // Makes a plan whose stages inside the nodes are made.
  Result<collective::LevelsPlan> make_plan(const Group& group, const LevelPlan& plan,
                                           const std::vector<collective::StageFabrics>& inside);
  // Makes the fabric of the members of this member's place, where nodes have different sizes; null: where
  // not.
  Result<FabricPtr> make_peers(const Group& group, const LevelPlan& plan);
  Result<LevelsAttempt> try_levels(const Group& group, const std::vector<LevelPlan>& plans);
  // Called when a group uses the outer fabric because of `why`. Logs that if `warns`. Errors:
  // kUnavailable if ROUNDELAY_FABRIC allows nothing but shared memory.
  [[nodiscard]] Status give_up_shm(const Group& group, const std::string& why, bool warns) const;
  [[nodiscard]] Deadline limit() const { return Deadline::after(config_.start_timeout).unless(given_up_); }

  Config config_;  // constant from the first make() on
  const std::atomic<bool>* const given_up_;
  OuterFabric outer_;
  std::optional<platform::ShmSocket> shm_socket_;
  std::string no_shm_socket_;  // the reason if open_shm_socket() failed
  std::vector<NodeInfo> node_infos_;
  bootstrap::Topology topology_;
  AlgorithmChoice algorithms_;
  std::map<std::string, std::string> closed_;  // nodes whose ranks cannot share memory, and the reasons
};

}  // namespace roundelay::runtime
