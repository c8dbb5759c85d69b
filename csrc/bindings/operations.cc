// Operations on tensors: checked and submitted.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapter/operand.h"
#include "bindings/errors.h"
#include "bindings/life.h"
#include "bindings/submission.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

using Tensors = std::vector<at::Tensor>;

// A call that fails here is a failed use of its name for the peers, too: they raise at once, with this text.
[[noreturn]] void refuse(runtime::Context& context, ProcessSetId process_set, wire::Request request,
                         const Status& error) {
  request.error = error.message();
  context.submit_error(process_set, std::move(request));
  raise(error);
}

}  // namespace

wire::Request request_of(Operation operation, const Name& name) {
  wire::Request request;
  request.operation = operation;
  request.name = name.value_or("");
  return request;
}

submit::Handle submit(Result<adapter::OperandPtr> made, wire::Request request, ProcessSetId process_set,
                      std::vector<std::int64_t> splits) {
  const auto context = life_context();
  if (!made.ok()) refuse(*context, process_set, std::move(request), made.status());
  adapter::OperandPtr operand = std::move(made).value();
  std::vector<wire::TensorSpec> specs = operand->specs();
  if (!specs.empty()) {
    request.dtype = specs.front().dtype;
    request.shape = std::move(specs.front().shape);
    specs.erase(specs.begin());
    request.others = std::move(specs);
  }
  const submit::Handle handle = value_of(context->submit({.process_set = process_set,
                                                          .request = std::move(request),
                                                          .parts = operand->parts(),
                                                          .splits = std::move(splits),
                                                          .results = operand.get()}));
  life_operands().keep(handle, std::move(operand));
  return handle;
}

void set_reduction(wire::Request& request, int op, double prescale_factor, double postscale_factor,
                   ProcessSetId process_set) {
  if (op < 0 || op >= kReduceOpCount)
    refuse(*life_context(), process_set, std::move(request),
           Status::invalid("op must be one of Average, Sum, Adasum, Min, Max, Product, not " +
                           std::to_string(op)));
  request.reduce_op = static_cast<ReduceOp>(op);
  request.prescale.factor = prescale_factor;
  request.postscale.factor = postscale_factor;
}

namespace {

submit::Handle grouped_allreduce(const Tensors& tensors, const Tensors& outputs, const Name& name, int op,
                                 double prescale_factor, double postscale_factor, ProcessSetId process_set) {
  wire::Request request = request_of(Operation::kAllreduce, name);
  set_reduction(request, op, prescale_factor, postscale_factor, process_set);
  auto operand = adapter::Operand::make(tensors, outputs, request.name);
  return submit(std::move(operand), std::move(request), process_set);
}

submit::Handle allreduce(const at::Tensor& tensor, const at::Tensor& output, const Name& name, int op,
                         double prescale_factor, double postscale_factor, ProcessSetId process_set) {
  return grouped_allreduce({tensor}, {output}, name, op, prescale_factor, postscale_factor, process_set);
}

submit::Handle broadcast(const at::Tensor& tensor, const at::Tensor& output, int root, const Name& name,
                         ProcessSetId process_set) {
  wire::Request request = request_of(Operation::kBroadcast, name);
  request.root = root;
  auto operand = adapter::Operand::make({tensor}, {output}, request.name);
  return submit(std::move(operand), std::move(request), process_set);
}

submit::Handle barrier(ProcessSetId process_set) {
  return submit(adapter::Operand::make({}, ""), request_of(Operation::kBarrier, std::nullopt), process_set);
}

submit::Handle allgather(const Tensors& tensors, const Name& name, ProcessSetId process_set) {
  wire::Request request = request_of(Operation::kAllgather, name);
  auto operand = adapter::Operand::make(tensors, request.name);
  return submit(std::move(operand), std::move(request), process_set);
}

submit::Handle alltoall(const at::Tensor& tensor, std::vector<std::int64_t> splits, const Name& name,
                        ProcessSetId process_set) {
  wire::Request request = request_of(Operation::kAlltoall, name);
  auto operand = adapter::Operand::make({tensor}, request.name);
  return submit(std::move(operand), std::move(request), process_set, std::move(splits));
}

submit::Handle reducescatter(const Tensors& tensors, const Name& name, int op, double prescale_factor,
                             double postscale_factor, ProcessSetId process_set) {
  wire::Request request = request_of(Operation::kReducescatter, name);
  set_reduction(request, op, prescale_factor, postscale_factor, process_set);
  auto operand = adapter::Operand::make(tensors, request.name);
  return submit(std::move(operand), std::move(request), process_set);
}

submit::Handle join(ProcessSetId process_set) {
  return submit(adapter::Operand::make_number(), request_of(Operation::kJoin, std::nullopt), process_set);
}

void submit_error(const std::string& operation, const Name& name, const std::string& text,
                  ProcessSetId process_set) {
  for (int i = 0; i < kOperationCount; ++i) {
    if (name_of(static_cast<Operation>(i)) != operation) continue;
    wire::Request request = request_of(static_cast<Operation>(i), name);
    request.error = text;
    life_context()->submit_error(process_set, std::move(request));
    return;
  }
  throw py::value_error("there is no operation '" + operation + "'");
}

}  // namespace

void bind_operations(py::module_& module) {
  module.def("allreduce_async", allreduce, py::arg("tensor"), py::arg("output"), py::arg("name"),
             py::arg("op"), py::arg("prescale_factor"), py::arg("postscale_factor"), py::arg("process_set"));
  module.def("grouped_allreduce_async", grouped_allreduce, py::arg("tensors"), py::arg("outputs"),
             py::arg("name"), py::arg("op"), py::arg("prescale_factor"), py::arg("postscale_factor"),
             py::arg("process_set"));
  module.def("broadcast_async", broadcast, py::arg("tensor"), py::arg("output"), py::arg("root"),
             py::arg("name"), py::arg("process_set"));
  module.def("barrier_async", barrier, py::arg("process_set"));
  module.def("allgather_async", allgather, py::arg("tensors"), py::arg("name"), py::arg("process_set"));
  module.def("alltoall_async", alltoall, py::arg("tensor"), py::arg("splits"), py::arg("name"),
             py::arg("process_set"));
  module.def("reducescatter_async", reducescatter, py::arg("tensors"), py::arg("name"), py::arg("op"),
             py::arg("prescale_factor"), py::arg("postscale_factor"), py::arg("process_set"));
  module.def("join_async", join, py::arg("process_set"));
  module.def("submit_error", submit_error, py::arg("operation"), py::arg("name"), py::arg("text"),
             py::arg("process_set"));
}

}  // namespace roundelay::bindings
