#include "adapter/waiting.h"

#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <optional>
#include <utility>

#include "adapter/gil.h"
#include "adapter/operand.h"
#include "adapter/process.h"

namespace roundelay::adapter {
namespace {

// A waiter lets Python handle signals this often.
constexpr Duration kSignalPeriod = std::chrono::milliseconds(100);

// Returns the error of an operation that was submitted and has failed: never one of a wrong call.
Status as_failed(const Status& error) {
  switch (error.code()) {
    case StatusCode::kMismatch:
    case StatusCode::kAborted:
      return error;
    default:
      return {StatusCode::kIncomplete, error.message()};
  }
}

// Waits for the handle and finishes its operand, which leaves the table. Null: it has none (a barrier).
// Errors: as synchronize().
Result<OperandPtr> finish(complete::Handle handle) {
  const auto context = current_context();
  if (!context.ok()) return context.status();
  if (const auto known = (*context)->poll(handle); !known.ok()) return known.status();
  Status status = wait(**context, handle);
  OperandPtr operand = operands().take(handle);
  if (status.ok() && operand) {
    const GilReleased no_gil;
    status = operand->finish();
  }
  if (status.ok()) return operand;
  // After a fault the medium may still write to the memory, so it is never freed.
  if (status.code() == StatusCode::kAborted) (void)operand.release();
  return as_failed(status);
}

}  // namespace

Status wait(runtime::Context& context, complete::Handle handle) {
  const Waiting waiting(context);
  for (;;) {
    std::optional<Status> status;
    {
      const GilReleased no_gil;
      status = context.wait(handle, Deadline::after(kSignalPeriod));
    }
    if (status) return *status;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }
}

Result<std::vector<at::Tensor>> synchronize(complete::Handle handle) {
  Result<OperandPtr> finished = finish(handle);
  if (!finished.ok()) return finished.status();
  OperandPtr operand = std::move(finished).value();
  if (!operand) return std::vector<at::Tensor>();
  std::vector<at::Tensor> outputs = operand->allocated();
  if (!operand->may_go()) operands().retire(std::move(operand));
  reclaim_operands();
  return outputs;
}

Result<Agreed> synchronize_agreement(complete::Handle handle) {
  Result<OperandPtr> finished = finish(handle);
  if (!finished.ok()) return finished.status();
  return (*finished)->agreed();
}

}  // namespace roundelay::adapter
