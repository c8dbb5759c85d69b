// The parts of a Session. runtime/startup/context.cc makes them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/group.h"
#include "base/status.h"
#include "bootstrap/rank_info.h"
#include "bootstrap/topology.h"
#include "channel/channel.h"
#include "collective/point_to_point/point_to_point.h"
#include "control/inquiry.h"
#include "control/neighbours.h"
#include "execute/lane_executors.h"
#include "gpu/module.h"
#include "runtime/allreduce_ways.h"
#include "runtime/backend.h"
#include "timeline/file.h"

namespace roundelay::runtime {

// Makes the fabrics of a process set's lane, one for each executor. All members call it.
using MakeFabrics = std::function<Result<execute::LaneFabrics>(const Group&)>;
// Makes a medium of the set's own for memory on GPUs. All members call it, after MakeFabrics. Null: none is
// wanted.
using DeviceMediumPtr = std::shared_ptr<collective::DeviceMedium>;
using MakeDeviceMedium = std::function<Result<DeviceMediumPtr>(const Group&)>;

struct SessionParts {
  Config config;
  bootstrap::RankInfo rank_info;
  bootstrap::Topology topology;
  AllreduceWays allreduce_ways{};
  std::string bootstrap;  // the bootstrap's name
  std::string channel_name;
  std::unique_ptr<channel::Channel> channel;
  bool crowded = false;          // ranks outnumber the cores here: waiters never spin
  std::vector<int> nodes{};      // Negotiator::set_nodes(); empty: no leaders
  execute::LaneFabrics fabrics;  // the world's fabrics on the CPU
  MakeFabrics make_fabrics;
  std::unique_ptr<collective::PointToPoint> messages{};   // the world's; null but in call order
  DeviceMediumPtr device_medium{};                        // the world's; may be null
  MakeDeviceMedium make_device_medium{};                  // empty: none is wanted
  std::unique_ptr<timeline::TimelineFile> timeline_file;  // rank 0 has it; open if recording starts at once
  Backend* backend = nullptr;                             // not owned; null in a job of one rank
  gpu::GpuParts gpu{};
  bool call_order = false;                              // all operations are Context::call()s
  bool ranks_may_share_gpu = false;                     // the user wants several ranks on one GPU
  std::vector<control::Neighbour> neighbours{};         // ranks of this node whose processes can be seen
  std::shared_ptr<control::Whereabouts> whereabouts{};  // null: the program is never asked where it is
};

}  // namespace roundelay::runtime
