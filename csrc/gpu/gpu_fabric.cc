#include "gpu/gpu_fabric.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/leak.h"
#include "base/log.h"
#include "collective/device/device_probe.h"
#include "collective/nccl/nccl_fabric.h"
#include "gpu/gpu_info.h"
#include "gpu/gpu_levels.h"

namespace roundelay::gpu {

using collective::Call;
using collective::Fabric;
using collective::PendingCall;

// The first call. Before it starts the call itself, the members exchange GPU infos, make NCCL's communicator
// or try MPI, and tell each other whether that succeeded everywhere.
class GpuFabric::CommunicatorSetup final : public PendingCall {
 public:
  CommunicatorSetup(GpuFabric& fabric, const Call& call)
      : fabric_(fabric), call_(call), deadline_(Deadline::after(fabric.options_.timeout)) {}
  ~CommunicatorSetup() override {
    current_.reset();  // a call that is dropped before its end poisons its fabric
    if (step_ == Setup::kCall || !fabric_.cpu_.poisoned()) return;
    leak(std::move(gpu_infos_));  // the medium may still write to these
    leak(std::move(mine_));
    leak(std::move(votes_));
  }
  CommunicatorSetup(const CommunicatorSetup&) = delete;
  CommunicatorSetup& operator=(const CommunicatorSetup&) = delete;

  Status begin() {
    ROUNDELAY_RETURN_IF_ERROR(write_gpu_info());
    gpu_infos_.resize(members() * sizeof(GpuInfo));
    return start(fabric_.cpu_, collective::AllgatherCall{cpu_options(deadline_), mine_.data(), gpu_infos_,
                                                         std::vector(members(), sizeof(GpuInfo))});
  }

  Result<bool> test() override {
    if (step_ == Setup::kJoin) {
      const Result<bool> over = joined();
      if (!over.ok()) return over.status();
      if (!*over) return false;
    }
    while (true) {
      const Result<bool> done = current_->test();
      if (!done.ok()) return done.status();
      if (!*done) return false;
      if (step_ == Setup::kCall) return true;
      ROUNDELAY_RETURN_IF_ERROR(go_on());
      if (step_ == Setup::kJoin) return false;
    }
  }

  [[nodiscard]] int waiting_for() const override { return current_ ? current_->waiting_for() : -1; }
  [[nodiscard]] bool crowded() const override { return current_ && current_->crowded(); }
  [[nodiscard]] std::string_view algorithm() const override {
    return step_ == Setup::kCall ? current_->algorithm() : std::string_view{};
  }
  Nap idle(Backoff& backoff) override {
    return step_ == Setup::kJoin ? backoff.next() : current_->idle(backoff);
  }

 private:
  enum class Setup : unsigned char { kIntroduce, kJoin, kAgree, kCall };

  [[nodiscard]] std::size_t members() const { return static_cast<std::size_t>(fabric_.group().size()); }

  Status write_gpu_info() {
    const auto gpu_info = own_gpu_info(fabric_.parts_, fabric_.device_, fabric_.options_,
                                       {!fabric_.levels_.empty(), fabric_.joining().index == 0});
    if (!gpu_info.ok()) return gpu_info.status();
    mine_.resize(sizeof *gpu_info);
    std::memcpy(mine_.data(), &*gpu_info, sizeof *gpu_info);
    return {};
  }

  [[nodiscard]] collective::CallOptions cpu_options(Deadline deadline) const {
    return {.absent = {}, .stream = nullptr, .deadline = deadline, .abort = abort()};
  }
  [[nodiscard]] const AbortToken* abort() const { return collective::options_of(call_).abort; }

  Status start(Fabric& fabric, const Call& call) {
    auto pending = fabric.start(call);
    if (!pending.ok()) return pending.status();
    current_ = std::move(pending).value();
    return {};
  }

  Status go_on() {
    if (step_ == Setup::kAgree) return choose_and_start(why_not_joined());
    std::vector<GpuInfo> gpu_infos(members());
    std::memcpy(gpu_infos.data(), gpu_infos_.data(), gpu_infos_.size());
    const GpuChoice choice = choose_gpu_fabric(gpu_infos, fabric_.group(), fabric_.options_.wish);
    if (choice.kind == GpuFabricKind::kStaged) return choose_and_start(choice.why);
    current_.reset();
    step_ = Setup::kJoin;
    failure_ = choice.kind == GpuFabricKind::kMpi ? try_mpi() : join_nccl(gpu_infos);
    return {};
  }

  Status try_mpi() {
    auto made = fabric_.over_mpi();
    if (!made.ok()) return made.status();
    over_mpi_ = std::move(made).value();
    return probe_.emplace(*over_mpi_, *fabric_.parts_.runtime, fabric_.device_).begin(deadline_, abort());
  }

  Status join_nccl(const std::vector<GpuInfo>& gpu_infos) {
    const Group& those = fabric_.joining();
    const auto first = std::ranges::find(fabric_.group().ranks, those.ranks.front());
    const GpuInfo& gpu_info = gpu_infos[static_cast<std::size_t>(first - fabric_.group().ranks.begin())];
    auto joining = fabric_.parts_.nccl->join(gpu_info.id, those.size(), those.index, fabric_.device_);
    if (!joining.ok()) return joining.status();
    communicator_ = std::move(joining).value();
    return {};
  }

  // Waits for this member's communicator, or its part in trying MPI, without blocking. True: it is made,
  // failed or late, and the call that tells the others has begun.
  Result<bool> joined() {
    if (abort() != nullptr && abort()->raised()) return abort()->cause();
    if (failure_.ok()) {
      const Result<bool> ready = probe_ ? probe_->test() : communicator_->ready();
      if (ready.ok() && !*ready && !deadline_.passed()) return false;
      if (!ready.ok()) failure_ = ready.status();
      late_ = ready.ok() && !*ready;
    }
    const int self = fabric_.group().index, size = fabric_.group().size();
    votes_ = {late_ ? size + self : failure_.ok() ? 2 * size : self};
    // Others may wait as long for a peer.
    const Deadline deadline = Deadline::after(2 * fabric_.options_.timeout);
    ROUNDELAY_RETURN_IF_ERROR(start(
        fabric_.cpu_,
        collective::AllreduceCall{cpu_options(deadline),
                                  {.dtype = DType::kInt64, .reduce_op = ReduceOp::kMin},
                                  {reinterpret_cast<std::byte*>(votes_.data()), 0, sizeof(std::int64_t)}}));
    step_ = Setup::kAgree;
    return true;
  }

  // Returns which rank could not join, or else which rank waited in vain for its peers. Empty: all have
  // joined.
  [[nodiscard]] std::string why_not_joined() const {
    const Group& group = fabric_.group();
    const auto vote = static_cast<int>(votes_.front()), member = vote % group.size();
    if (vote == 2 * group.size()) return {};
    std::string text = "rank " + std::to_string(group.ranks[static_cast<std::size_t>(member)]);
    text += vote < group.size() ? " could not join" : " waited in vain for its peers in";
    text += over_mpi_ ? " a transfer of GPUs' memory by MPI" : " NCCL's communicator";
    const bool knows = member == group.index && !failure_.ok();
    return knows ? text + ": " + failure_.message() : text;
  }

  // Chooses the fabric, the same on all members, and starts the call itself. `why_not`: why NCCL is not used;
  // empty: it is.
  Status choose_and_start(const std::string& why_not) {
    if (!why_not.empty()) {
      const GpuFabricWish wish = fabric_.options_.wish;
      if (wish != GpuFabricWish::kAuto && wish != GpuFabricWish::kStaged) {
        return Status::unavailable("ROUNDELAY_GPU_FABRIC=" + std::string(name_of(wish)) + ", but " + why_not);
      }
      if (communicator_) communicator_->abort();
      communicator_.reset();
      if (fabric_.group().index == 0 && wish == GpuFabricWish::kAuto) {
        log(LogLevel::kWarning,
            "GPU tensors of process set " + std::to_string(fabric_.group().id) +
                " travel through host memory, several times slower than NCCL: " + why_not);
      }
    }
    probe_.reset();
    if (communicator_) {
      fabric_.choose(fabric_.levels_.empty() ? fabric_.over_nccl(std::move(communicator_), *fabric_.staged_)
                                             : fabric_.over_levels(std::move(communicator_)),
                     true);
    } else {
      fabric_.choose(std::move(over_mpi_), false);
    }
    step_ = Setup::kCall;
    return start(*fabric_.chosen_, call_);
  }

  GpuFabric& fabric_;
  const Call call_;
  const Deadline deadline_;
  Setup step_ = Setup::kIntroduce;
  std::unique_ptr<PendingCall> current_;
  std::vector<std::byte> mine_, gpu_infos_;
  std::unique_ptr<platform::NcclCommunicator> communicator_;
  FabricPtr over_mpi_;                            // being tried; null: NCCL's communicator is made
  std::optional<collective::DeviceProbe> probe_;  // of it
  Status failure_;                                // the error of this member's communicator or probe
  bool late_ = false;                             // the peers did not join in time
  // The least value of all members. i < size: member i could not join. size + i: member i waited in vain.
  // 2 * size: all have joined.
  std::vector<std::int64_t> votes_;
};

GpuFabric::GpuFabric(const GpuParts& parts, collective::Fabric& cpu, GpuFabricOptions options)
    : GpuFabric(parts, cpu, std::move(options), std::make_shared<collective::FabricCounters>()) {}

GpuFabric::GpuFabric(const GpuParts& parts, collective::Fabric& cpu, GpuFabricOptions options,
                     CountersPtr counters)
    : Fabric({.within_node = cpu.capabilities().within_node,
              .waker = cpu.capabilities().waker,
              .device = this,
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

void GpuFabric::choose(FabricPtr faster, bool nccl) {
  faster_ = std::move(faster);
  nccl_ = nccl;
  chosen_ = faster_ ? faster_.get() : staged_.get();
}

GpuFabric::FabricPtr GpuFabric::over_nccl(CommunicatorPtr communicator, Fabric& staged) const {
  return collective::make_nccl_fabric({.group = joining(),
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
        level == 0 ? over_nccl(std::move(communicator), *staged_inside_)
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
  return cpu_.poisoned() || (staged_ && staged_->poisoned()) || (faster_ && faster_->poisoned());
}

std::span<Fabric* const> GpuFabric::level_fabrics() {
  return chosen_ == nullptr ? flat() : chosen_->level_fabrics();
}

Status GpuFabric::health() {
  return chosen_ == nullptr ? Status{} : chosen_->capabilities().device->health();
}

void GpuFabric::give_up(const Status& cause) {
  if (chosen_ != nullptr) chosen_->capabilities().device->give_up(cause);
}

}  // namespace roundelay::gpu
