#include "bindings/handles.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adapter/operand.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "bindings/global_state.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

// A waiter lets Python handle signals this often.
constexpr Duration kSignalPeriod = std::chrono::milliseconds(100);

std::vector<at::Tensor> outputs_of(adapter::OperandPtr operand) {
  std::vector<at::Tensor> outputs = operand->allocated();
  if (!operand->may_go()) global_operands().retire(std::move(operand));
  reclaim_operands();
  return outputs;
}

// Returns true when the results are there, on a GPU too, as Horovod's poll() does.
bool poll(submit::Handle handle) {
  return value_of(global_context()->poll(handle)) && global_operands().done(handle);
}

// Makes Waiting a context manager, for Python code between the waits at the end of a backward pass.
class WaitingBlock {
 public:
  void enter() {
    context_ = global_context();
    waiting_.emplace(*context_);
  }
  void exit(const py::args& /*exception*/) { waiting_.reset(); }

 private:
  std::shared_ptr<runtime::Context> context_;
  std::optional<Waiting> waiting_;  // refers to context_
};

}  // namespace

Status wait(runtime::Context& context, submit::Handle handle) {
  const Waiting waiting(context);
  for (;;) {
    std::optional<Status> status;
    {
      const GilReleased no_gil;
      status = context.wait(handle, Deadline::after(kSignalPeriod));
    }
    if (status) return *status;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

std::vector<at::Tensor> synchronize(submit::Handle handle) {
  const auto context = global_context();
  static_cast<void>(value_of(context->poll(handle)));  // raises if the handle is unknown
  Status status = wait(*context, handle);
  adapter::OperandPtr operand = global_operands().take(handle);
  if (status.ok()) {
    if (!operand) return {};
    Status finished;
    {
      const GilReleased no_gil;
      finished = operand->finish();
    }
    if (finished.ok()) return outputs_of(std::move(operand));
    status = finished;
  }
  // After a fault the medium may still write to the memory, so it is never freed.
  if (status.code() == StatusCode::kAborted) (void)operand.release();
  raise_failed(status);
}

void bind_handles(py::module_& module) {
  module.def("poll", poll, py::arg("handle"));
  module.def("synchronize", synchronize, py::arg("handle"));
  module.def("flush", [] { global_context()->flush(); });
  py::class_<WaitingBlock>(module, "Waiting")
      .def(py::init<>())
      .def("__enter__", &WaitingBlock::enter)
      .def("__exit__", &WaitingBlock::exit);
}

}  // namespace roundelay::bindings
