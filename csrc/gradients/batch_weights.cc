#include "gradients/batch_weights.h"

#include <algorithm>
#include <cmath>

namespace roundelay::gradients {

void BatchWeights::restart(int size) {
  size_ = size;
  unit_ = mean_ = 0.0;
  taken_.reset();
}

double BatchWeights::weight() {
  if (!taken_) taken_ = weight_();
  return *taken_;
}

void BatchWeights::weigh(const at::Tensor& contribution) {
  const double factor = weight() / unit_;
  if (factor == 0.0) {
    contribution.zero_();
  } else if (factor != 1.0) {
    contribution.mul_(factor);
  }
}

bool BatchWeights::agreed(double sum) {
  const double mean = sum / size_;
  if (!std::isnormal(mean) || mean < 0.0) return false;
  if (has_unit() && !std::isnormal(mean / unit_)) return false;  // gradients were multiplied by zero
  mean_ = mean;
  if (!has_unit()) unit_ = mean_;
  return true;
}

void BatchWeights::average(const at::Tensor& result) const {
  if (mean_ != unit_) result.div_(mean_ / unit_);
}

void BatchWeights::end_round() {
  unit_ = std::max(unit_, mean_);
  taken_.reset();
}

}  // namespace roundelay::gradients
