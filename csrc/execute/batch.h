// A batch: the tensors that one task brings to the fabric, in one call or in several, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/fabric.h"
#include "collective/task.h"
#include "gpu/device_clock.h"
#include "negotiate/participant.h"
#include "submit/entry.h"

namespace roundelay::execute {

class LaneRecorder;
struct OperationSteps;

inline constexpr std::size_t kExecutors = 2;  // the most executors that a lane has (execute/lane_executors.h)

// One tensor of a batch, by its entry. An operation without tensors has one of 0 bytes.
struct BatchTensor {
  submit::Entry* entry = nullptr;
  std::size_t part = 0;  // index of the tensor in the entry

  [[nodiscard]] const submit::Part& memory() const { return entry->parts[part]; }
  [[nodiscard]] std::size_t bytes() const { return part < entry->parts.size() ? memory().bytes() : 0; }
  [[nodiscard]] std::uint32_t gradients() const {
    return part < entry->parts.size() ? memory().gradients : 1;
  }
  [[nodiscard]] DType dtype() const {
    return part == 0 ? entry->request.dtype : entry->request.others[part - 1].dtype;
  }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const {
    return part == 0 ? entry->request.shape : entry->request.others[part - 1].shape;
  }
};

// All state of one batch. One owner at a time: the queue, then the holder of the lane's token.
struct Batch {
  // Set when the batch is queued.
  std::uint64_t sequence = 0;  // the order's; under a schedule lock, that of the order that began it
  std::uint32_t index = 0;     // counts the batches of this sequence, for the timeline
  const OperationSteps* steps = nullptr;
  // The tensors, which differ in name and shape only. None: the members only exchange `following`.
  std::vector<BatchTensor> tensors;
  std::vector<std::shared_ptr<submit::Entry>> entries;  // the entries of the tensors, each once
  std::vector<std::int64_t> extents;                    // allgather: the tensor's first dimension, by member
  std::vector<int> absent;                              // indices of members that skip this batch
  std::int64_t following = 0;                    // the number of batches after it, if it has no tensors
  std::optional<negotiate::GpuTicket> ticket{};  // set if other process sets use the GPU, too
  bool ends_tickets = false;                     // the last batch of its ticket

  // Set when the batch is prepared.
  std::size_t executor = 0;  // index of the lane's executor that carries the batch
  bool alone = true;         // no other batch may be under way

  // Set while the batch is carried out.
  std::byte* fusion = nullptr;  // the fusion buffer, owned by the DeviceBuffers; null: not packed
  collective::Task task;        // null before it is prepared, and after its end
  std::unique_ptr<collective::PendingCall> pending;  // the call in progress; null: none is
  LaneRecorder* recorder = nullptr;  // records a technique's spans; null if the timeline is off, and on a GPU
  collective::LevelObserver* observer = nullptr;  // observes the calls; null while the timeline is off
  std::size_t called_bytes = 0;                   // bytes that this member has given to the task's calls
  std::string_view algorithm{};  // the last call's; the fabric's name if that has only one way
  GpuEventPtr done;              // a batch on a GPU is complete after this event; null until it is enqueued
  gpu::DeviceClock::Mark device_began, device_ended;  // the timeline's; they have no point while it is off
  TimePoint started{};                                // the start of the first call
  bool told_late = false;                             // the log has said that it takes long
  TimePoint called{};                                 // the start of the last call
  TimePoint reduced{};                                // the end of the last call

  [[nodiscard]] bool on_gpu() const {
    return !entries.empty() && entries.front()->request.device == DeviceType::kGpu;
  }
  // The request of the first entry. The batch has entries.
  [[nodiscard]] const wire::Request& request() const { return entries.front()->request; }
  // The technique that carries out the batch, and its bucket; null: dense. A technique does not apply while
  // a member is absent. Equal on all members.
  [[nodiscard]] const compress::BucketTechnique* technique() const {
    return entries.empty() || !absent.empty() ? nullptr : entries.front()->technique.get();
  }
  // Returns the call that the user has made. Null: the steps make calls.
  [[nodiscard]] collective::WholeCall* whole_call() const {
    return entries.empty() ? nullptr : entries.front()->call.get();
  }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const BatchTensor& tensor : tensors) sum += tensor.bytes();
    return sum;
  }
  // Returns the number of tensors, where a bucket counts as its gradients.
  [[nodiscard]] std::uint32_t gradients() const {
    std::uint32_t sum = 0;
    for (const BatchTensor& tensor : tensors) sum += tensor.gradients();
    return sum;
  }
  // Returns the pause until the call in progress may be over. Precondition: there is a call.
  [[nodiscard]] Nap idle(Backoff& backoff) const { return pending->idle(backoff); }
  // Returns the world rank that the call in progress waits for, or -1.
  [[nodiscard]] int waiting_for() const;
  // Returns whether the deadline of the call in progress has passed.
  [[nodiscard]] bool late() const;
  // Names the batch in error messages: "allreduce of 'a' and 2 more".
  [[nodiscard]] std::string describe() const;
};

using Batches = std::deque<std::unique_ptr<Batch>>;
using Entries = std::vector<std::shared_ptr<submit::Entry>>;

// Cuts the entries of one order into batches and counts them in each entry's `unfinished`. Tensors that may
// not travel together, or are too large to, get batches of their own. All members that take part make the
// same batches. `members`: the size of the group. `fusion_threshold`: the most bytes of several tensors.
[[nodiscard]] Batches cut_into_batches(const Entries& entries, const negotiate::OrderedOperation& ordered,
                                       int members, std::size_t fusion_threshold);

}  // namespace roundelay::execute
