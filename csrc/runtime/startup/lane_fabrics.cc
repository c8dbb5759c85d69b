#include "runtime/startup/lane_fabrics.h"

#include <memory>
#include <utility>

#include "base/region.h"
#include "collective/shm/node_announcements.h"
#include "runtime/startup/first_failure.h"
#include "runtime/startup/node_group.h"

namespace roundelay::runtime {
namespace {

using collective::shm::NodeAnnouncements;
using Memory = std::shared_ptr<std::byte>;

// Returns null if the node has no memory.
Result<Memory> memory_of_node(Fabrics& fabrics, const Group& group) {
  constexpr std::uint64_t kKey = std::uint64_t{1} << 62U;  // stages have lower ones
  const std::optional<Group> node = node_group(fabrics, group);
  const std::size_t bytes = NodeAnnouncements::bytes(node ? node->size() : 1, group.size());
  if (!node) {
    const Result<RegionPtr> own = make_private_region(kKey, bytes);
    return own.ok() ? Memory(*own, (*own)->own.data()) : Memory();
  }
  const auto shared = fabrics.share(kKey + group.id, *node, bytes, [&](const platform::SharedMemory& whole) {
    return node->index == 0 ? whole.allocate(0, bytes) : Status{};
  });
  if (shared.ok()) return Memory(*shared, (*shared)->span().data());
  if (shared.status().code() == StatusCode::kUnavailable) return Memory();
  return shared.status();
}

}  // namespace

Result<execute::LaneFabrics> make_lane_fabrics(Fabrics& fabrics, const Group& group, int fan_out,
                                               Duration limit) {
  Result<execute::LaneFabrics> made = fabrics.make(group);
  if (!made.ok() || group.size() == 1) return made;
  collective::Fabric& fabric = *made->all.front();
  if (fabric.capabilities().within_node) return made;  // it has announcements of its own
  Result<Memory> memory = memory_of_node(fabrics, group);
  if (!memory.ok()) return memory.status();
  const auto failed = first_failure(fabric, *memory != nullptr, Deadline::after(limit));
  if (!failed.ok()) return failed.status();
  if (*failed < group.size()) return made;
  const lock::NodeTree tree(nodes_of(fabrics, group), group.index, fan_out);
  made->announcements = collective::shm::make_announcements(*memory, tree, group);
  return made;
}

}  // namespace roundelay::runtime
