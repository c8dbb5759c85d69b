#pragma once

#include <memory>

#include "base/group.h"
#include "base/status.h"
#include "collective/fabric.h"
#include "collective/tcp/plane.h"
#include "collective/tuning/select.h"

namespace roundelay::collective {

struct TcpFabricOptions {
  bool crowded = false;  // ranks outnumber cores
  Select select{};
};

// Makes a fabric over TCP for a group. Members make the fabrics of a group (id and ranks) in the same order.
// Errors: kUnavailable (out of descriptors).
Result<std::unique_ptr<Fabric>> make_tcp_fabric(tcp::TcpPlane& plane, const Group& group,
                                                const TcpFabricOptions& options);

}  // namespace roundelay::collective
