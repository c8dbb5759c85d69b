// Averages gradients over samples: each rank's counts by its *weight*, such as the number of its samples.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace roundelay::gradients {

// The gradients are divided by the sum of all weights. But a bucket leaves while backward runs, and the sum
// is known only after the agreement at its end. So a gradient g travels as w / unit * g, the core averages
// that over the n ranks, and the result is divided by sum / n / unit.
//
// The unit is the mean weight of the heaviest round so far. So while all ranks have full batches both factors
// are 1, and nothing is done. The ranks' factors add up to n at most: a sum is as far from overflow as that
// of an average over ranks. A single one may be n, by which fp16 overflows early; in a light round all are
// small, and fp16 loses low bits. In a first round, there is no unit: gradients wait for the agreement
// (GradientGroup).
//
// All ranks have the same unit, as it comes from agreements, and they restart() together. Callers hold the
// GIL. Functions may throw what Python throws.
class BatchWeights {
 public:
  using Weight = std::function<double()>;
  using Refuse = std::function<void(const std::vector<std::string>&)>;
  // `weight` returns this rank's weight; NaN: it has none. `refuse` raises what is wrong with the weights of
  // the ranks, which all call it, each with the names of its operations in flight.
  BatchWeights(Weight weight, Refuse refuse) : weight_(std::move(weight)), refuse_(std::move(refuse)) {}

  // Forgets the unit; an average is one over `size` ranks from now on.
  void restart(int size);
  [[nodiscard]] bool has_unit() const { return unit_ > 0.0; }

  // Returns this rank's weight in this round, for which it asks once.
  [[nodiscard]] double weight();
  // Multiplies a contribution in place. A rank of weight 0 contributes zeros, also instead of NaN.
  void weigh(const at::Tensor& contribution);
  // Takes the sum of all weights. Returns false if there is no average: it is zero, too large or too small,
  // or a rank has no weight. refuse() follows then.
  [[nodiscard]] bool agreed(double sum);
  void refuse(const std::vector<std::string>& in_flight) const { refuse_(in_flight); }
  // Divides an average over ranks in place.
  void average(const at::Tensor& result) const;
  // Ends the round: the next one asks for a weight again.
  void end_round();

 private:
  const Weight weight_;
  const Refuse refuse_;
  int size_ = 1;
  double unit_ = 0.0;  // 0: unknown
  double mean_ = 0.0;  // of this round's weights
  std::optional<double> taken_;
};

}  // namespace roundelay::gradients
