// The formula for a step of training whose communication starts during backward (wait-free backpropagation).
// Pure.
#pragma once

#include <span>
#include <vector>

namespace roundelay::model {

// A layer's times in seconds. `communication` is the time of its gradient's allreduce.
struct LayerTimes {
  double forward = 0;
  double backward = 0;
  double communication = 0;
};

struct StepTimes {
  double all = 0;      // seconds of the step
  double exposed = 0;  // seconds of these that come after the end of backward
};

// Returns the time of a step whose operations run one after the other, each as soon as its gradient is there.
// `layers` are in forward's order; backward goes from the last to the first (PyDTNN's recursion, used by
// Barrachina et al. 2021):
//   tb += backward_l;  tc = max(tb, tc) + communication_l;  step = sum of forward_l + max(tb, tc).
StepTimes overlapped(std::span<const LayerTimes> layers);

// Returns the time of a step that communicates after backward.
StepTimes blocking(std::span<const LayerTimes> layers);

}  // namespace roundelay::model
