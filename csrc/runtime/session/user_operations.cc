#include "runtime/session/user_operations.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "execute/operations/operations.h"
#include "wire/describe.h"

namespace roundelay::runtime {
namespace {

Status unknown(complete::Handle handle) {
  return Status::invalid("handle " + std::to_string(handle) + " was not created or has been cleared");
}

}  // namespace

Result<complete::Handle> UserOperations::submit(submit::Arguments&& arguments, Route route) {
  Result<std::shared_ptr<execute::Lane>> lane = sets_.lane_for_use(route.process_set);
  if (!lane.ok()) return lane.status();
  submit::Entry entry{std::move(arguments)};
  entry.times.submitted = steady_now();
  std::string wrong = execute::wrong_with(entry, (*lane)->group());
  if (wrong.empty() && entry.request.device == DeviceType::kGpu) wrong = refuse_gpu(entry.gpu);
  if (wrong.empty()) return add(**lane, std::move(entry), route.blocking);
  entry.request.error = wire::describe(entry.request) + ": " + wrong;
  const Status status = Status::invalid(entry.request.error);
  // The peers need the text only, and would refuse a message with these.
  if (static_cast<int>(entry.request.reduce_op) >= kReduceOpCount) entry.request.reduce_op = ReduceOp::kSum;
  entry.request.fields.clear();
  add_error(**lane, std::move(entry.request));
  return status;
}

Result<complete::Handle> UserOperations::call(submit::Arguments&& arguments, bool blocking) {
  const std::shared_ptr<execute::Lane> lane = sets_.lane_of(LaneId{});
  const auto entry = std::make_shared<submit::Entry>();
  static_cast<submit::Arguments&>(*entry) = std::move(arguments);
  entry->times.submitted = steady_now();
  engine_.start();
  Result<complete::Handle> handle = lane->table().admit(*entry, handles_);
  if (!handle.ok()) return handle;
  lane->enqueue(entry);
  if (!blocking) lane->wake();  // a blocking caller steps the lane itself
  return handle;
}

// Returns why this process cannot work on the GPU; empty if it can. The first operation chooses the process's
// GPU.
std::string UserOperations::refuse_gpu(int index) {
  if (gpu_runtime_ == nullptr) {
    return "the tensor is on a GPU, but this build has no CUDA part; move it with cpu(), or build where nvcc "
           "is";
  }
  int ours = -1;
  if (gpu_.compare_exchange_strong(ours, index) || ours == index) return {};
  return "the tensor is on GPU " + std::to_string(index) + ", but this process works on GPU " +
         std::to_string(ours) + "; call torch.cuda.set_device(hvd.local_rank()) before tensors are made";
}

Result<complete::Handle> UserOperations::add(execute::Lane& lane, submit::Entry entry, bool blocking) {
  engine_.start();
  // A blocking caller is about to step the lane itself: peers that wait for this call need not wake the
  // lane's thread.
  std::optional<execute::ScheduleWatch> watch;
  if (blocking) watch.emplace(lane.schedule());
  Result<complete::Handle> handle = lane.table().add(std::move(entry), handles_);
  if (watch && handle.ok()) watch->leave_to_wait();
  if (handle.ok() && lane.id() != LaneId{}) sets_.remember(*handle, lane.id());
  if (lane.table().take_unwatched()) lane.wake();
  if (lane.goes_by_schedule()) return handle;  // the table has announced it
  lane.note_unreported();
  // A blocking caller negotiates itself, or Engine::wait() wakes a thread. After a refused call nobody waits,
  // but the peers must hear of it.
  if (!blocking || !handle.ok()) engine_.wake();
  return handle;
}

void UserOperations::submit_error(ProcessSetId process_set, wire::Request request) {
  const Result<std::shared_ptr<execute::Lane>> lane = sets_.lane_for_use(process_set);
  if (lane.ok()) add_error(**lane, std::move(request));
}

void UserOperations::add_error(execute::Lane& lane, wire::Request request) {
  engine_.start();
  lane.table().add_error(std::move(request));
  engine_.wake();
}

Result<RegionPtr> UserOperations::make_region(ProcessSetId process_set, std::uint64_t key, std::size_t bytes,
                                              int gpu) {
  const Result<std::shared_ptr<execute::Lane>> lane = sets_.lane_for_use(process_set);
  if (!lane.ok()) return lane.status();
  if (gpu < 0) return (*lane)->make_region(key, bytes);
  const std::string wrong = refuse_gpu(gpu);
  if (!wrong.empty()) return Status::invalid(wrong);
  return make_gpu_region(*gpu_runtime_, gpu, key, bytes);
}

Result<complete::Handle> UserOperations::submit_change(wire::Request request, const std::string& wrong) {
  const std::shared_ptr<execute::Lane> world = sets_.lane_of(LaneId{});
  request.operation = Operation::kProcessSet;
  if (!wrong.empty()) {
    wire::Request failed;  // without the ranks, as wrong ones may not travel
    failed.operation = request.operation;
    failed.error = wrong;
    add_error(*world, std::move(failed));
    return Status::invalid(wrong);
  }
  submit::Entry entry;
  entry.request = std::move(request);
  entry.times.submitted = steady_now();
  return add(*world, std::move(entry), false);
}

Result<bool> UserOperations::poll(complete::Handle handle) const {
  const auto done = handles_.done(handle);
  if (!done) return unknown(handle);
  return *done;
}

std::optional<Status> UserOperations::wait(complete::Handle handle, Deadline deadline) {
  const auto done = handles_.done(handle);
  if (!done) return unknown(handle);
  if (!*done && !wait_until_done(handle, deadline)) return std::nullopt;
  sets_.forget(handle);
  return handles_.take_status(handle);
}

bool UserOperations::wait_until_done(complete::Handle handle, Deadline deadline) {
  const LaneId id = sets_.lane_of_handle(handle);
  const auto lane = sets_.lane_of(id);
  if (lane && lane->has_work() && lane->table().in_flight() == 0) {
    // A call of its own: nothing is negotiated.
  } else if (!lane || !lane->table().scheduled()) {
    inbox_.request_end_of_linger(id);
  } else if (lane->table().waited_for(handle)) {
    lane->note_unreported();
  }
  return engine_.wait(handle, id, deadline);
}

bool UserOperations::anything_lingers() const {
  const auto lanes = sets_.lanes();
  return std::any_of(lanes.begin(), lanes.end(), [](const auto& lane) {
    return !lane->goes_by_schedule() && lane->table().in_flight() > 0;
  });
}

void UserOperations::end_linger() {
  if (!anything_lingers()) return;
  inbox_.request_end_of_linger();
  engine_.wake();
}

}  // namespace roundelay::runtime
