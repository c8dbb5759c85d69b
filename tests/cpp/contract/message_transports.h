// The transports of all members of a group, for tests of point to point.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "collective/inproc/hub.h"
#include "collective/program/split_transport.h"
#include "collective/shm/pair_rings.h"
#include "collective/shm/shm_transport.h"
#include "platform/shm/memory.h"
#include "tests/cpp/contract/message_contract.h"
#include "tests/cpp/contract/tcp_planes.h"

namespace roundelay::contract {

using Transports = std::vector<std::unique_ptr<Transport>>;

inline Transports hub_transports(int size, std::shared_ptr<collective::SimulatedNetwork> network = nullptr) {
  const auto hub = std::make_shared<collective::InprocHub>(size, std::move(network));
  Transports transports;
  for (int i = 0; i < size; ++i) transports.push_back(hub->transport(i));
  return transports;
}

// Memory of zeros. Only pages that are used cost anything.
inline std::shared_ptr<std::byte> pair_rings_memory(int size) {
  const std::size_t bytes = collective::shm::PairRings::bytes(size);
  auto memory = platform::SharedMemory::create(bytes);
  if (!memory.ok()) throw std::bad_alloc();
  const auto owner = std::make_shared<platform::SharedMemory>(std::move(*memory));
  return {owner, owner->span().data()};
}

inline Transports shm_transports(int size) {
  const auto memory = pair_rings_memory(size);
  Transports transports;
  for (int i = 0; i < size; ++i) {
    transports.push_back(std::make_unique<collective::ShmTransport>(memory, message_group(size, i),
                                                                    [](ByteRange) { return Status(); }));
  }
  return transports;
}

// Nodes of two and three members in turn. Members of a node have shared memory, the others a hub.
inline Transports split_transports(int size) {
  Transports far = hub_transports(size), transports;
  for (int first = 0, of_node = 2; first < size; first += of_node, of_node = of_node == 2 ? 3 : 2) {
    of_node = std::min(of_node, size - first);
    const auto memory = pair_rings_memory(of_node);
    for (int i = 0; i < of_node; ++i) {
      Group node;
      for (int member = 0; member < of_node; ++member) node.ranks.push_back(10 + first + member);
      node.index = i;
      const int index = first + i;
      transports.push_back(std::make_unique<collective::SplitTransport>(
          std::make_unique<collective::ShmTransport>(memory, node, [](ByteRange) { return Status(); }), node,
          std::move(far[static_cast<std::size_t>(index)]), message_group(size, index)));
    }
  }
  return transports;
}

// Connections of the loopback.
inline Transports tcp_transports(int size) {
  const TcpPlanes planes(size);
  Transports transports;
  for (int i = 0; i < size; ++i) transports.push_back(planes.transport(i));
  return transports;  // which keep the planes
}

}  // namespace roundelay::contract
