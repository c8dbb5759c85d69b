#include "gradients/flight.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "adapter/waiting.h"

namespace roundelay::gradients {
namespace {

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.scalar_type() == b.scalar_type() &&
         a.sizes() == b.sizes() && a.strides() == b.strides();
}

}  // namespace

Status SharedOperation::wait() {
  if (!handle_) return outcome_;
  outcome_ = adapter::synchronize(*handle_).status();
  handle_.reset();
  return outcome_;
}

Result<std::unique_ptr<DenseFlight>> DenseFlight::make(const at::Tensor& gradient, const Rule& rule) {
  std::unique_ptr<DenseFlight> flight(new DenseFlight(gradient, rule));
  const at::Tensor plain = gradient.detach();
  if (rule.compressor) {
    flight->compressed_ = rule.compressor->compress(plain);
  } else if (rule.wire_type && plain.is_complex()) {
    return Status::invalid(std::string("a gradient of ") + c10::toString(plain.scalar_type()) +
                           " cannot travel in a half type: leave the compression out");
  } else if (rule.wire_type && (plain.scalar_type() == at::kFloat || plain.scalar_type() == at::kDouble)) {
    flight->compressed_.tensor = plain.to(*rule.wire_type);
  } else {
    flight->compressed_.tensor = plain;
  }
  return flight;
}

at::Tensor DenseFlight::result() {
  const at::Tensor plain = gradient_.detach();
  const at::Tensor result = rule_.compressor ? rule_.compressor->decompress(compressed_) : compressed_.tensor;
  if (!same_memory(result, plain)) plain.copy_(result);
  return gradient_;
}

}  // namespace roundelay::gradients
