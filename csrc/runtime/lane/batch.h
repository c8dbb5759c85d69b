// What one lane carries out at a time: the tensors that travel in one call, or in one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/fabric.h"
#include "collective/scatter_list.h"
#include "fuse/layout.h"
#include "negotiate/participant.h"
#include "runtime/gpu/device_clock.h"
#include "submit/table.h"

namespace roundelay::runtime {

struct OperationSteps;

// One tensor of an entry; an operation without data has one piece all the same.
struct Piece {
  submit::Entry* entry = nullptr;
  std::size_t part = 0;

  [[nodiscard]] const submit::Part& tensor() const { return entry->parts[part]; }
  [[nodiscard]] std::size_t bytes() const { return part < entry->parts.size() ? tensor().bytes() : 0; }
  [[nodiscard]] DType dtype() const {
    return part == 0 ? entry->request.dtype : entry->request.others[part - 1].dtype;
  }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const {
    return part == 0 ? entry->request.shape : entry->request.others[part - 1].shape;
  }
};

struct Batch {
  std::uint64_t sequence = 0;  // of the order
  std::uint32_t index = 0;     // within the order
  const OperationSteps* steps = nullptr;
  std::vector<Piece> pieces;  // alike but for name and shape; none: an exchange between members
  std::vector<std::shared_ptr<submit::Entry>> entries;  // whose pieces these are, each once
  std::vector<std::int64_t> extents;  // allgather: of the tensor's first dimension, by member
  std::vector<int> absent;            // members that skip this
  // On a GPU that other process sets use, too: when it may be enqueued. `ends_tickets`: the last one of
  // several.
  std::optional<negotiate::GpuTicket> ticket{};
  bool ends_tickets = false;

  collective::ScatterList scattered;  // where the fabric takes the pieces as they lie; else,
  fuse::Layout layout;                // when there is more than one, of the fusion buffer
  std::byte* fusion = nullptr;
  std::vector<std::int64_t> sent, received;  // what members tell each other beside the data
  collective::Call call;
  std::unique_ptr<collective::Pending> pending;
  GpuEventPtr done;                              // on a GPU: all of it is done behind this point
  DeviceClock::Mark device_began, device_ended;  // for the timeline
  TimePoint started{};

  [[nodiscard]] bool on_gpu() const {
    return !entries.empty() && entries.front()->request.device == DeviceType::kGpu;
  }
  [[nodiscard]] const wire::Request& request() const { return entries.front()->request; }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.bytes();
    return sum;
  }
};

}  // namespace roundelay::runtime
