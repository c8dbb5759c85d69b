// The data planes of several ranks in one process, over the loopback.
#pragma once

#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "collective/tcp/plane.h"
#include "collective/tcp/tcp_fabric.h"
#include "collective/tcp/tcp_transport.h"
#include "connect/tcp_address.h"

namespace roundelay::contract {

struct TcpPlanes {
  explicit TcpPlanes(int size, std::size_t streams = 1) {
    std::vector<connect::TcpListener> listeners;
    for (int rank = 0; rank < size; ++rank) {
      auto listener = connect::TcpListener::listen("", true);
      if (!listener.ok()) throw std::runtime_error(listener.status().message());
      addresses.push_back(listener->address_bytes());
      listeners.push_back(std::move(*listener));
    }
    for (int rank = 0; rank < size; ++rank) {
      auto plane = collective::tcp::TcpPlane::create({{rank, 1, "1.0+test", {}}, {}},
                                                     std::move(listeners[static_cast<std::size_t>(rank)]),
                                                     addresses, {.streams = streams, .spreads = true});
      if (!plane.ok()) throw std::runtime_error(plane.status().message());
      planes.push_back(*plane);
    }
  }

  [[nodiscard]] Group group(int rank) const {
    Group group;
    group.ranks.resize(planes.size());
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
    group.index = rank;
    return group;
  }
  [[nodiscard]] std::unique_ptr<collective::tcp::TcpTransport> transport(int rank) const {
    auto transport = planes[static_cast<std::size_t>(rank)]->transport(group(rank));
    if (!transport.ok()) throw std::runtime_error(transport.status().message());
    return std::move(*transport);
  }
  [[nodiscard]] std::unique_ptr<collective::Fabric> fabric(int rank, const collective::Select& select) const {
    auto fabric = collective::make_tcp_fabric(*planes[static_cast<std::size_t>(rank)], group(rank),
                                              {.crowded = true, .select = select});
    if (!fabric.ok()) throw std::runtime_error(fabric.status().message());
    return std::move(*fabric);
  }
  [[nodiscard]] std::vector<std::unique_ptr<collective::Fabric>> fabrics(
      const collective::Select& select = {}) const {
    std::vector<std::unique_ptr<collective::Fabric>> all;
    for (int rank = 0; rank < static_cast<int>(planes.size()); ++rank) all.push_back(fabric(rank, select));
    return all;
  }

  std::vector<Bytes> addresses;
  std::vector<std::shared_ptr<collective::tcp::TcpPlane>> planes;
};

}  // namespace roundelay::contract
