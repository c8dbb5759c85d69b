// One fused operation on its way through a lane.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/fabric.h"
#include "fuse/fusion_buffer.h"
#include "fuse/layout.h"
#include "submit/table.h"

namespace roundelay::runtime {

struct Batch {
  std::uint64_t sequence = 0;                           // of the order
  std::uint32_t index = 0;                              // within the order
  std::vector<std::unique_ptr<submit::Entry>> entries;  // alike but for name and shape

  fuse::Layout layout;  // of the fusion buffer, when there is more than one entry
  fuse::FusionBuffer* fusion = nullptr;
  collective::Call call;
  std::unique_ptr<collective::Pending> pending;
  TimePoint started{};

  [[nodiscard]] const wire::Request& request() const { return entries.front()->request; }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& entry : entries) sum += entry->bytes();
    return sum;
  }
};

}  // namespace roundelay::runtime
