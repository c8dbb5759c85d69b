#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"

namespace roundelay::contract {

// Starts a broadcast from member 2 on this member of three alone, so that it waits for ever.
inline std::unique_ptr<collective::PendingCall> start_broadcast(Fabric& fabric, std::vector<std::byte>& data,
                                                                Deadline deadline) {
  BroadcastCall call = broadcast_over(data.data(), data.size(), 2);
  call.deadline = deadline;
  auto started = fabric.start(call);
  REQUIRE(started.ok());
  return std::move(*started);
}

}  // namespace roundelay::contract
