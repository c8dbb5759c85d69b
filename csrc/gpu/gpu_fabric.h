// A group's fabric between GPUs. It uses NCCL if all members have it and no two of them share a GPU, and host
// memory otherwise; on request, NCCL inside the nodes and host memory between them, or an MPI that takes the
// GPUs' memory. Where the CPU's fabric has levels, techniques see levels here, too: inside the nodes the same
// means, between them host memory.
//
// The members choose, and make NCCL's communicators or try MPI, in the first call: the first tensor tells
// each member which GPU is its own. No call blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collective/fabric.h"
#include "collective/levels/levels_fabric.h"
#include "collective/single/gpu_single.h"
#include "collective/staged/staged_fabric.h"
#include "gpu/choice.h"
#include "gpu/module.h"
#include "gpu/technique_levels.h"

namespace roundelay::gpu {

// Cuts allreduces for levels. The shards are larger than the CPU's: NCCL inside the nodes is far faster than
// the links between them, and the staged fabric there cuts a call itself and keeps its pipeline full within
// one call only. So most tensors cross in one call, with one more queued after it. The bound lets the nodes
// work on the rest of a tensor while the links carry a part.
inline constexpr collective::LevelsCut kGpuCut{.shard_bytes = 4 * collective::kStagedPieceBytes,
                                               .most_across = 2};

struct GpuFabricOptions {
  GpuFabricWish wish = GpuFabricWish::kAuto;
  bool may_share = false;                       // the user wants several ranks on one GPU
  Duration timeout = std::chrono::seconds(30);  // all members make the communicator within this time
  std::string node{};                           // node_id() of bootstrap/rank_info.h
  collective::LevelsCut cut = kGpuCut;          // cuts allreduces that go over levels
  // The wish kMpi needs it. The fabric takes its state. Null: there is no backend, so no MPI.
  std::shared_ptr<collective::DeviceMedium> medium{};
};

// One thread at a time calls it, as every fabric; any thread may call wake().
class GpuFabric final : private collective::DeviceCalls, public collective::Fabric {
 public:
  // `cpu`: the group's fabric for host memory. It outlives this fabric. While this fabric has a call in
  // progress, `cpu` and its levels carry no other call.
  GpuFabric(const GpuParts& parts, collective::Fabric& cpu, GpuFabricOptions options);
  ~GpuFabric() override;
  // Sets the device of this member's tensors. Call it once, before the first call.
  void open(int device);

  [[nodiscard]] std::string_view name() const override;  // "gpu" until the members have chosen
  [[nodiscard]] const Group& group() const override { return cpu_.group(); }
  Result<std::unique_ptr<collective::PendingCall>> start(const collective::Call& call) override;
  [[nodiscard]] bool any_thread() const override { return cpu_.any_thread(); }
  [[nodiscard]] bool poisoned() const override;
  // Returns true if no call leaves work on the device that waits for a peer: the members have chosen host
  // memory or MPI, where only the host waits. False before they have chosen.
  [[nodiscard]] bool device_never_waits() const { return chosen_ != nullptr && !nccl_; }
  // Returns the levels of the fabric that the members have chosen; only itself before that.
  [[nodiscard]] std::span<collective::Fabric* const> level_fabrics() override;
  // Returns false if level_fabrics() will have more than itself when the members have chosen. Equal on all
  // members.
  [[nodiscard]] bool knows_levels() const { return levels_.empty() || chosen_ != nullptr; }

 private:
  class CommunicatorSetup;
  using CountersPtr = std::shared_ptr<collective::FabricCounters>;
  GpuFabric(const GpuParts& parts, collective::Fabric& cpu, GpuFabricOptions options, CountersPtr counters);
  using FabricPtr = std::unique_ptr<collective::Fabric>;
  using CommunicatorPtr = std::unique_ptr<platform::NcclCommunicator>;

  // Before the members have made their communicator, nothing has to be ended and nothing can have failed.
  [[nodiscard]] Status health() override;
  void give_up(const Status& cause) override;

  // Returns the groups of NCCL's communicators: all members, and those of this node.
  [[nodiscard]] std::vector<const Group*> joining() const;
  // Returns true if NCCL stays inside the nodes. Nodes of different sizes have levels for techniques alone.
  [[nodiscard]] bool only_levels() const {
    return options_.wish == GpuFabricWish::kTwoLevel && capabilities().uneven.empty();
  }
  // Set `chosen_`: to MPI, or host memory if `over_mpi` is null; to NCCL with the communicators of joining().
  void choose(FabricPtr over_mpi);
  void choose_nccl(std::vector<CommunicatorPtr> communicators);
  [[nodiscard]] FabricPtr over_nccl(CommunicatorPtr communicator, const Group& members,
                                    collective::Fabric& staged) const;
  [[nodiscard]] FabricPtr over_levels(CommunicatorPtr communicator);
  [[nodiscard]] Result<FabricPtr> over_mpi();

  const GpuParts parts_;
  collective::Fabric& cpu_;
  const GpuFabricOptions options_;
  const CountersPtr counters_;
  const std::span<collective::Fabric* const>
      levels_;  // those of `cpu_`; empty: it is flat, or they are not wanted (gpu_levels.h)
  int device_ = -1;
  FabricPtr staged_;                      // goes over `cpu_`; over_levels() moves it into `faster_`
  FabricPtr staged_inside_;               // goes over the inner level of `cpu_`; `faster_` uses it
  FabricPtr faster_;                      // NCCL, levels or MPI; null: none of them
  bool nccl_ = false;                     // `faster_` uses NCCL
  TechniqueLevels for_techniques_;        // empty: the levels are those of `chosen_`
  collective::Fabric* chosen_ = nullptr;  // `faster_` or `staged_`; null: the members have not chosen
};

}  // namespace roundelay::gpu
