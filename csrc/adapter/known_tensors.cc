#include "adapter/known_tensors.h"

#include <utility>

namespace roundelay::adapter {

void KnownTensors::next(const at::Tensor& tensor) {
  const std::size_t place = place_++;
  Known now{c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()), tensor.requires_grad(),
            tensor.scalar_type()};
  if (place < known_.size()) {
    const Known& known = known_[place];
    if (known.tensor._unsafe_get_target() == tensor.unsafeGetTensorImpl() &&
        known.requires_grad == now.requires_grad && known.type == now.type)
      return;
  }
  same_ = false;
  if (place < known_.size()) {
    known_[place] = std::move(now);
  } else {
    known_.push_back(std::move(now));
  }
}

bool KnownTensors::end() {
  const bool same = std::exchange(same_, true) && place_ == known_.size();
  known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(place_), known_.end());
  place_ = 0;
  return same;
}

}  // namespace roundelay::adapter
