// A group's way between GPUs: NCCL where all members have it and no two of them sit on one GPU, else through
// host memory. The members agree on it, and make NCCL's communicator, in the first call: by then each has
// said, by its tensors, which GPU is its own. Nothing in it blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collective/fabric.h"
#include "collective/gpu_alone.h"
#include "runtime/gpu/choice.h"
#include "runtime/gpu/module.h"

namespace roundelay::runtime {

struct GpuFabricOptions {
  GpuFabricWish wish = GpuFabricWish::kAuto;
  bool may_share = false;                        // several ranks on one GPU are meant
  Duration patience = std::chrono::seconds(30);  // for the communicator
};

class GpuFabric final : public collective::Fabric {
 public:
  // `cpu`: of the same group; outlives this, and carries no other call while one of these is in progress.
  GpuFabric(const GpuParts& parts, collective::Fabric& cpu, GpuFabricOptions options);
  ~GpuFabric() override;
  // Before the first call.
  [[nodiscard]] Status open(int device);

  [[nodiscard]] std::string_view name() const override;  // "gpu" until it is chosen
  [[nodiscard]] const Group& group() const override { return cpu_.group(); }
  Result<std::unique_ptr<collective::Pending>> start(const collective::Call& call) override;
  [[nodiscard]] bool any_thread() const override { return cpu_.any_thread(); }
  [[nodiscard]] bool poisoned() const override;
  [[nodiscard]] RegionMaker region_maker() const override { return collective::no_gpu_region; }
  [[nodiscard]] Status health() override;
  void give_up(const Status& cause) override;
  void rouse() override { cpu_.rouse(); }

 private:
  class Meeting;

  // `communicator`: null: none.
  void choose(std::unique_ptr<platform::NcclCommunicator> communicator);

  const GpuParts parts_;
  collective::Fabric& cpu_;
  const GpuFabricOptions options_;
  int device_ = -1;
  std::unique_ptr<collective::Fabric> staged_;
  std::unique_ptr<collective::Fabric> nccl_;
  collective::Fabric* chosen_ = nullptr;  // null: the members have not met
};

}  // namespace roundelay::runtime
