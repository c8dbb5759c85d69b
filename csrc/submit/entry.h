// Describes one rank's part in one operation: its tensors, and the memory for its results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/agreement.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/gpu.h"
#include "base/region.h"
#include "base/status.h"
#include "complete/handles.h"
#include "wire/messages.h"

namespace roundelay::collective {
struct WholeCall;
}
namespace roundelay::compress {
struct BucketTechnique;
}

namespace roundelay::submit {

// The times at which an entry passed each stage, for the timeline. TimePoint{}: not yet.
struct EntryTimes {
  TimePoint submitted{};  // the program called submit()
  TimePoint ordered{};    // the lane queued its operation, by an order or by the schedule
  TimePoint started{};    // the lane began its first batch
};

// Gives memory to results whose size is known only when all ranks have reported. The caller of submit() owns
// it and keeps it until the handle is done.
class Results {
 public:
  virtual ~Results() = default;
  struct Memory {
    std::byte* data = nullptr;
    GpuEventPtr free{};  // a stream may write to `data` after this event of a GPU; null: at once
  };
  // Allocates the result of tensor number `part`, with this shape. The core calls these functions without the
  // GIL, one at a time. The holder of the lane's token calls them; for a join, the holder of the negotiation
  // token. Errors: kUnavailable (no memory).
  virtual Result<Memory> allocate(std::size_t part, const std::vector<std::int64_t>& shape) = 0;
  // Alltoall: stores the number of rows received from each member.
  virtual void set_received_splits(std::vector<std::int64_t> rows) = 0;
  // Agreement: stores the result.
  virtual void set_agreed(Agreed /*agreed*/) {}  // NOLINT(performance-unnecessary-value-param)
  // Stores an event of a GPU, after which a part of the results is complete. The lane calls it for each batch
  // of the operation, before the handle is done. All results are complete after the last event.
  virtual void set_done(GpuEventPtr /*event*/) {}  // NOLINT(performance-unnecessary-value-param)
  // Called once, without a lock, when the operation is over, before its handle is done. The handle's status
  // says the same.
  virtual void set_over(const Status& /*outcome*/) {}
};

// One tensor of an operation: contiguous memory of `count` elements.
struct Part {
  DType dtype = DType::kFloat32;
  const std::byte* input = nullptr;  // null only if there are no elements, or no input
  std::byte* output = nullptr;       // may equal `input`; null: Results allocates it
  std::size_t count = 0;             // elements of the input
  RegionPtr region{};  // allreduce in place: the region that holds `output` at request.region; else null
  std::uint32_t gradients = 1;  // of a bucket: how many lie in it

  [[nodiscard]] std::size_t bytes() const { return count * size_of(dtype); }
};

// The caller's arguments of an operation. The caller owns the memory of the parts and `results`, and keeps
// them until the handle is done.
struct Arguments {
  wire::Request request;    // an empty name: the table makes one up
  std::vector<Part> parts;  // one; several: a grouped operation; none: barrier, join, process set, agreement
  std::vector<std::int64_t> splits;  // alltoall: rows for each member
  std::string values{};              // agreement: this rank's, all fields one after the other
  Results* results = nullptr;        // null: each part has an output
  int gpu = -1;                      // the GPU's index if request.device is a GPU
  GpuEventPtr
      inputs_ready{};  // on a GPU: inputs are complete and outputs free after this event; null: already
  // The technique that request.technique names, and this bucket's state. Null: dense.
  std::shared_ptr<const compress::BucketTechnique> technique{};
  // The call that carries the operation out, in call order. Null: the operation makes its calls, in an order
  // that the ranks negotiate. The other members then only describe it.
  std::shared_ptr<collective::WholeCall> call{};
};

// An operation in flight on this rank. The table owns it until a lane or the completer extracts it.
struct Entry : Arguments {
  complete::Handle handle = 0;  // the table sets it
  std::size_t unfinished = 0;   // batches that still work on this entry; the lane counts them
  EntryTimes times{};

  // Names the operation in error messages: "allreduce of 'weight'".
  [[nodiscard]] std::string describe() const;
};

}  // namespace roundelay::submit
