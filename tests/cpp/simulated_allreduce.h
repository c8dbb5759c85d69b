// The time of an allreduce over members in one process, whose messages take time
// (collective/inproc/simulated_network.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "collective/inproc/hub.h"

namespace roundelay {

struct WireRate {
  Duration alpha;           // of a message
  double bytes_per_second;  // of a member's port
};

// Returns the seconds until the last of `members` has the sum of `bytes` bytes, by this algorithm. Throws
// runtime_error if a call fails or a sum is wrong.
inline double allreduce_seconds(std::string_view algorithm, int members, std::size_t bytes, WireRate rate) {
  const auto network =
      std::make_shared<collective::SimulatedNetwork>(members, rate.alpha, rate.bytes_per_second);
  const auto hub = std::make_shared<collective::InprocHub>(members, network);
  const collective::Select select = collective::Select::by_name(algorithm).value();
  std::vector<std::vector<float>> data(static_cast<std::size_t>(members));
  std::vector<std::unique_ptr<collective::Fabric>> fabrics;
  std::vector<std::unique_ptr<collective::PendingCall>> pendings;
  Group group;
  for (int rank = 0; rank < members; ++rank) group.ranks.push_back(rank);
  for (int rank = 0; rank < members; ++rank) {
    group.index = rank;
    auto& own = data[static_cast<std::size_t>(rank)];
    own.assign(bytes / sizeof(float), 1.0F);
    fabrics.push_back(collective::make_inproc_fabric(hub, group, select));
    collective::AllreduceCall call;
    call.buffer = {reinterpret_cast<std::byte*>(own.data()), 0, own.size() * sizeof(float), nullptr};
    auto started = fabrics.back()->start(call);
    if (!started.ok()) throw std::runtime_error(started.status().message());
    pendings.push_back(std::move(started).value());
  }
  // Whatever a member posts now arrives later: at each time on the clock one test of each member is enough.
  std::size_t over = 0;
  while (over < pendings.size()) {
    over = 0;
    for (const auto& pending : pendings) {
      const Result<bool> done = pending->test();
      if (!done.ok()) throw std::runtime_error(done.status().message());
      over += *done ? 1 : 0;
    }
    if (over < pendings.size() && !network->advance()) throw std::runtime_error("nothing is on its way");
  }
  for (const auto& own : data) {
    for (const float sum : own) {
      if (sum != static_cast<float>(members)) throw std::runtime_error("a sum is wrong");
    }
  }
  return std::chrono::duration<double>(network->now()).count();
}

}  // namespace roundelay
