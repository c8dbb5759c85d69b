#include "runtime/startup/fabrics.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/cores.h"
#include "base/log.h"
#include "collective/levels/levels_fabric.h"
#include "collective/levels/places.h"
#include "collective/shm/shared_regions.h"
#include "collective/shm/shm_fabric.h"
#include "collective/single/single_fabric.h"
#include "runtime/startup/closed_nodes.h"
#include "runtime/startup/first_failure.h"
#include "runtime/startup/ways.h"

namespace roundelay::runtime {
namespace {

using collective::Fabric;
using collective::shm::Segment;

// Allocates a member's slots, and on the first member the part that all members use.
platform::Prepare prepare(const Group& group) {
  return [index = group.index, size = group.size()](const platform::SharedMemory& memory) -> Status {
    if (memory.span().size() != Segment::bytes(size)) return Status::internal("it has another size");
    if (index == 0) ROUNDELAY_RETURN_IF_ERROR(memory.allocate(0, Segment::control_bytes(size)));
    const ByteRange own = Segment::slots_of(index, size);
    return memory.allocate(own.offset, own.bytes);
  };
}

// Returns a sentence for the log.
std::string text_of(const Group& group, const std::string& stages, bool for_search = false) {
  return "process set " + std::to_string(group.id) + ": allreduces " +
         (for_search ? "of a search may go over " : "go over ") + stages;
}

// Returns the fabrics of a lane with this one.
Result<execute::LaneFabrics> one_fabric(Result<std::unique_ptr<collective::Fabric>> fabric) {
  if (!fabric.ok()) return fabric.status();
  return execute::one_fabric(std::move(fabric).value());
}

}  // namespace

Fabrics::Fabrics(Config config, Backend* backend, const std::atomic<bool>* given_up)
    : config_(config), given_up_(given_up), outer_(std::move(config), backend) {}

std::string Fabrics::open_shm_socket() {
  if (shuns_memory()) return {};
  auto shm_socket = platform::ShmSocket::open();
  if (!shm_socket.ok()) {
    no_shm_socket_ = shm_socket.status().message();
    return {};
  }
  shm_socket_.emplace(std::move(shm_socket).value());
  return shm_socket_->address();
}

Status Fabrics::exchange(bootstrap::Bootstrap& ranks, std::vector<NodeInfo> node_infos,
                         bootstrap::Topology topology, Deadline deadline) {
  node_infos_ = std::move(node_infos);
  topology_ = std::move(topology);
  if (shuns_memory()) return {};
  auto closed = closed_nodes(ranks, node_infos_, no_shm_socket_, deadline);
  if (!closed.ok()) return closed.status();
  closed_ = std::move(closed).value();
  return {};
}

std::vector<control::Neighbour> Fabrics::neighbours(int rank) const {
  std::vector<control::Neighbour> found;
  for (int other = 0; other < static_cast<int>(node_infos_.size()); ++other) {
    if (node_of(other) != node_of(rank)) continue;
    const std::string& shm_socket = node_infos_[static_cast<std::size_t>(other)].shm_socket;
    pid_t process = ::getpid();
    if (other != rank) process = shm_socket.empty() ? 0 : platform::listening_process(shm_socket);
    if (process > 0) found.push_back({other, process});
  }
  return found;
}

bool Fabrics::on_one_node(const Group& group) const {
  return std::all_of(group.ranks.begin(), group.ranks.end(),
                     [&](int rank) { return node_of(rank) == node_of(group.ranks.front()); });
}

std::string Fabrics::why_not_shm(const Group& group) const {
  if (shuns_memory()) return "ROUNDELAY_FABRIC=" + config_.fabric;
  for (const int rank : group.ranks) {
    if (const auto closed = closed_.find(node_of(rank)); closed != closed_.end()) return closed->second;
  }
  return {};
}

Result<Fabrics::FabricPtr> Fabrics::between(const Group& group) {
  return outer_.make(group, algorithms_.select_for(group), crowded(group.world_rank()));
}

bool Fabrics::crowded(int rank) const {
  const std::string& machine = node_infos_[static_cast<std::size_t>(rank)].machine;
  const auto on_node = std::ranges::count(node_infos_, node_of(rank), &NodeInfo::node);
  const auto on_machine = machine.empty() ? 0 : std::ranges::count(node_infos_, machine, &NodeInfo::machine);
  return outnumber_cores(static_cast<int>(on_node)) || outnumber_machine(static_cast<int>(on_machine));
}

Result<execute::LaneFabrics> Fabrics::make(const Group& group) {
  if (group.size() == 1) return execute::one_fabric(std::make_unique<collective::SingleFabric>(group));
  const bool whole_job = group.ranks.size() == node_infos_.size();
  const auto plans = plan_levels(group, topology_, wishes_for(config_, algorithms_, whole_job));
  if (!plans.ok()) return plans.status();
  ROUNDELAY_RETURN_IF_ERROR(outer_.check());
  const bool gains = std::ranges::any_of(*plans, [](const LevelPlan& one) { return one.factors.size() > 1; });
  const bool levels = gains && (!shuns_memory() || !config_.factors.each.empty());
  return levels ? make_over_levels(group, *plans) : make_flat(group);
}

Result<execute::LaneFabrics> Fabrics::make_flat(const Group& group) {
  if (!shuns_memory() && on_one_node(group)) {
    std::string why_not = why_not_shm(group);
    if (why_not.empty()) {
      Result<FabricPtr> fabric = make_shm(group, 0);
      if (fabric.ok() || fabric.status().code() != StatusCode::kUnavailable)
        return one_fabric(std::move(fabric));
      why_not = fabric.status().message();
    }
    ROUNDELAY_RETURN_IF_ERROR(give_up_shm(group, why_not, group.index == 0));
  } else if (!shuns_memory()) {
    ROUNDELAY_RETURN_IF_ERROR(give_up_shm(group, "its ranks gain nothing from levels", false));
    if (group.index == 0)
      log(LogLevel::kInfo, text_of(group, std::to_string(group.size()) + " (" + outer_.name() + ")"));
  }
  return one_fabric(between(group));
}

Result<execute::LaneFabrics> Fabrics::make_over_levels(const Group& group,
                                                       const std::vector<LevelPlan>& plans) {
  const std::string why_not = shuns_memory() ? "" : why_not_shm(group);
  if (!why_not.empty()) {
    ROUNDELAY_RETURN_IF_ERROR(give_up_shm(group, why_not, group.index == 0));
    return one_fabric(between(group));
  }
  execute::LaneFabrics fabrics;
  while (fabrics.all.size() < execute::kExecutors) {
    auto next = try_levels(group, plans);
    if (!next.ok()) return next.status();
    if (next->flat && !fabrics.all.empty()) break;  // there is no memory for one more, and one executor does
    if (next->flat) ROUNDELAY_RETURN_IF_ERROR(give_up_shm(group, next->why_flat, next->failed));
    fabrics.all.push_back(std::move(next->fabric));
    if (next->flat) return fabrics;
  }
  const std::string outside = outer_.name();
  for (const LevelPlan& plan : plans) {
    const std::string stages = plan.stages_text(shuns_memory() ? outside : "shm", outside);
    if (group.index == 0) log(LogLevel::kInfo, text_of(group, stages, &plan != &plans.front()));
  }
  return fabrics;
}

Result<std::shared_ptr<platform::SharedMemory>> Fabrics::share(std::uint64_t key, const Group& group,
                                                               std::size_t bytes,
                                                               const platform::Prepare& prepare) {
  const std::string& shm_socket = node_infos_[static_cast<std::size_t>(group.ranks.front())].shm_socket;
  auto memory = group.index == 0 ? shm_socket_->hand_out(key, group.ranks, bytes, prepare, limit())
                                 : platform::take_over(shm_socket, key, group.index, prepare, limit());
  if (!memory.ok()) return memory.status();
  return std::make_shared<platform::SharedMemory>(std::move(memory).value());
}

Result<Fabrics::FabricPtr> Fabrics::make_shm(const Group& group, std::uint64_t stage) {
  const std::uint64_t key = group.id + (stage << 32U);
  auto memory = share(key, group, Segment::bytes(group.size()), prepare(group));
  if (!memory.ok()) return memory.status();
  collective::ShmFabricOptions options;
  options.crowded = crowded(group.ranks.front());
  const auto heap = std::make_shared<collective::SharedHeap>(*memory, group, collective::heap_bytes(group));
  options.heap = heap;
  options.make_region = collective::shared_regions(*memory, group, heap);
  return collective::make_shm_fabric({*memory, (*memory)->span().data()}, group, options);
}

Result<Fabrics::FabricPtr> Fabrics::make_for_stage(const Group& group, bool in_node, std::uint64_t stage) {
  if (group.size() == 1) return FabricPtr(std::make_unique<collective::SingleFabric>(group));
  return in_node && !shuns_memory() ? make_shm(group, stage) : between(group);
}

// Makes the fabrics of those stages that lie within nodes, or of the others. Goes on after an error, because
// the peers of further stages wait.
Status Fabrics::make_stages(const Group& group, const LevelPlan& plan, bool in_node,
                            std::vector<collective::StageFabrics>& stages) {
  Status first;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    if (plan.in_node(stage) != in_node) continue;
    stages[stage].in_node = in_node;
    for (const collective::levels::Members& members : plan.plan.stages[stage].groups) {
      auto fabric = make_for_stage(part_of(group, members), in_node, stage);
      if (!fabric.ok() && first.ok()) first = fabric.status();
      if (fabric.ok()) stages[stage].of_groups.push_back(std::move(fabric).value());
    }
  }
  return first;
}

Result<collective::LevelsPlan> Fabrics::make_plan(const Group& group, const LevelPlan& plan,
                                                  const std::vector<collective::StageFabrics>& inside) {
  std::vector<collective::StageFabrics> stages(plan.plan.stages.size());
  for (std::size_t stage = 0; stage < stages.size() && plan.in_node(stage); ++stage) {
    stages[stage] = inside[stage];
  }
  ROUNDELAY_RETURN_IF_ERROR(make_stages(group, plan, false, stages));
  const collective::LevelsCut cut{.shard_bytes = plan.shard_bytes,
                                  .most_shard_bytes = plan.most_shard_bytes()};
  return collective::LevelsPlan{plan.plan, std::move(stages), cut};
}

Result<Fabrics::FabricPtr> Fabrics::make_peers(const Group& group, const LevelPlan& plan) {
  const bool shared = !shuns_memory() && plan.in_node(0) && !plan.in_node(1);
  if (plan.plan.even() || !shared) return FabricPtr();
  return make_for_stage(part_of(group, collective::levels::peers_of(plan.tree.front(), group.index)), false,
                        1);
}

// Either all nodes use levels or none does: the members tell each other over the flat fabric, which needs no
// shared memory, whether their node failed.
Result<Fabrics::LevelsAttempt> Fabrics::try_levels(const Group& group, const std::vector<LevelPlan>& plans) {
  auto flat = between(group);
  if (!flat.ok()) return flat.status();
  std::vector<collective::StageFabrics> inside(plans.front().plan.stages.size());
  const Status inner = make_stages(group, plans.front(), true, inside);
  const auto failed = first_failure(**flat, inner.ok(), limit());
  if (!failed.ok()) return failed.status();
  if (*failed == group.size()) {
    std::vector<collective::LevelsPlan> made;
    for (const LevelPlan& plan : plans) {
      auto parts = make_plan(group, plan, inside);
      if (!parts.ok()) return parts.status();
      made.push_back(std::move(parts).value());
    }
    collective::LevelsParts parts{
        .main = std::move(made.front()), .flat = std::move(flat).value(), .tree = plans.front().tree};
    auto peers = make_peers(group, plans.front());
    if (!peers.ok()) return peers.status();
    parts.peers = std::move(peers).value();
    std::move(made.begin() + 1, made.end(), std::back_inserter(parts.others));
    return LevelsAttempt{.fabric = collective::make_levels_fabric(std::move(parts))};
  }
  if (!inner.ok() && inner.code() != StatusCode::kUnavailable) return inner;
  const int rank = group.ranks[static_cast<std::size_t>(*failed)];
  return LevelsAttempt{.fabric = std::move(flat).value(),
                       .flat = true,
                       .failed = group.index == *failed,
                       .why_flat = inner.ok() ? "rank " + std::to_string(rank) + " cannot" : inner.message()};
}

Status Fabrics::give_up_shm(const Group& group, const std::string& why, bool warns) const {
  const std::string text =
      "process set " + std::to_string(group.id) + " does not use shared memory (" + why + ")";
  if (config_.fabric.starts_with("shm"))
    return Status::unavailable(text + ", and ROUNDELAY_FABRIC=" + config_.fabric + " allows nothing else");
  if (warns) {
    log(LogLevel::kWarning,
        text + "; fabric " + outer_.name() +
            " moves the bytes instead, several times slower. Run all ranks of a node in one container, "
            "as one user, with room for " +
            std::to_string(Segment::bytes(group.size()) >> 20U) + " MiB of shared memory");
  }
  return {};
}

}  // namespace roundelay::runtime
