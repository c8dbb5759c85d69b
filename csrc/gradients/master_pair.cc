#include "gradients/master_pair.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>

#include <utility>

namespace roundelay::gradients {

MasterPair::MasterPair(const at::Tensor& parameter, const at::Tensor& master, std::string label)
    : parameter_(parameter), master_(master), label_(std::move(label)) {
  note_weight();
}

void MasterPair::refresh() {
  if (parameter()._version() == weight_) return;
  take_where_equal(master());
  note_weight();
}

void MasterPair::take_where_equal(const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = parameter().detach(), master = this->master();
  const at::Tensor exact = values.detach().to(master.device());
  master.copy_(at::where(exact.to(own.scalar_type()).eq(own), exact, own.to(at::kFloat)));
}

Result<at::Tensor> MasterPair::source(bool arrived) {
  const at::Tensor gradient = parameter().grad();
  if (!gradient.defined()) {
    if (taken_) drop_gradient();
    return at::Tensor();
  }
  if (!taken_) return gradient;
  const bool changed = !given_ || !given_->current(master().grad());
  if (taken_->current(gradient)) {
    if (changed) note_change();
    return at::Tensor();
  }
  if (changed && (taken_->is(gradient) || !arrived)) {
    return Status::unavailable(
        "the gradient of " + label_ +
        " was changed after that of its fp32 master (by unscale_() or clipping): change only the masters' "
        "gradients, those of [p for group in optimizer.param_groups for p in group['params']], and call "
        "optimizer.zero_grad() before the next backward()");
  }
  return gradient;
}

// Ends the master's gradient with the parameter's, unless the user has set another one since.
void MasterPair::drop_gradient() {
  at::Tensor& mine = master().mutable_grad();
  if (!given_ || !mine.defined() || given_->is(mine)) mine.reset();
  forget_gradient();
}

at::Tensor MasterPair::room(const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const at::Tensor master = this->master();
  at::Tensor& mine = master.mutable_grad();
  if (gradient.layout() != at::kStrided) {
    mine = gradient.detach().to(master.device(), at::kFloat);
  } else if (!mine.defined() || mine.layout() != at::kStrided) {
    mine = at::empty_like(master);
  }
  return mine;
}

void MasterPair::note_gradient() {
  const at::Tensor gradient = parameter().grad(), mine = master().grad();
  if (!gradient.defined() || !mine.defined()) return;
  taken_.emplace(gradient);
  given_.emplace(mine);
}

void MasterPair::note_change() {
  const at::Tensor mine = master().grad();
  given_.reset();
  if (mine.defined()) given_.emplace(mine, true);
}

void MasterPair::forget_gradient() {
  taken_.reset();
  given_.reset();
}

void MasterPair::begin_gradients() {
  forget_gradient();
  note_gradient();
}

void MasterPair::end_step() {
  const at::Tensor mine = master().grad();
  if (given_ && mine.defined()) given_.emplace(mine, given_->outdated());
}

}  // namespace roundelay::gradients
