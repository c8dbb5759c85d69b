#include "runtime/session/lane_factory.h"

#include <utility>

#include "collective/tuning/select.h"

namespace roundelay::runtime {

std::size_t fusion_threshold(const Config& config, int ranks) {
  // The order of arrival decides which tensors are fused. With a ring, which is also the table's choice in
  // large groups, fusion changes the sums.
  const bool ring = config.algorithm == "ring" || ranks > collective::kOnePlaceMembers;
  if (config.deterministic && ring) return 0;
  return static_cast<std::size_t>(config.fusion_threshold);
}

std::shared_ptr<execute::Lane> LaneFactory::make(LaneId id, execute::LaneFabrics fabrics,
                                                 DeviceMediumPtr medium, bool threads) {
  const Config& config = parts_.config;
  execute::LaneOptions options{config.progress_timeout, fusion_threshold(config, parts_.rank_info.size)};
  options.stall_warning = config.stall_check_disable ? Duration{0} : config.stall_check_time;
  options.schedule_lock = config.schedule_lock && threads && fabrics.all.front()->any_thread() &&
                          (fabrics.announcements == nullptr || parts_.channel->any_thread());
  if (parts_.gpu.runtime != nullptr) {
    const gpu::GpuFabricOptions gpu{.wish = gpu::gpu_fabric_wish(config.gpu_fabric),
                                    .may_share = parts_.ranks_may_share_gpu,
                                    .timeout = config.start_timeout,
                                    .node = bootstrap::node_id(config.node_id),
                                    .medium = std::move(medium)};
    options.gpu = execute::LaneGpu{parts_.gpu, &sequencer_, gpu};
  }
  const auto wake = [&channel = *parts_.channel] { channel.wake(); };
  const auto report = [&inbox = shared_.inbox, wake](control::ControlInbox::Message fault) {
    inbox.post(std::move(fault));
    wake();
  };
  return std::make_shared<execute::Lane>(id, std::move(fabrics), shared_.completer, shared_.timeline,
                                         shared_.abort, options, execute::Lane::Faults{report, report, wake});
}

}  // namespace roundelay::runtime
