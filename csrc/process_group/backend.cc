#include "process_group/backend.h"

#include <ATen/Functions.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "adapter/gil.h"
#include "base/annotations.h"
#include "base/leak.h"
#include "base/log.h"
#include "process_group/errors.h"
#include "process_group/message_work.h"
#include "process_group/monitored_barrier.h"
#include "process_group/tensors.h"

namespace roundelay::process_group {
namespace {

// The backends that have not stopped.
struct Living {
  Mutex mutex;
  std::vector<c10::weak_intrusive_ptr<RoundelayBackend>> all GUARDED_BY(mutex);
};
Living& living() {
  static auto& all = *new Living;  // lives as long as the process
  return all;
}

// Returns them, and forgets those that have gone.
std::vector<c10::intrusive_ptr<RoundelayBackend>> take_living() {
  std::vector<c10::intrusive_ptr<RoundelayBackend>> found;
  MutexLock lock(living().mutex);
  std::erase_if(living().all, [&](const auto& weak) {
    auto one = weak.lock();
    const bool gone = one == nullptr || one->stopped();
    if (!gone) found.push_back(std::move(one));
    return gone;
  });
  return found;
}

// Releases Python's lock if this thread has it.
std::optional<adapter::GilReleased> release_gil() {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return std::nullopt;
  return std::optional<adapter::GilReleased>(std::in_place);
}

}  // namespace

RoundelayBackend::RoundelayBackend(std::shared_ptr<GroupSession> group, milliseconds timeout)
    : Backend(group->context().rank_info().rank, group->context().rank_info().size),
      process_(::getpid()),
      group_(std::move(group)),
      options_(c10::make_intrusive<Options>("roundelay", timeout)) {
  if (auto messages = group_->take_messages()) {
    // A message that its user still has may outlive the backend, and asks for the session.
    messages_ = std::make_shared<MessageLane>(
        std::move(messages),
        MessageLane::Session{[kept = group_] { return kept->context().fault(); },
                             [kept = group_] { return kept->context().left_rank(); },
                             [kept = group_](const std::string& why) { kept->context().fail(why); }, rank_});
  }
}

c10::intrusive_ptr<RoundelayBackend> RoundelayBackend::create(std::shared_ptr<GroupSession> group,
                                                              milliseconds timeout) {
  auto made = c10::make_intrusive<RoundelayBackend>(std::move(group), timeout);
  MutexLock lock(living().mutex);
  std::erase_if(living().all, [](const auto& weak) { return weak.expired(); });
  living().all.emplace_back(made);
  return made;
}

// Without weak references release_resources() is not called before.
RoundelayBackend::~RoundelayBackend() { RoundelayBackend::release_resources(); }

void RoundelayBackend::release_resources() {
  if (group_ == nullptr) return;
  if (::getpid() != process_) {
    // The threads that a destructor would join are not in a forked child.
    leak(std::move(group_));
    leak(std::move(messages_));
    return;
  }
  const std::optional<adapter::GilReleased> no_gil = release_gil();
  stop();
  messages_.reset();
  group_.reset();
}

void RoundelayBackend::stop() {
  if (::getpid() != process_ || stopped_.exchange(true)) return;
  if (messages_) messages_->stop();
  group_->context().shutdown();
}

void RoundelayBackend::fail(const std::string& what) {
  if (::getpid() == process_) group_->context().fail("rank " + std::to_string(rank_) + " " + what);
}

void RoundelayBackend::abort() {
  if (::getpid() == process_) group_->abort();
}

c10::intrusive_ptr<::c10d::Backend> RoundelayBackend::split(const c10::intrusive_ptr<::c10d::Store>& store,
                                                            const std::vector<int>& ranks,
                                                            const c10::intrusive_ptr<Options>& options) {
  check_usable();
  const auto mine = std::ranges::find(ranks, rank_);
  if (mine == ranks.end()) return nullptr;
  const std::optional<adapter::GilReleased> no_gil = release_gil();
  auto group = group_->split(std::make_shared<C10dStore>(store), static_cast<int>(mine - ranks.begin()),
                             static_cast<int>(ranks.size()), options->group_name);
  check(group.status());
  return create(std::move(group).value(), options->timeout);
}

::c10d::ErrorType RoundelayBackend::getError() {
  return group_->context().fault().ok() ? ::c10d::ErrorType::SUCCESS : ::c10d::ErrorType::COMM_ERROR;
}

void RoundelayBackend::check_usable() const {
  if (::getpid() != process_) {
    check(Status::aborted(
        "this process was forked from one with a process group: make a group of its own, or start processes "
        "by spawn"));
  }
  if (stopped_) check(Status::aborted("the process group was destroyed"));
}

milliseconds RoundelayBackend::time_for(milliseconds asked) const {
  return asked == ::c10d::kUnsetTimeout || asked == kNoTimeout ? options_->timeout : asked;
}

bool RoundelayBackend::supportsTensorAlloc(c10::DeviceIndex device) {
  return device < 0 && !stopped_ && ::getpid() == process_ && group_->context().fabric_name() == "shm";
}

// DDP sees its buckets of complex gradients as real numbers, and expects them so from a backend
// (Reducer::initialize_buckets).
at::Tensor RoundelayBackend::allocateTensor(long size, at::TensorOptions options) {
  check_usable();
  const c10::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  if (c10::isComplexType(type)) {
    size *= 2;
    options = options.dtype(c10::toRealValueType(type));
  }
  const auto bytes = static_cast<std::size_t>(size) * options.dtype().itemsize();
  if (bytes > 0 && options.device().is_cpu() && supportsTensorAlloc(options.device().index())) {
    const Result<RegionPtr> memory = group_->context().make_region(0, 0, bytes, -1);
    if (memory.ok()) return at::from_blob((*memory)->own.data(), {size}, [kept = *memory](void*) {}, options);
    log(LogLevel::kInfo, "ordinary memory for a tensor of a process group: " + memory.status().message());
  }
  return at::empty({size}, options);
}

RoundelayBackend::WorkPtr RoundelayBackend::start(Prepared prepared, milliseconds timeout, bool async) {
  prepared.timeout = time_for(timeout);
  prepared.blocking = !async;
  ++calls_;
  return CallWork::start(group_, std::move(prepared));
}

RoundelayBackend::WorkPtr RoundelayBackend::broadcast(Tensors& tensors,
                                                      const ::c10d::BroadcastOptions& options) {
  check_usable();
  return start(prepare_broadcast(place(), tensors, static_cast<int>(options.rootRank)), options.timeout,
               options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::allreduce(Tensors& tensors,
                                                      const ::c10d::AllreduceOptions& options) {
  check_usable();
  if (tensors.size() == 1 && tensors.front().is_sparse()) return sum_sparse(tensors.front(), options);
  return start(prepare_allreduce(place(), tensors, options.reduceOp), options.timeout, options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::average(
    const at::Tensor& bucket, std::shared_ptr<const compress::BucketTechnique> technique,
    std::int32_t digest) {
  check_usable();
  Prepared prepared = technique ? prepare_average(place(), bucket, std::move(technique), digest)
                                : prepare_allreduce(place(), {bucket}, ::c10d::ReduceOp::AVG);
  return start(std::move(prepared), kNoTimeout, true);
}

void RoundelayBackend::give_back(const at::Tensor& bucket,
                                 std::shared_ptr<const compress::BucketTechnique> flush) {
  check_usable();
  Prepared prepared = prepare_average(place(), bucket, std::move(flush), 0);
  prepared.timeout = options_->timeout;
  prepared.blocking = prepared.local = true;
  CallWork::start(group_, std::move(prepared))->wait(kNoTimeout);
}

std::vector<int> RoundelayBackend::level_sizes() const {
  check_usable();
  Result<std::vector<int>> sizes = group_->context().level_sizes(0, DeviceType::kCpu);
  check(sizes.status());
  return std::move(sizes).value();
}

RoundelayBackend::WorkPtr RoundelayBackend::allreduce_coalesced(
    Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

RoundelayBackend::WorkPtr RoundelayBackend::reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) {
  check_usable();
  return start(prepare_reduce(place(), tensors, static_cast<int>(options.rootRank), options.reduceOp),
               options.timeout, options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const ::c10d::AllgatherOptions& options) {
  check_usable();
  if (outputs.size() != 1) refuse("all_gather: requires a single list of outputs");
  return start(prepare_allgather(place(), outputs.front(), only_tensor(inputs, "all_gather")),
               options.timeout, options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const ::c10d::AllgatherOptions& options) {
  check_usable();
  return start(prepare_allgather(place(), output, input), options.timeout, options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::gather(TensorLists& outputs, Tensors& inputs,
                                                   const ::c10d::GatherOptions& options) {
  check_usable();
  return start(prepare_gather(place(), outputs, inputs, static_cast<int>(options.rootRank)), options.timeout,
               options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                    const ::c10d::ScatterOptions& options) {
  check_usable();
  return start(prepare_scatter(place(), outputs, inputs, static_cast<int>(options.rootRank)), options.timeout,
               options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                           const ::c10d::ReduceScatterOptions& options) {
  check_usable();
  if (inputs.size() != 1) refuse("reduce_scatter: requires a single list of inputs");
  const at::Tensor& output = only_tensor(outputs, "reduce_scatter");
  return start(prepare_reduce_scatter(place(), output, inputs.front(), options.reduceOp), options.timeout,
               options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const ::c10d::ReduceScatterOptions& options) {
  check_usable();
  return start(prepare_reduce_scatter(place(), output, input, options.reduceOp), options.timeout,
               options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<int64_t>& output_splits,
                                                          std::vector<int64_t>& input_splits,
                                                          const ::c10d::AllToAllOptions& options) {
  check_usable();
  return start(prepare_alltoall(place(), output, input, output_splits, input_splits), options.timeout,
               options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const ::c10d::AllToAllOptions& options) {
  check_usable();
  return start(prepare_alltoall(place(), outputs, inputs), options.timeout, options.asyncOp);
}

RoundelayBackend::WorkPtr RoundelayBackend::barrier(const ::c10d::BarrierOptions& options) {
  check_usable();
  return start(prepare_barrier(), options.timeout, options.asyncOp);
}

MessageLane& RoundelayBackend::messages() const {
  if (!messages_) refuse("send, recv: the process group has one rank");
  return *messages_;
}

RoundelayBackend::WorkPtr RoundelayBackend::message(MessageLane::Message::Kind kind, Tensors& tensors,
                                                    int peer, int tag) {
  check_usable();
  const at::Tensor& tensor = only_tensor(tensors, "send, recv");
  if (tag < 0) refuse("send, recv: tag " + std::to_string(tag) + " is negative");
  if (kind != MessageLane::Message::Kind::kReceiveAny && (peer < 0 || peer >= size_ || peer == rank_)) {
    refuse("send, recv: rank " + std::to_string(peer) + " is no other rank of a group of " +
           std::to_string(size_));
  }
  static_cast<void>(messages());
  MessageLane::Message message;
  message.kind = kind;
  message.peer = peer;
  message.tag = static_cast<MessageLane::Tag>(tag);
  message.deadline = Deadline::after(options_->timeout);
  return MessageWork::start(messages_, std::move(message), tensor);
}

RoundelayBackend::WorkPtr RoundelayBackend::send(Tensors& tensors, int to, int tag) {
  return message(MessageLane::Message::Kind::kSend, tensors, to, tag);
}

RoundelayBackend::WorkPtr RoundelayBackend::recv(Tensors& tensors, int from, int tag) {
  return message(MessageLane::Message::Kind::kReceive, tensors, from, tag);
}

RoundelayBackend::WorkPtr RoundelayBackend::recvAnysource(Tensors& tensors, int tag) {
  return message(MessageLane::Message::Kind::kReceiveAny, tensors, -1, tag);
}

void RoundelayBackend::monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) {
  check_usable();
  const milliseconds timeout =
      options.timeout == ::c10d::kUnsetTimeout ? options_->timeout : options.timeout;  // 0 is a time here
  if (messages_) monitored_barrier(*messages_, rank_, size_, timeout, wait_all_ranks);
}

void stop_all() {
  for (const auto& one : take_living()) one->stop();
}

void fail_all(const std::string& what) {
  for (const auto& one : take_living()) one->fail(what);
}

}  // namespace roundelay::process_group
