#include "collective/tcp/tcp_fabric.h"

#include <utility>

#include "collective/engine/algorithm_fabric.h"
#include "collective/tcp/tcp_transport.h"

namespace roundelay::collective {

Result<std::unique_ptr<Fabric>> make_tcp_fabric(tcp::TcpPlane& plane, const Group& group,
                                                const TcpFabricOptions& options) {
  auto transport = plane.transport(group);
  if (!transport.ok()) return transport.status();
  tcp::TcpTransport* const medium = transport->get();
  auto state = std::make_shared<FabricState>();
  state->group = group;
  state->crowded = options.crowded;
  state->on_poison = [medium](const Status& cause) { medium->give_up(cause); };
  state->transport = std::move(transport).value();
  AlgorithmFabric::Options fabric;
  fabric.name = "tcp";
  fabric.select = options.select;
  fabric.waker = medium;
  return std::unique_ptr<Fabric>(std::make_unique<AlgorithmFabric>(std::move(state), fabric));
}

}  // namespace roundelay::collective
