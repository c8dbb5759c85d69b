// A group's way between GPUs: NCCL where all members have it and no two of them sit on one GPU, else through
// host memory; on demand NCCL inside the nodes and host memory between them. The members agree on it, and
// make NCCL's communicators, in the first call: by then each has said, by its tensors, which GPU is its own.
// Nothing in it blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collective/fabric.h"
#include "collective/gpu_single.h"
#include "collective/staged/staged_fabric.h"
#include "collective/two_level/two_level_fabric.h"
#include "runtime/gpu/choice.h"
#include "runtime/gpu/module.h"

namespace roundelay::runtime {

// Larger than the CPU's: NCCL inside the nodes is far faster than what is between them, and the staged fabric
// there cuts by itself and keeps its pipeline full within a call, not from one to the next. So most tensors
// cross in one call, and one more waits behind it. The bound lets the nodes work beside the wire for the
// rest.
inline constexpr collective::LevelsCut kGpuCut{.shard_bytes = 4 * collective::kStagedPieceBytes,
                                               .most_across = 2};

struct GpuFabricOptions {
  GpuFabricWish wish = GpuFabricWish::kAuto;
  bool may_share = false;                        // several ranks on one GPU are meant
  Duration patience = std::chrono::seconds(30);  // for the communicator
  std::string node{};                            // as rank_info.h's node_id()
  collective::LevelsCut cut = kGpuCut;           // of two levels
};

class GpuFabric final : private collective::DeviceCalls, public collective::Fabric {
 public:
  // `cpu`: of the same group; outlives this, and carries no other call while one of these is in progress.
  // Nor do its levels, if it has any.
  GpuFabric(const GpuParts& parts, collective::Fabric& cpu, GpuFabricOptions options);
  ~GpuFabric() override;
  // Before the first call.
  [[nodiscard]] Status open(int device);

  [[nodiscard]] std::string_view name() const override;  // "gpu" until it is chosen
  [[nodiscard]] const Group& group() const override { return cpu_.group(); }
  Result<std::unique_ptr<collective::Pending>> start(const collective::Call& call) override;
  [[nodiscard]] bool any_thread() const override { return cpu_.any_thread(); }
  [[nodiscard]] bool poisoned() const override;

 private:
  class CommunicatorSetup;
  using FabricPtr = std::unique_ptr<collective::Fabric>;
  using CommunicatorPtr = std::unique_ptr<platform::NcclCommunicator>;

  // Nothing has to be ended, and nothing can have failed, before the members have met.
  [[nodiscard]] Status health() override;
  void give_up(const Status& cause) override;

  // Whose communicator NCCL's would be: all members', or those of this node.
  [[nodiscard]] const Group& joining() const { return levels_ ? levels_->inner->group() : group(); }
  // `communicator`: null: none.
  void choose(CommunicatorPtr communicator);
  [[nodiscard]] FabricPtr over_nccl(CommunicatorPtr communicator, collective::Fabric& staged) const;
  [[nodiscard]] FabricPtr over_levels(CommunicatorPtr communicator);

  const GpuParts parts_;
  collective::Fabric& cpu_;
  const GpuFabricOptions options_;
  const collective::Levels* const levels_;  // the CPU's, where they are wished for
  int device_ = -1;
  FabricPtr staged_;                      // over `cpu`, until `faster_` has it
  FabricPtr staged_inside_;               // over its inner level, under `faster_`
  FabricPtr faster_;                      // null: none
  collective::Fabric* chosen_ = nullptr;  // null: the members have not met
};

}  // namespace roundelay::runtime
