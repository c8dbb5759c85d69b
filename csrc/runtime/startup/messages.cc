#include "runtime/startup/messages.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "collective/program/split_transport.h"
#include "collective/shm/pair_rings.h"
#include "collective/shm/shm_transport.h"
#include "runtime/startup/node_group.h"

namespace roundelay::runtime {

using collective::shm::PairRings;

Result<std::unique_ptr<collective::PointToPoint>> make_messages(Fabrics& fabrics, const Group& world) {
  constexpr ProcessSetId kKey = UINT32_MAX;  // process sets have ids of their own
  if (world.size() == 1) return std::unique_ptr<collective::PointToPoint>();
  std::unique_ptr<collective::Transport> transport;
  const std::optional<Group> node = node_group(fabrics, world);
  if (node) {
    auto memory =
        fabrics.share(kKey, *node, PairRings::bytes(node->size()), [&](const platform::SharedMemory& whole) {
          return node->index == 0 ? whole.allocate(0, PairRings::control_bytes(node->size())) : Status();
        });
    if (!memory.ok()) return memory.status();
    const auto allocate = [memory = *memory](ByteRange part) {
      return memory->allocate(part.offset, part.bytes);
    };
    const std::shared_ptr<std::byte> bytes(*memory, (*memory)->span().data());
    transport = std::make_unique<collective::ShmTransport>(bytes, *node, allocate);
  }
  if (!node || node->size() < world.size()) {
    auto far = fabrics.outer().make_transport({kKey, world.ranks, world.index});
    if (!far.ok()) return far.status();
    transport = node ? std::make_unique<collective::SplitTransport>(std::move(transport), *node,
                                                                    std::move(far).value(), world)
                     : std::move(far).value();
  }
  return std::make_unique<collective::PointToPoint>(std::move(transport), world);
}

}  // namespace roundelay::runtime
