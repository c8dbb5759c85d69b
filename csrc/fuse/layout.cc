#include "fuse/layout.h"

namespace roundelay::fuse {

Layout make_layout(std::span<const std::size_t> sizes) {
  Layout layout;
  layout.slots.reserve(sizes.size());
  for (const std::size_t bytes : sizes) {
    layout.slots.push_back({layout.bytes, bytes});
    layout.bytes += bytes + padding_after(bytes);
  }
  return layout;
}

}  // namespace roundelay::fuse
