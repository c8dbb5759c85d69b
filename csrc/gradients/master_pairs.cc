#include "gradients/master_pairs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>

#include "adapter/gil.h"

namespace roundelay::gradients {
namespace {

// Copies each tensor into the one of the same place, in few kernels on a GPU.
void copy_each(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  if (to.empty()) return;
  const adapter::GilReleased no_gil;
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(to, from);
}

}  // namespace

Status MasterPairs::take_gradients(bool arrived) const {
  std::vector<std::pair<std::shared_ptr<MasterPair>, at::Tensor>> taken;
  for (const auto& pair : pairs_) {
    Result<at::Tensor> source = pair->source(arrived);
    ROUNDELAY_RETURN_IF_ERROR(source.status());
    if (source->defined()) taken.emplace_back(pair, std::move(source).value());
  }
  std::vector<at::Tensor> given, dense;
  for (const auto& [pair, gradient] : taken) {
    at::Tensor room = pair->room(gradient);
    if (gradient.layout() != at::kStrided) continue;
    given.push_back(std::move(room));
    dense.push_back(gradient.detach());
  }
  copy_each(given, dense);
  for (const auto& [pair, gradient] : taken) pair->note_gradient();
  return {};
}

void MasterPairs::note_unscaled() const {
  for (const auto& pair : pairs_) pair->note_change();
}

void MasterPairs::begin_gradients() const {
  for (const auto& pair : pairs_) pair->begin_gradients();
}

void MasterPairs::refresh() const {
  for (const auto& pair : pairs_) pair->refresh();
}

void MasterPairs::write_back() const {
  const Pairs written = pairs_;  // another thread may set others during the copy
  std::vector<at::Tensor> parameters, masters;
  for (const auto& pair : written) {
    parameters.push_back(pair->parameter());
    masters.push_back(pair->master());
  }
  copy_each(parameters, masters);
  for (const auto& pair : written) pair->note_weight();
}

void MasterPairs::end_step() const {
  write_back();
  for (const auto& pair : pairs_) pair->end_step();
}

}  // namespace roundelay::gradients
