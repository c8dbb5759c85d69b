// Chooses and makes the fabrics of one init: shared memory where all members of a group are on one node and
// can map it, both on two levels where they are on several nodes alike, the backend's (MPI, a process group
// of PyTorch) elsewhere.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/group.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/rank_info.h"
#include "collective/fabric.h"
#include "platform/shm/handover.h"
#include "runtime/backend.h"
#include "runtime/session/neighbours.h"

namespace roundelay::runtime {

// What a rank tells the others before any fabric is made, through its introduction.
struct NodeInfo {
  std::string node;
  std::string shm_socket;  // where its shared memory can be had; empty: it hands none out
};

// One thread at a time.
class Fabrics {
 public:
  // `backend` outlives this.
  Fabrics(Config config, Backend* backend);

  // At most once, before exchange(): for this rank's NodeInfo. "" where shared memory is not wanted or cannot
  // be.
  std::string open_shm_socket();
  // Collective over all ranks: everyone's site, by rank. All agree on the nodes that share memory.
  Status exchange(bootstrap::Bootstrap& ranks, std::vector<NodeInfo> node_infos, Deadline deadline);
  // After exchange(): the ranks of this rank's node, where their shm sockets tell the processes behind them.
  [[nodiscard]] std::vector<Neighbour> neighbours(int rank) const;
  // The ranks of this rank's node, if they are several and share memory.
  [[nodiscard]] std::optional<Group> node(int rank) const;
  // Collective over the group, on one node, zeros: `prepare` allocates each member's part. Errors: as
  // platform/shm/handover.h.
  Result<std::shared_ptr<platform::SharedMemory>> share(std::uint64_t key, const Group& group,
                                                        std::size_t bytes, const platform::Prepare& prepare);
  // Collective over the group. All members get the same fabric. Errors: kUnavailable with cause and cure.
  Result<std::unique_ptr<collective::Fabric>> make(const Group& group);

 private:
  [[nodiscard]] const std::string& node_of(int rank) const {
    return node_infos_[static_cast<std::size_t>(rank)].node;
  }
  // ROUNDELAY_FABRIC names one between nodes: no shared memory.
  [[nodiscard]] bool shuns_memory() const { return config_.fabric != "auto" && config_.fabric != "shm"; }
  [[nodiscard]] bool on_one_node(const Group& group) const;
  // Why a rank's node does not share memory, the first one's; "" if they all do.
  [[nodiscard]] std::string why_not_shm(const Group& group) const;
  Result<std::unique_ptr<collective::Fabric>> make_shm(const Group& group);
  Result<std::unique_ptr<collective::Fabric>> make_two_level(const Group& group,
                                                             const bootstrap::Levels& levels);
  // Warns, or fails where nothing but shared memory is allowed.
  [[nodiscard]] Status give_up_shm(const Group& group, const std::string& why, bool warns) const;

  const Config config_;
  Backend* const backend_;
  std::optional<platform::ShmSocket> shm_socket_;
  std::string no_shm_socket_;  // why there is none
  std::vector<NodeInfo> node_infos_;
  std::map<std::string, std::string> closed_;  // nodes whose ranks do not all share memory, and why
};

}  // namespace roundelay::runtime
