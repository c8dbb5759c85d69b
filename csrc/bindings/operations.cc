// The Python functions that submit operations.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapter/operand.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/handles.h"
#include "bindings/submission.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

using Tensors = std::vector<at::Tensor>;

// Raises the error. The peers' calls of the same name fail at once with the same text.
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

submit::Handle submit(Result<adapter::OperandPtr> made, wire::Request request, Route route,
                      std::vector<std::int64_t> splits,
                      std::shared_ptr<const compress::BucketTechnique> technique) {
  const auto context = global_context();
  if (!made.ok()) refuse(*context, route.process_set, std::move(request), made.status());
  adapter::OperandPtr operand = std::move(made).value();
  const Status fits = operand->check_op(request.reduce_op, request.name);
  if (!fits.ok()) refuse(*context, route.process_set, std::move(request), fits);
  std::vector<wire::TensorSpec> specs = operand->specs();
  if (!specs.empty()) {
    request.dtype = specs.front().dtype;
    request.shape = std::move(specs.front().shape);
    specs.erase(specs.begin());
    request.others = std::move(specs);
  }
  Result<GpuEventPtr> ready = operand->ready();
  if (!ready.ok()) refuse(*context, route.process_set, std::move(request), ready.status());
  if (operand->gpu() >= 0) request.device = DeviceType::kGpu;
  reclaim_operands();
  const submit::Handle handle = value_of(context->submit({{.request = std::move(request),
                                                           .parts = operand->parts(),
                                                           .splits = std::move(splits),
                                                           .results = operand.get(),
                                                           .gpu = operand->gpu(),
                                                           .inputs_ready = std::move(*ready),
                                                           .technique = std::move(technique)},
                                                          route.process_set,
                                                          route.blocking}));
  global_operands().keep(handle, std::move(operand));
  return handle;
}

void set_reduction(wire::Request& request, int op, double prescale_factor, double postscale_factor,
                   ProcessSetId process_set) {
  if (op < 0 || op >= kReduceOpCount)
    refuse(*global_context(), process_set, std::move(request),
           Status::invalid("op must be one of Average, Sum, Adasum, Min, Max, Product, not " +
                           std::to_string(op)));
  request.reduce_op = static_cast<ReduceOp>(op);
  request.prescale.factor = prescale_factor;
  request.postscale.factor = postscale_factor;
}

namespace {

submit::Handle grouped_allreduce(Route route, const Tensors& tensors, const Tensors& outputs,
                                 const Name& name, int op, double prescale_factor, double postscale_factor) {
  wire::Request request = request_of(Operation::kAllreduce, name);
  set_reduction(request, op, prescale_factor, postscale_factor, route.process_set);
  auto operand = adapter::Operand::make(tensors, outputs, request.name, global_accelerator());
  return submit(std::move(operand), std::move(request), route);
}

submit::Handle allreduce(Route route, const at::Tensor& tensor, const at::Tensor& output, const Name& name,
                         int op, double prescale_factor, double postscale_factor) {
  return grouped_allreduce(route, {tensor}, {output}, name, op, prescale_factor, postscale_factor);
}

submit::Handle broadcast(Route route, const at::Tensor& tensor, const at::Tensor& output, int root,
                         const Name& name) {
  wire::Request request = request_of(Operation::kBroadcast, name);
  request.root = root;
  auto operand = adapter::Operand::make({tensor}, {output}, request.name, global_accelerator());
  return submit(std::move(operand), std::move(request), route);
}

submit::Handle barrier(Route route) {
  return submit(adapter::Operand::make({}, "", global_accelerator()),
                request_of(Operation::kBarrier, std::nullopt), route);
}

submit::Handle allgather(Route route, const Tensors& tensors, const Name& name) {
  wire::Request request = request_of(Operation::kAllgather, name);
  auto operand = adapter::Operand::make(tensors, request.name, global_accelerator());
  return submit(std::move(operand), std::move(request), route);
}

submit::Handle alltoall(Route route, const at::Tensor& tensor, std::vector<std::int64_t> splits,
                        const Name& name) {
  wire::Request request = request_of(Operation::kAlltoall, name);
  auto operand = adapter::Operand::make({tensor}, request.name, global_accelerator());
  return submit(std::move(operand), std::move(request), route, std::move(splits));
}

submit::Handle reducescatter(Route route, const Tensors& tensors, const Name& name, int op,
                             double prescale_factor, double postscale_factor) {
  wire::Request request = request_of(Operation::kReducescatter, name);
  set_reduction(request, op, prescale_factor, postscale_factor, route.process_set);
  auto operand = adapter::Operand::make(tensors, request.name, global_accelerator());
  return submit(std::move(operand), std::move(request), route);
}

submit::Handle join(Route route) {
  return submit(adapter::Operand::make_number(), request_of(Operation::kJoin, std::nullopt), route);
}

void submit_error(const std::string& operation, const Name& name, const std::string& text,
                  ProcessSetId process_set) {
  for (int i = 0; i < kOperationCount; ++i) {
    if (name_of(static_cast<Operation>(i)) != operation) continue;
    wire::Request request = request_of(static_cast<Operation>(i), name);
    request.error = text;
    global_context()->submit_error(process_set, std::move(request));
    return;
  }
  throw py::value_error("there is no operation '" + operation + "'");
}

// Defines two Python functions: "<name>_async" returns a handle, "<name>" waits at once. In the second one no
// Python code runs between submitting and waiting: a signal handler that raises could lose the handle.
template <typename... Arguments, typename... Names>
void define(py::module_& module, const std::string& name, submit::Handle (*start)(Route, Arguments...),
            const Names&... names) {
  module.def((name + "_async").c_str(),
             [start](Arguments... arguments, ProcessSetId process_set) {
               return start({process_set, false}, std::forward<Arguments>(arguments)...);
             },
             names..., py::arg("process_set"));
  module.def(
      name.c_str(),
      [start](Arguments... arguments, ProcessSetId process_set) {
        return synchronize(start({process_set, true}, std::forward<Arguments>(arguments)...));
      },
      names..., py::arg("process_set"));
}

}  // namespace

void bind_operations(py::module_& module) {
  define(module, "allreduce", allreduce, py::arg("tensor"), py::arg("output"), py::arg("name"), py::arg("op"),
         py::arg("prescale_factor"), py::arg("postscale_factor"));
  define(module, "grouped_allreduce", grouped_allreduce, py::arg("tensors"), py::arg("outputs"),
         py::arg("name"), py::arg("op"), py::arg("prescale_factor"), py::arg("postscale_factor"));
  define(module, "broadcast", broadcast, py::arg("tensor"), py::arg("output"), py::arg("root"),
         py::arg("name"));
  define(module, "barrier", barrier);
  define(module, "allgather", allgather, py::arg("tensors"), py::arg("name"));
  define(module, "alltoall", alltoall, py::arg("tensor"), py::arg("splits"), py::arg("name"));
  define(module, "reducescatter", reducescatter, py::arg("tensors"), py::arg("name"), py::arg("op"),
         py::arg("prescale_factor"), py::arg("postscale_factor"));
  define(module, "join", join);
  module.def("submit_error", submit_error, py::arg("operation"), py::arg("name"), py::arg("text"),
             py::arg("process_set"));
}

}  // namespace roundelay::bindings
