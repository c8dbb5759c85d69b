// How a group's fabric between GPUs begins. Only gpu_fabric.cc includes it.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/leak.h"
#include "base/log.h"
#include "collective/device/device_probe.h"
#include "gpu/communicators.h"
#include "gpu/gpu_fabric.h"
#include "gpu/gpu_info.h"

namespace roundelay::gpu {

// The first call. Before it starts the call itself, the members exchange GPU infos, make NCCL's communicator
// or try MPI, and tell each other whether that succeeded everywhere.
class GpuFabric::CommunicatorSetup final : public collective::PendingCall {
 public:
  CommunicatorSetup(GpuFabric& fabric, const collective::Call& call)
      : fabric_(fabric),
        call_(call),
        deadline_(Deadline::after(fabric.options_.timeout)),
        communicators_(fabric.joining()) {}
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
                                       {!fabric_.levels_.empty(), communicators_.names()});
    if (!gpu_info.ok()) return gpu_info.status();
    mine_.resize(sizeof *gpu_info);
    std::memcpy(mine_.data(), &*gpu_info, sizeof *gpu_info);
    return {};
  }

  [[nodiscard]] collective::CallOptions cpu_options(Deadline deadline) const {
    return {.absent = {}, .stream = nullptr, .deadline = deadline, .abort = abort()};
  }
  [[nodiscard]] const AbortToken* abort() const { return collective::options_of(call_).abort; }

  Status start(collective::Fabric& fabric, const collective::Call& call) {
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
    failure_ = choice.kind == GpuFabricKind::kMpi
                   ? try_mpi()
                   : communicators_.begin(*fabric_.parts_.nccl, fabric_.device_, std::move(gpu_infos),
                                          fabric_.group());
    return {};
  }

  Status try_mpi() {
    auto made = fabric_.over_mpi();
    if (!made.ok()) return made.status();
    over_mpi_ = std::move(made).value();
    return probe_.emplace(*over_mpi_, *fabric_.parts_.runtime, fabric_.device_).begin(deadline_, abort());
  }

  // Waits for this member's communicators, or its part in trying MPI, without blocking. True: they are made,
  // failed or late, and the call that tells the others has begun.
  Result<bool> joined() {
    if (abort() != nullptr && abort()->raised()) return abort()->cause();
    if (failure_.ok()) {
      const Result<bool> ready = probe_ ? probe_->test() : communicators_.ready();
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
      communicators_.abort();
      if (fabric_.group().index == 0 && wish == GpuFabricWish::kAuto) {
        log(LogLevel::kWarning,
            "GPU tensors of process set " + std::to_string(fabric_.group().id) +
                " travel through host memory, several times slower than NCCL: " + why_not);
      }
    }
    probe_.reset();
    if (auto made = communicators_.take(); made.empty()) {
      fabric_.choose(std::move(over_mpi_));
    } else {
      fabric_.choose_nccl(std::move(made));
    }
    step_ = Setup::kCall;
    return start(*fabric_.chosen_, call_);
  }

  GpuFabric& fabric_;
  const collective::Call call_;
  const Deadline deadline_;
  Setup step_ = Setup::kIntroduce;
  std::unique_ptr<collective::PendingCall> current_;
  std::vector<std::byte> mine_, gpu_infos_;
  Communicators communicators_;
  FabricPtr over_mpi_;                            // being tried; null: NCCL's communicators are made
  std::optional<collective::DeviceProbe> probe_;  // of it
  Status failure_;                                // the error of this member's communicators or probe
  bool late_ = false;                             // the peers did not join in time
  // The least value of all members. i < size: member i could not join. size + i: member i waited in vain.
  // 2 * size: all have joined.
  std::vector<std::int64_t> votes_;
};

}  // namespace roundelay::gpu
