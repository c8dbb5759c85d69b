#include "tests/cpp/doubles/fake_nccl.h"

#include <atomic>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "tests/cpp/doubles/fake_nccl_room.h"

namespace roundelay::doubles {
namespace {

using platform::NcclCommunicator;
using platform::NcclId;

constexpr Duration kFinishing = std::chrono::seconds(2);

const std::byte* bytes_at(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* bytes_at(void* memory) { return static_cast<std::byte*>(memory); }

// The operations that end_group() starts at once: collectives one by one, then all messages together.
struct Launch {
  GpuStream stream = nullptr;
  std::vector<FakeNcclPart> parts;
  std::vector<FakeNcclMessage> messages;
  [[nodiscard]] bool empty() const { return parts.empty() && messages.empty(); }
};

// The real kernels would read and write freed memory.
void expect_live(FakeGpu& gpu, const Launch& launch, std::size_t members) {
  using Kind = FakeNcclPart::Kind;
  for (const FakeNcclPart& part : launch.parts) {
    const std::size_t bytes =
        part.count *
        (part.kind == Kind::kAllReduce || part.kind == Kind::kReduceScatter ? size_of(part.dtype) : 1);
    gpu.expect_live({part.from, bytes * (part.kind == Kind::kReduceScatter ? members : 1)});
    gpu.expect_live({part.to, bytes * (part.kind == Kind::kAllGather ? members : 1)});
  }
  for (const FakeNcclMessage& message : launch.messages)
    gpu.expect_live({message.from != nullptr ? message.from : message.to, message.bytes});
}

struct Seat {
  std::shared_ptr<FakeNcclRoom> room;
  int index = 0;
  int device = 0;
};

class FakeCommunicator final : public NcclCommunicator {
 public:
  FakeCommunicator(FakeGpu& gpu, std::shared_ptr<FakeNcclFaults> faults, Seat seat, unsigned seed)
      : gpu_(gpu),
        faults_(std::move(faults)),
        seat_(std::move(seat)),
        making_(faults_->making()),
        random_(seed) {
    seat_.room->enter();
  }
  ~FakeCommunicator() override {
    const bool over = ready().ok() && started_.empty() &&
                      seat_.room->wait_finished(seat_.index, Deadline::after(kFinishing));
    if (!over) abort();
  }

  Result<bool> ready() override {
    if (aborted_) return Status::aborted("NCCL: the communicator was aborted (fake)");
    ROUNDELAY_RETURN_IF_ERROR(faults_->reported());
    ROUNDELAY_RETURN_IF_ERROR(seat_.room->error());
    if (!made_ && !make()) return false;
    if (!seat_.room->complete() || faults_->hanging()) return started_.empty() && seat_.room->complete();
    if (started_.empty()) return true;
    if (polls_left_-- > 0) return false;
    ROUNDELAY_RETURN_IF_ERROR(enqueue(std::exchange(started_, {})));
    return true;
  }
  void abort() override {
    if (aborted_.exchange(true)) return;
    faults_->count_abort();
    seat_.room->leave(seat_.index);
  }

  Status begin_group() override {
    ROUNDELAY_RETURN_IF_ERROR(check("begin_group", nullptr, true));
    grouped_ = true;
    return {};
  }
  Status end_group() override {
    grouped_ = false;
    polls_left_ = static_cast<int>(random_() % 4);
    return usable("end_group");
  }
  Status all_reduce(const void* from, void* to, std::size_t count, DType dtype, Reduction reduction,
                    GpuStream stream) override {
    return start("all_reduce", stream,
                 {FakeNcclPart::Kind::kAllReduce, bytes_at(from), bytes_at(to), count, dtype, reduction});
  }
  Status reduce_scatter(const void* from, void* to, std::size_t count_each, DType dtype, Reduction reduction,
                        GpuStream stream) override {
    return start(
        "reduce_scatter", stream,
        {FakeNcclPart::Kind::kReduceScatter, bytes_at(from), bytes_at(to), count_each, dtype, reduction});
  }
  Status all_gather(const void* from, void* to, std::size_t bytes_each, GpuStream stream) override {
    return start("all_gather", stream,
                 {FakeNcclPart::Kind::kAllGather, bytes_at(from), bytes_at(to), bytes_each});
  }
  Status broadcast(void* data, std::size_t bytes, int root, GpuStream stream) override {
    FakeNcclPart part{FakeNcclPart::Kind::kBroadcast, bytes_at(data), bytes_at(data), bytes};
    part.root = root;
    return start("broadcast", stream, part);
  }
  Status send(const void* from, std::size_t bytes, int to, GpuStream stream) override {
    return start("send", stream, FakeNcclMessage{to, bytes_at(from), nullptr, bytes});
  }
  Status receive(void* to, std::size_t bytes, int from, GpuStream stream) override {
    return start("receive", stream, FakeNcclMessage{from, nullptr, bytes_at(to), bytes});
  }

 private:
  [[nodiscard]] Status usable(const char* call) const {
    if (aborted_) return Status::aborted("NCCL: the communicator was aborted (fake)");
    return faults_->of(call);
  }
  [[nodiscard]] Status check(const char* call, GpuStream stream, bool sound) const {
    ROUNDELAY_RETURN_IF_ERROR(usable(call));
    const std::string where = std::string("NCCL: ") + call;
    if (!seat_.room->complete()) return Status::aborted(where + " before all had joined (fake)");
    if (!grouped_ && !started_.empty()) {
      return Status::aborted(where + " while another call is in progress (fake)");
    }
    if (!started_.empty() && started_.stream != stream) {
      return Status::aborted(where + " on another stream than its group (fake)");
    }
    return sound ? Status{} : Status::aborted(where + " of what NCCL does not have (fake)");
  }
  // Goes on to make the communicator. Returns whether it is made.
  bool make() {
    if (making_.heard) making_.heard(call_++);
    if (seat_.room->complete()) made_ = making_.calls-- <= 0;
    return made_;
  }
  Status start(const char* call, GpuStream stream, const FakeNcclPart& part) {
    const bool floating = is_floating(part.dtype);
    const bool sound = platform::nccl_reduces(part.dtype) && (floating || !part.reduction.average);
    ROUNDELAY_RETURN_IF_ERROR(check(call, stream, sound));
    started_.stream = stream;
    started_.parts.push_back(part);
    polls_left_ = static_cast<int>(random_() % 4);
    return {};
  }
  Status start(const char* call, GpuStream stream, const FakeNcclMessage& message) {
    ROUNDELAY_RETURN_IF_ERROR(check(call, stream, message.peer != seat_.index));
    started_.stream = stream;
    started_.messages.push_back(message);
    polls_left_ = static_cast<int>(random_() % 4);
    return {};
  }
  Status enqueue(Launch launch) {
    seat_.room->expect(seat_.index);
    const GpuStream stream = launch.stream;
    const auto work = [&gpu = gpu_, seat = seat_, launch = std::move(launch)] {
      expect_live(gpu, launch, seat.room->size());
      for (const FakeNcclPart& part : launch.parts) seat.room->meet(seat.index, part);
      if (!launch.messages.empty()) seat.room->exchange(seat.index, launch.messages);
      seat.room->finished(seat.index);
    };
    return gpu_.enqueue(seat_.device, stream, work, [seat = seat_] { seat.room->leave(seat.index); });
  }

  FakeGpu& gpu_;
  const std::shared_ptr<FakeNcclFaults> faults_;
  const Seat seat_;
  FakeNcclFaults::Making making_;
  std::minstd_rand random_;
  std::atomic<bool> aborted_{false};
  bool made_ = false;
  int call_ = 0;  // of ready(), until the communicator is made
  bool grouped_ = false;
  int polls_left_ = 0;
  Launch started_;
};

}  // namespace

Result<NcclId> FakeNccl::make_id() {
  ROUNDELAY_RETURN_IF_ERROR(faults_->of("make_id"));
  static std::atomic<std::uint64_t> ids{0};
  const std::uint64_t number = ++ids;
  NcclId id{};
  std::memcpy(id.data(), &number, sizeof number);
  return id;
}

Result<std::unique_ptr<NcclCommunicator>> FakeNccl::join(const NcclId& id, int members, int index,
                                                         int device) {
  ROUNDELAY_RETURN_IF_ERROR(faults_->of("join"));
  Seat seat{FakeNcclRoom::of(id, members), index, device};
  const unsigned seed = seed_ + static_cast<unsigned>(index);
  return std::unique_ptr<NcclCommunicator>(
      std::make_unique<FakeCommunicator>(gpu_, faults_, std::move(seat), seed));
}

void FakeNcclFaults::fail(const std::string& call, const Status& cause) {
  const MutexLock lock(mutex_);
  failing_[call] = cause;
}

void FakeNcclFaults::hang() {
  const MutexLock lock(mutex_);
  hanging_ = true;
}

void FakeNcclFaults::report(const Status& cause) {
  const MutexLock lock(mutex_);
  reported_ = cause;
}

void FakeNcclFaults::make_so(Making how) {
  const MutexLock lock(mutex_);
  making_ = std::move(how);
}

FakeNcclFaults::Making FakeNcclFaults::making() const {
  const MutexLock lock(mutex_);
  return making_;
}

void FakeNcclFaults::count_abort() {
  const MutexLock lock(mutex_);
  ++aborts_;
}

Status FakeNcclFaults::of(const std::string& call) const {
  const MutexLock lock(mutex_);
  const auto found = failing_.find(call);
  return found == failing_.end() ? Status{} : found->second;
}

bool FakeNcclFaults::hanging() const {
  const MutexLock lock(mutex_);
  return hanging_;
}

Status FakeNcclFaults::reported() const {
  const MutexLock lock(mutex_);
  return reported_;
}

int FakeNcclFaults::aborts() const {
  const MutexLock lock(mutex_);
  return aborts_;
}

}  // namespace roundelay::doubles
