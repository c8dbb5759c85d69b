#include "gpu/gpu_fabric.h"

#include <string_view>
#include <utility>

#include "collective/nccl/nccl_fabric.h"
#include "gpu/communicator_setup.h"
#include "gpu/gpu_levels.h"

namespace roundelay::gpu {

using collective::Call;
using collective::Fabric;
using collective::PendingCall;

GpuFabric::GpuFabric(const GpuParts& parts, collective::Fabric& cpu, GpuFabricOptions options)
    : GpuFabric(parts, cpu, std::move(options), std::make_shared<collective::FabricCounters>()) {}

GpuFabric::GpuFabric(const GpuParts& parts, collective::Fabric& cpu, GpuFabricOptions options,
                     CountersPtr counters)
    : Fabric({.within_node = cpu.capabilities().within_node,
              .waker = cpu.capabilities().waker,
              .device = this,
              .uneven = level_fabrics_of(cpu, options.wish).empty() ? std::vector<int>{}
                                                                    : cpu.capabilities().uneven,
              .make_region = collective::no_gpu_region,
              .counters = counters}),
      parts_(parts),
      cpu_(cpu),
      options_(std::move(options)),
      counters_(std::move(counters)),
      levels_(level_fabrics_of(cpu, options_.wish)) {}

GpuFabric::~GpuFabric() = default;

void GpuFabric::open(int device) {
  device_ = device;
  staged_ = collective::make_staged_fabric(cpu_, *parts_.runtime, device);
}

void GpuFabric::choose(FabricPtr over_mpi) {
  faster_ = std::move(over_mpi);
  chosen_ = faster_ ? faster_.get() : staged_.get();
  if (!only_levels()) for_techniques_.make(levels_, *parts_.runtime, device_);
}

void GpuFabric::choose_nccl(std::vector<CommunicatorPtr> communicators) {
  nccl_ = true;
  if (only_levels() && !levels_.empty()) {
    faster_ = over_levels(std::move(communicators.front()));
  } else {
    faster_ = over_nccl(std::move(communicators.front()), group(), *staged_);
    for_techniques_.make(levels_, *parts_.runtime, device_);
  }
  if (!for_techniques_.empty())
    for_techniques_.take_inside(over_nccl(std::move(communicators.back()), levels_.front()->group(),
                                          for_techniques_.staged_inside()));
  chosen_ = faster_.get();
}

std::vector<const Group*> GpuFabric::joining() const {
  if (levels_.empty()) return {&group()};
  if (only_levels()) return {&levels_.front()->group()};
  return {&group(), &levels_.front()->group()};
}

GpuFabric::FabricPtr GpuFabric::over_nccl(CommunicatorPtr communicator, const Group& members,
                                          Fabric& staged) const {
  return collective::make_nccl_fabric({.group = members,
                                       .communicator = std::move(communicator),
                                       .runtime = *parts_.runtime,
                                       .kernels = *parts_.kernels,
                                       .device = device_,
                                       .staged = staged});
}

// The levels of `cpu_` are free for this fabric: they carry no other call while it has one in progress.
GpuFabric::FabricPtr GpuFabric::over_levels(CommunicatorPtr communicator) {
  staged_inside_ = collective::make_staged_fabric(*levels_.front(), *parts_.runtime, device_);
  std::vector<collective::levels::Members> groups;
  std::vector<collective::StageFabrics> stages(levels_.size());
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    const Group& group = levels_[level]->group();
    groups.push_back({group.ranks, group.index});
    stages[level].of_groups.push_back(
        level == 0 ? over_nccl(std::move(communicator), group, *staged_inside_)
                   : collective::make_staged_fabric(*levels_[level], *parts_.runtime, device_));
  }
  stages.front().in_node = true;
  return collective::make_levels_fabric(
      {.main = {collective::levels::even_plan(groups), std::move(stages), options_.cut},
       .flat = std::move(staged_)});
}

Result<GpuFabric::FabricPtr> GpuFabric::over_mpi() {
  return collective::make_device_fabric({.medium = std::move(*options_.medium),
                                         .runtime = *parts_.runtime,
                                         .kernels = *parts_.kernels,
                                         .device = device_,
                                         .pointers = parts_.pointers,
                                         .staged = *staged_,
                                         .counters = counters_});
}

Result<std::unique_ptr<PendingCall>> GpuFabric::start(const Call& call) {
  if (group().size() == 1) {
    ROUNDELAY_RETURN_IF_ERROR(collective::enqueue_single(call, *parts_.runtime, *parts_.kernels, device_));
    return collective::finished_call();
  }
  if (chosen_ != nullptr) return chosen_->start(call);
  // Not all members start this call.
  if (!collective::options_of(call).absent.empty()) return staged_->start(call);
  auto setup = std::make_unique<CommunicatorSetup>(*this, call);
  ROUNDELAY_RETURN_IF_ERROR(setup->begin());
  return std::unique_ptr<PendingCall>(std::move(setup));
}

std::string_view GpuFabric::name() const { return chosen_ == nullptr ? "gpu" : chosen_->name(); }

bool GpuFabric::poisoned() const {
  return cpu_.poisoned() || (staged_ && staged_->poisoned()) || (faster_ && faster_->poisoned()) ||
         for_techniques_.poisoned();
}

std::span<Fabric* const> GpuFabric::level_fabrics() {
  if (!for_techniques_.empty()) return for_techniques_.fabrics();
  return chosen_ == nullptr ? flat() : chosen_->level_fabrics();
}

Status GpuFabric::health() {
  if (chosen_ == nullptr) return {};
  ROUNDELAY_RETURN_IF_ERROR(chosen_->capabilities().device->health());
  return for_techniques_.health();
}

void GpuFabric::give_up(const Status& cause) {
  if (chosen_ != nullptr) chosen_->capabilities().device->give_up(cause);
  for_techniques_.give_up(cause);
}

}  // namespace roundelay::gpu
