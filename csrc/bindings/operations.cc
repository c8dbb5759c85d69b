// Operations on tensors: checked, submitted, synchronized.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "adapter/operand.h"
#include "bindings/errors.h"
#include "bindings/life.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

using Name = std::optional<std::string>;

// How long a waiter sleeps between two looks at Python's signals.
constexpr Duration kSignalPeriod = std::chrono::milliseconds(100);

wire::Request request_of(Operation operation, const Name& name) {
  wire::Request request;
  request.operation = operation;
  request.name = name.value_or("");
  return request;
}

LaneId lane_of(ProcessSetId process_set) { return {.process_set = process_set, .device = LaneId::kCpu}; }

// A call that fails here is a failed use of its name for the peers, too: they raise at once, with this text.
[[noreturn]] void refuse(runtime::Context& context, LaneId lane, wire::Request request, const Status& error) {
  request.error = error.message();
  context.submit_error(lane, std::move(request));
  raise(error);
}

submit::Handle submit(const at::Tensor& tensor, const at::Tensor& output, wire::Request request,
                      LaneId lane) {
  const auto context = life_context();
  Result<adapter::Operand> operand = adapter::Operand::make(tensor, output, request.name);
  if (!operand.ok()) refuse(*context, lane, std::move(request), operand.status());
  adapter::OperandPtr kept(new adapter::Operand(std::move(operand).value()));
  request.dtype = kept->dtype();
  request.shape = kept->shape();
  const submit::Handle handle = value_of(context->submit(
      {.lane = lane, .request = std::move(request), .input = kept->input(), .output = kept->output()}));
  life_operands().keep(handle, std::move(kept));
  return handle;
}

submit::Handle allreduce(const at::Tensor& tensor, const at::Tensor& output, const Name& name, int op,
                         double prescale_factor, double postscale_factor, ProcessSetId process_set) {
  wire::Request request = request_of(Operation::kAllreduce, name);
  const LaneId lane = lane_of(process_set);
  if (op < 0 || op >= kReduceOpCount || op == static_cast<int>(ReduceOp::kAdasum))
    refuse(*life_context(), lane, std::move(request),
           Status::invalid("op must be one of Average, Sum, Min, Max, Product, not " + std::to_string(op)));
  request.reduce_op = static_cast<ReduceOp>(op);
  request.prescale.factor = prescale_factor;
  request.postscale.factor = postscale_factor;
  return submit(tensor, output, std::move(request), lane);
}

submit::Handle broadcast(const at::Tensor& tensor, const at::Tensor& output, int root, const Name& name,
                         ProcessSetId process_set) {
  wire::Request request = request_of(Operation::kBroadcast, name);
  request.root = root;
  return submit(tensor, output, std::move(request), lane_of(process_set));
}

submit::Handle barrier(ProcessSetId process_set) {
  return value_of(life_context()->submit(
      {.lane = lane_of(process_set), .request = request_of(Operation::kBarrier, std::nullopt)}));
}

void submit_error(const std::string& operation, const Name& name, const std::string& text,
                  ProcessSetId process_set) {
  for (int i = 0; i < kOperationCount; ++i) {
    if (name_of(static_cast<Operation>(i)) != operation) continue;
    wire::Request request = request_of(static_cast<Operation>(i), name);
    request.error = text;
    life_context()->submit_error(lane_of(process_set), std::move(request));
    return;
  }
  throw py::value_error("there is no operation '" + operation + "'");
}

// Sleeps until the handle is done. Signal handlers run in between; if one raises, the handle stays valid.
Status wait(runtime::Context& context, submit::Handle handle) {
  for (;;) {
    std::optional<Status> status;
    {
      const py::gil_scoped_release no_gil;
      status = context.wait(handle, Deadline::after(kSignalPeriod));
    }
    if (status) return *status;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

bool synchronize(submit::Handle handle) {
  const auto context = life_context();
  if (!context->poll(handle).ok()) return false;  // unknown
  const Status status = wait(*context, handle);
  adapter::OperandPtr operand = life_operands().take(handle);
  if (status.ok()) {
    const py::gil_scoped_release no_gil;
    if (operand) operand->finish();
    return true;
  }
  // After a fault the medium may still write: the memory is given up for good.
  if (status.code() == StatusCode::kAborted) (void)operand.release();
  throw InternalError(status.message());
}

}  // namespace

void bind_operations(py::module_& module) {
  module.def("allreduce_async", allreduce, py::arg("tensor"), py::arg("output"), py::arg("name"),
             py::arg("op"), py::arg("prescale_factor"), py::arg("postscale_factor"), py::arg("process_set"));
  module.def("broadcast_async", broadcast, py::arg("tensor"), py::arg("output"), py::arg("root"),
             py::arg("name"), py::arg("process_set"));
  module.def("barrier_async", barrier, py::arg("process_set"));
  module.def("submit_error", submit_error, py::arg("operation"), py::arg("name"), py::arg("text"),
             py::arg("process_set"));
  module.def(
      "poll", [](submit::Handle handle) { return value_of(life_context()->poll(handle)); },
      py::arg("handle"));
  module.def("synchronize", synchronize, py::arg("handle"));
  module.def("flush", [] { life_context()->flush(); });
}

}  // namespace roundelay::bindings
