#include "negotiate/fusion_layout.h"

namespace roundelay::negotiate {

FusionLayout make_fusion_layout(std::span<const std::size_t> sizes) {
  FusionLayout layout;
  layout.slots.reserve(sizes.size());
  for (const std::size_t bytes : sizes) {
    layout.slots.push_back({layout.bytes, bytes});
    layout.bytes += bytes + padding_after(bytes);
  }
  return layout;
}

}  // namespace roundelay::negotiate
