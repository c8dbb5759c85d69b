// NCCL's communicators of a member while they are being made.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/group.h"
#include "gpu/choice.h"
#include "platform/nccl/api.h"

namespace roundelay::gpu {

// One thread at a time. Nothing blocks. All members of a group have it at the same place.
class Communicators {
 public:
  using Ptr = std::unique_ptr<platform::NcclCommunicator>;
  using Names = std::array<bool, std::tuple_size_v<decltype(GpuInfo::ids)>>;

  // Of these groups, one communicator each. The groups outlive it.
  explicit Communicators(std::vector<const Group*> groups) : groups_(std::move(groups)) {}

  // Returns the groups of which this member is the first, and so makes the id.
  [[nodiscard]] Names names() const;
  // Joins the first communicator. `infos` are those of the members of `all`. Errors: those of
  // NcclApi::join(). `nccl` outlives this object.
  [[nodiscard]] Status begin(platform::NcclApi& nccl, int device, std::vector<GpuInfo> infos,
                             const Group& all);
  // Returns whether all communicators are made. Joins one after the other, in the same order everywhere.
  // Errors: those of NcclCommunicator::ready() and NcclApi::join().
  [[nodiscard]] Result<bool> ready();
  // Ends all that are made or being made, and forgets them.
  void abort();
  // Hands over what is made, in the order of the groups; empty: nothing was begun, or it was aborted.
  [[nodiscard]] std::vector<Ptr> take() { return std::move(made_); }

 private:
  [[nodiscard]] Status join_next();

  const std::vector<const Group*> groups_;
  platform::NcclApi* nccl_ = nullptr;
  int device_ = -1;
  std::vector<platform::NcclId> ids_;  // of the groups
  std::vector<Ptr> made_;              // only the last one may not be ready
};

}  // namespace roundelay::gpu
