#include "process_group/work.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "collective/whole_call.h"
#include "process_group/errors.h"

namespace roundelay::process_group {
namespace {

constexpr Duration kBetweenSignals = std::chrono::milliseconds(100);

// Runs Python's signal handlers, if this is the main thread. Throws what they raise.
void look_for_signals() {
  if (Py_IsInitialized() == 0 || PyGILState_Check() != 0) return;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

// Keeps the work, and with it the tensors, until the lane has dropped the call.
struct OwnedCall : collective::WholeCall {
  c10::intrusive_ptr<CallWork> work;
};

submit::Arguments arguments_of(const Prepared& prepared, std::shared_ptr<OwnedCall> call) {
  submit::Arguments arguments;
  const collective::CallMark& mark = collective::options_of(call->call).mark;
  arguments.request.operation = mark.operation;
  arguments.request.reduce_op = mark.reduce_op;
  arguments.request.dtype = prepared.dtype;
  const std::size_t bytes = std::max<std::size_t>(mark.bytes, collective::result_bytes(call->call));
  const std::size_t count = bytes / size_of(prepared.dtype);
  arguments.request.shape = {static_cast<std::int64_t>(count)};
  submit::Part part;
  part.dtype = prepared.dtype;
  part.count = count;
  if (prepared.technique) {
    part.output = std::get<collective::AllreduceCall>(call->call).buffer.data();
    part.input = part.output;
    arguments.technique = prepared.technique;
  }
  arguments.parts.push_back(std::move(part));
  arguments.results = call->work.get();
  arguments.call = std::move(call);
  return arguments;
}

}  // namespace

void Prepared::take(const Memory& input) {
  kept.push_back(input.tensor());
  begin = input.begin();
}

void Prepared::give(const Memory& output) {
  kept.push_back(output.tensor());
  finish = output.finish();
}

bool wait_in_steps(const std::function<bool()>& done, const std::function<void(Deadline)>& step,
                   Deadline deadline) {
  while (!done()) {
    if (deadline.passed()) return false;
    step(deadline.sooner(Deadline::after(kBetweenSignals)));
    look_for_signals();
  }
  return true;
}

Deadline deadline_of(std::chrono::milliseconds timeout) {
  return timeout == kNoTimeout ? Deadline::never() : Deadline::after(timeout);
}

CallWork::CallWork(std::shared_ptr<GroupSession> group, Prepared prepared)
    : ::c10d::Work(group->context().rank_info().rank, prepared.type, prepared.title,
                   std::optional<std::vector<at::Tensor>>(prepared.inputs)),
      group_(std::move(group)),
      prepared_(std::move(prepared)),
      copies_(device_of(prepared_.inputs, prepared_.results)),
      future_(copies_.device()) {}

CallWork::~CallWork() { forget(); }

c10::intrusive_ptr<CallWork> CallWork::start(const std::shared_ptr<GroupSession>& group, Prepared prepared) {
  auto call = std::make_shared<OwnedCall>();
  call->call = std::move(prepared.call);
  call->timeout = prepared.timeout;
  call->local = prepared.local;
  const bool blocking = prepared.blocking;
  auto work = call->work = c10::make_intrusive<CallWork>(group, std::move(prepared));
  if (!work->copies_.device().is_cpu())
    call->begin = [one = work.get()] { return one->copy(one->prepared_.begin); };
  const Result<complete::Handle> handle =
      group->context().call(arguments_of(work->prepared_, std::move(call)), blocking);
  check(handle.status());
  work->handle_.store(*handle, std::memory_order_release);
  return work;
}

Status CallWork::copy(const std::function<void()>& copies) {
  return copies_.run(copies, deadline_of(prepared_.timeout), [this] { return group_->context().fault(); });
}

// Lets the table of handles forget the call, which is over.
void CallWork::forget() {
  const complete::Handle handle = handle_.exchange(0, std::memory_order_acq_rel);
  if (handle != 0) static_cast<void>(group_->context().wait(handle, Deadline::at(steady_now())));
}

bool CallWork::wait(std::chrono::milliseconds timeout) {
  const bool over = wait_in_steps([this] { return isCompleted(); },
                                  [this](Deadline until) {
                                    // A second waiter finds no handle, and the work completed.
                                    const complete::Handle handle = handle_.load(std::memory_order_acquire);
                                    if (group_->context().wait(handle, until))
                                      handle_.store(0, std::memory_order_release);
                                  },
                                  deadline_of(timeout));
  if (!over) {
    check(Status::aborted(std::string(prepared_.title) + " was not over after " +
                          std::to_string(timeout.count()) + " ms, the timeout of this wait()"));
  }
  future_.wait_if_given();
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

void CallWork::abort() { group_->abort(); }

Result<submit::Results::Memory> CallWork::allocate(std::size_t /*part*/,
                                                   const std::vector<std::int64_t>& /*shape*/) {
  return Status::internal("a call of its own has its memory");
}

void CallWork::set_received_splits(std::vector<std::int64_t> /*rows*/) {}

void CallWork::set_over(const Status& outcome) {
  const std::exception_ptr error = exception_of(outcome.ok() ? copy(prepared_.finish) : outcome);
  if (!outcome.ok()) c10::raw::intrusive_ptr::incref(this);  // the medium may still write to the tensors
  if (outcome.ok()) {
    prepared_.kept.clear();
    prepared_.begin = prepared_.finish = nullptr;
  }
  finish(error);
  future_.complete(error, prepared_.results);
}

}  // namespace roundelay::process_group
