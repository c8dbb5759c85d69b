#include "adapter/submission.h"

#include <utility>

#include "adapter/process.h"

namespace roundelay::adapter {
namespace {

// Takes the specs of the operand's tensors into the request. Errors: the operation cannot reduce them.
Status describe(const Operand& operand, wire::Request& request) {
  if (traits_of(request.operation).reduces)
    ROUNDELAY_RETURN_IF_ERROR(operand.check_reduction(request.reduce_op, request.name));
  std::vector<wire::TensorSpec> specs = operand.specs();
  if (!specs.empty()) {
    request.dtype = specs.front().dtype;
    request.shape = std::move(specs.front().shape);
    specs.erase(specs.begin());
    request.others = std::move(specs);
  }
  if (operand.gpu() >= 0) request.device = DeviceType::kGpu;
  return {};
}

}  // namespace

wire::Request request_of(Operation operation, std::string name) {
  wire::Request request;
  request.operation = operation;
  request.name = std::move(name);
  return request;
}

Result<wire::Request> request_of(Operation operation, std::string name, const ReductionArguments& reduction,
                                 ProcessSetId process_set) {
  wire::Request request = request_of(operation, std::move(name));
  if (reduction.op < 0 || reduction.op >= kReduceOpCount) {
    return refuse(process_set, std::move(request),
                  Status::invalid("op must be one of Average, Sum, Adasum, Min, Max, Product, not " +
                                  std::to_string(reduction.op)));
  }
  request.reduce_op = static_cast<ReduceOp>(reduction.op);
  request.prescale.factor = reduction.prescale_factor;
  request.postscale.factor = reduction.postscale_factor;
  return request;
}

Result<complete::Handle> submit(Result<OperandPtr> made, wire::Request request, Route route,
                                std::vector<std::int64_t> splits,
                                std::shared_ptr<const compress::BucketTechnique> technique) {
  const auto context = current_context();
  if (!context.ok()) return context.status();
  if (!made.ok()) return refuse(route.process_set, std::move(request), made.status());
  OperandPtr operand = std::move(made).value();
  if (const Status fits = describe(*operand, request); !fits.ok())
    return refuse(route.process_set, std::move(request), fits);
  Result<GpuEventPtr> ready = operand->ready();
  if (!ready.ok()) return refuse(route.process_set, std::move(request), ready.status());
  reclaim_operands();
  Result<complete::Handle> handle = (*context)->submit({.request = std::move(request),
                                                        .parts = operand->parts(),
                                                        .splits = std::move(splits),
                                                        .results = operand.get(),
                                                        .gpu = operand->gpu(),
                                                        .inputs_ready = std::move(*ready),
                                                        .technique = std::move(technique)},
                                                       route);
  if (handle.ok()) operands().keep(*handle, std::move(operand));
  return handle;
}

Result<complete::Handle> submit_agreement(wire::Request request, std::string values, Route route) {
  const auto context = current_context();
  if (!context.ok()) return context.status();
  OperandPtr operand = Operand::make_agreement();
  submit::Arguments arguments;
  arguments.request = std::move(request);
  arguments.values = std::move(values);
  arguments.results = operand.get();
  Result<complete::Handle> handle = (*context)->submit(std::move(arguments), route);
  if (handle.ok()) operands().keep(*handle, std::move(operand));
  return handle;
}

Status refuse(ProcessSetId process_set, wire::Request request, const Status& error) {
  const auto context = current_context();
  if (!context.ok()) return context.status();
  request.error = error.message();
  (*context)->submit_error(process_set, std::move(request));
  return error;
}

}  // namespace roundelay::adapter
