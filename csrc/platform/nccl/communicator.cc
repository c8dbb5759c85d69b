#include "platform/nccl/communicator.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "base/annotations.h"
#include "base/clock.h"

namespace roundelay::platform::nccl {
namespace {

// The time for NCCL's own threads to end. All operations have ended before.
constexpr Duration kFinalizing = std::chrono::seconds(2);

DataType type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return kFloat64;
    case DType::kFloat32:
      return kFloat32;
    case DType::kFloat16:
      return kFloat16;
    case DType::kBFloat16:
      return kBfloat16;
    case DType::kInt64:
      return kInt64;
    case DType::kInt32:
      return kInt32;
    case DType::kInt8:
      return kInt8;
    default:
      return kUint8;
  }
}

RedOp operator_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProduct:
      return kProd;
    case ReduceOp::kMin:
      return kMin;
    case ReduceOp::kMax:
      return kMax;
    default:
      return kSum;
  }
}

class Communicator final : public NcclCommunicator {
 public:
  Communicator(const Functions& functions, Comm comm) : nccl_(functions), comm_(comm) {}
  ~Communicator() override {
    const Result<bool> idle = ready();
    const MutexLock lock(mutex_);
    if (comm_ == nullptr) return;
    if (idle.ok() && *idle && finalized()) {
      static_cast<void>(nccl_.comm_destroy(comm_));
    } else {
      static_cast<void>(nccl_.comm_abort(comm_));
    }
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Result<bool> ready() override {
    const MutexLock lock(mutex_);
    ROUNDELAY_RETURN_IF_ERROR(usable());
    Code state = kSuccess;
    ROUNDELAY_RETURN_IF_ERROR(checked("ncclCommGetAsyncError", nccl_.comm_get_async_error(comm_, &state)));
    ROUNDELAY_RETURN_IF_ERROR(checked("a call in progress", state));
    return state == kSuccess;
  }
  void abort() override {
    const MutexLock lock(mutex_);
    if (comm_ == nullptr) return;
    static_cast<void>(nccl_.comm_abort(comm_));
    comm_ = nullptr;
  }

  Status begin_group() override {
    const MutexLock lock(mutex_);
    ROUNDELAY_RETURN_IF_ERROR(usable());
    return checked("ncclGroupStart", nccl_.group_start());
  }
  // Works on an aborted communicator too, because the group belongs to the calling thread.
  Status end_group() override {
    const MutexLock lock(mutex_);
    return checked("ncclGroupEnd", nccl_.group_end());
  }

  Status all_reduce(const void* from, void* to, std::size_t count, DType dtype, Reduction reduction,
                    GpuStream stream) override {
    return reduced("ncclAllReduce", reduction, [&](RedOp op, Comm comm) {
      return nccl_.all_reduce(from, to, count, type_of(dtype), op, comm, stream);
    });
  }
  Status reduce_scatter(const void* from, void* to, std::size_t count_each, DType dtype, Reduction reduction,
                        GpuStream stream) override {
    return reduced("ncclReduceScatter", reduction, [&](RedOp op, Comm comm) {
      return nccl_.reduce_scatter(from, to, count_each, type_of(dtype), op, comm, stream);
    });
  }
  Status all_gather(const void* from, void* to, std::size_t bytes_each, GpuStream stream) override {
    const MutexLock lock(mutex_);
    ROUNDELAY_RETURN_IF_ERROR(usable());
    return checked("ncclAllGather", nccl_.all_gather(from, to, bytes_each, kUint8, comm_, stream));
  }
  Status broadcast(void* data, std::size_t bytes, int root, GpuStream stream) override {
    const MutexLock lock(mutex_);
    ROUNDELAY_RETURN_IF_ERROR(usable());
    return checked("ncclBroadcast", nccl_.broadcast(data, data, bytes, kUint8, root, comm_, stream));
  }
  Status send(const void* from, std::size_t bytes, int to, GpuStream stream) override {
    const MutexLock lock(mutex_);
    ROUNDELAY_RETURN_IF_ERROR(usable());
    return checked("ncclSend", nccl_.send(from, bytes, kUint8, to, comm_, stream));
  }
  Status receive(void* to, std::size_t bytes, int from, GpuStream stream) override {
    const MutexLock lock(mutex_);
    ROUNDELAY_RETURN_IF_ERROR(usable());
    return checked("ncclRecv", nccl_.recv(to, bytes, kUint8, from, comm_, stream));
  }

 private:
  [[nodiscard]] Status usable() const REQUIRES(mutex_) {
    if (comm_ != nullptr) return {};
    return Status::aborted("NCCL: the communicator was aborted");
  }
  [[nodiscard]] Status checked(const char* call, Code result) const REQUIRES(mutex_) {
    if (result == kSuccess || result == kInProgress) return {};
    return error_of(nccl_, call, result, comm_);
  }

  template <typename Start>
  [[nodiscard]] Status reduced(const char* call, Reduction reduction, Start start) {
    const MutexLock lock(mutex_);
    ROUNDELAY_RETURN_IF_ERROR(usable());
    return checked(call, start(reduction.average ? kAvg : operator_of(reduction.op), comm_));
  }

  [[nodiscard]] bool finalized() REQUIRES(mutex_) {
    const Deadline deadline = Deadline::after(kFinalizing);
    Code state = nccl_.comm_finalize(comm_);
    while (state == kInProgress && !deadline.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (nccl_.comm_get_async_error(comm_, &state) != kSuccess) return false;
    }
    return state == kSuccess;
  }

  const Functions& nccl_;
  Mutex mutex_;
  Comm comm_ GUARDED_BY(mutex_);  // null after abort()
};

}  // namespace

Status error_of(const Functions& functions, const char* call, Code result, Comm comm) {
  std::string text = std::string("NCCL: ") + call + ": " + functions.get_error_string(result);
  const char* const last = functions.get_last_error(comm);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  return Status::aborted(text);
}

std::unique_ptr<NcclCommunicator> make_communicator(const Functions& functions, Comm comm) {
  return std::make_unique<Communicator>(functions, comm);
}

}  // namespace roundelay::platform::nccl
