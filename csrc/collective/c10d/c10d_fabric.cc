#include "collective/c10d/c10d_fabric.h"

#include <utility>

#include "collective/c10d/c10d_transport.h"
#include "collective/engine/algorithm_fabric.h"

namespace roundelay::collective {

std::unique_ptr<Fabric> make_c10d_fabric(std::unique_ptr<platform::ProcessGroup> process_group,
                                         const Group& group, const C10dFabricOptions& options) {
  auto transport =
      std::make_unique<C10dTransport>(std::move(process_group), group, options.most_message_bytes);
  auto state = std::make_shared<FabricState>();
  state->group = group;
  state->crowded = true;  // a thread that waits leaves its core to those that move the bytes
  // After the first failure nothing is tested any more, and the transport's threads must not wait on.
  state->on_poison = [medium = transport.get()](const Status&) { medium->give_up(); };
  state->transport = std::move(transport);
  AlgorithmFabric::Options fabric;
  fabric.name = "c10d";
  fabric.select = options.select;
  return std::make_unique<AlgorithmFabric>(std::move(state), fabric);
}

}  // namespace roundelay::collective
