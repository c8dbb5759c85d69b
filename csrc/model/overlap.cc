#include "model/overlap.h"

#include <algorithm>
#include <cstddef>

namespace roundelay::model {

StepTimes overlapped(std::span<const LayerTimes> layers) {
  double forward = 0, computed = 0, communicated = 0;
  for (std::size_t left = layers.size(); left > 0; --left) {
    const LayerTimes& layer = layers[left - 1];
    forward += layer.forward;
    computed += layer.backward;
    communicated = std::max(computed, communicated) + layer.communication;
  }
  const double end = std::max(computed, communicated);
  return {forward + end, end - computed};
}

StepTimes blocking(std::span<const LayerTimes> layers) {
  StepTimes step;
  for (const LayerTimes& layer : layers) {
    step.all += layer.forward + layer.backward + layer.communication;
    step.exposed += layer.communication;
  }
  return step;
}

}  // namespace roundelay::model
