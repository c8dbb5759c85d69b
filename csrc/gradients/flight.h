// Reductions of gradients outside of pools that are in flight.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "complete/handles.h"
#include "gradients/rule.h"

namespace roundelay::gradients {

// An operation that was submitted. Only the first wait costs. Callers hold the GIL.
class SharedOperation {
 public:
  explicit SharedOperation(complete::Handle handle) : handle_(handle) {}
  // Sleeps until the operation is done. Errors: the operation's, each time. Throws as adapter::wait().
  [[nodiscard]] Status wait();

 private:
  std::optional<complete::Handle> handle_;  // nothing: it is over
  Status outcome_;
};

// One gradient's part in a reduction. Callers hold the GIL. The functions may throw.
class Flight {
 public:
  virtual ~Flight() = default;
  // Sleeps until the reduction is done. Errors: the operation's, each time.
  [[nodiscard]] virtual Status wait() = 0;
  // Returns the reduced gradient. Call it after a wait() without an error.
  virtual at::Tensor result() = 0;
  // Sleeps until the reduction is done, and ignores result and error.
  virtual void drop() = 0;
};

// A dense gradient. Its result is copied into the gradient's own tensor.
class DenseFlight final : public Flight {
 public:
  // Compresses `gradient` by the rule. Errors: kInvalidArgument (a complex tensor cannot be cast).
  static Result<std::unique_ptr<DenseFlight>> make(const at::Tensor& gradient, const Rule& rule);

  // Returns the tensor that is reduced in place.
  [[nodiscard]] const at::Tensor& compressed() const { return compressed_.tensor; }
  void submitted(std::shared_ptr<SharedOperation> operation) { operation_ = std::move(operation); }
  [[nodiscard]] Status wait() override { return operation_->wait(); }
  at::Tensor result() override;
  void drop() override { (void)operation_->wait(); }

 private:
  DenseFlight(const at::Tensor& gradient, const Rule& rule) : gradient_(gradient), rule_(rule) {}

  const at::Tensor gradient_;
  const Rule& rule_;  // the group's
  Compressor::Compressed compressed_;
  std::shared_ptr<SharedOperation> operation_;
};

}  // namespace roundelay::gradients
