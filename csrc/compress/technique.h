// A technique reduces a full bucket of gradients in place of one allreduce. It may cast gradients, select
// some of them, and keep the rest in a residual, and it may call fabrics of every level. The negotiation sees
// one allreduce.
//
// Python decides which bucket takes which technique (roundelay/torch/strategies). If a technique does not
// apply, the lane reduces densely, alike on all ranks, and leaves the state as it is: a rank has joined, the
// bucket comes in parts, or gradients lie outside the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/frame_pool.h"
#include "base/gpu.h"
#include "base/status.h"
#include "collective/call.h"
#include "collective/fabric.h"
#include "collective/task.h"
#include "compress/arithmetic.h"

namespace roundelay::compress {

// The elements of one parameter in a bucket. Padding may lie between slices.
struct Slice {
  std::size_t first = 0;  // index in the bucket
  std::size_t count = 0;
};

// The elements of a bucket when a technique begins: gradients, one rank's part of the sum. When it ends they
// hold the result, with the same bits on all ranks.
struct Bucket {
  collective::Buffer buffer;          // the elements, in the pool's region; on a GPU: device memory
  std::size_t count = 0;              // elements, padding included
  std::size_t pool_offset = 0;        // bytes from the pool's start, the same on all ranks
  collective::Reduction reduction;    // dtype, operation (kSum, with a divisor for an average) and scales
  std::span<const Slice> parameters;  // ascending
  ByteSpan state;         // state_bytes() bytes, zero at first; in the same kind of memory as the elements
  std::uint64_t run = 0;  // counts the runs that used the state since it was clear; the same on all ranks
};

// Describes a bucket without its memory.
struct BucketShape {
  std::size_t count = 0;  // elements, padding included
  DType dtype = DType::kFloat32;
  std::span<const Slice> parameters;  // ascending
};

// Describes the chunks of a bucket that a run has sent.
struct SentChunks {
  std::size_t chunk = 1;                 // elements of a chunk
  std::size_t indices = 0;               // the number of chunks that were sent
  std::size_t indices_at = 0;            // the offset of their indices in the state, in bytes; 32 bits each
  std::span<const std::uint32_t> dense;  // the numbers of the parameters that went densely
};

// A rank's place among the ranks of its node. Ranks without a node of several are the only member of one.
struct Place {
  int index = 0;
  int shards = 1;    // the places that have a shard of a bucket, the first ones; the same on all nodes
  int members = 1;   // the ranks of this node
  bool even = true;  // nodes have equally many ranks; the same on all ranks
};

// The gradients that a technique keeps back on one rank: the first numbers of its state, of type
// kernels::residual_type(dtype), are those of `elements`.
struct Residual {
  Slice elements;     // of the bucket
  double factor = 1;  // makes them this rank's part of the sum
};

// The means of a technique while it works on one bucket. Only the technique's coroutine uses it, one thread
// at a time: the holder of the lane's token.
class Workspace {
 public:
  virtual ~Workspace() = default;
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Returns the fabric of the whole group.
  [[nodiscard]] virtual collective::Fabric& fabric() = 0;
  // Returns the stream of the bucket's memory; null: it is in host memory, and work is done at once.
  [[nodiscard]] virtual GpuStream stream() const = 0;
  // Returns the arithmetic on the bucket's memory.
  [[nodiscard]] virtual Arithmetic& math() = 0;
  // Returns memory of the same kind as the bucket's, aligned for all elements. It lasts until the task ends;
  // its content is undefined. Each call returns other memory. Errors: kUnavailable (no memory), kAborted (the
  // device failed).
  [[nodiscard]] virtual Result<std::byte*> scratch(std::size_t bytes) = 0;
  // Begins a span of the timeline: the technique's own work until its next call or span. Calls have names of
  // their own. The name outlives the workspace.
  virtual void span(std::string_view /*name*/) {}
  // Holds the frame of the technique's coroutine.
  [[nodiscard]] virtual FramePool& frames() = 0;

  // Returns the fabrics inside nodes, between them and so on, innermost first; one: the group is flat.
  [[nodiscard]] std::span<collective::Fabric* const> levels() { return fabric().level_fabrics(); }
  // Return the fabric within this rank's node (null: there is none), and those between nodes.
  [[nodiscard]] collective::Fabric* node() { return collective::node_fabric(fabric()); }
  [[nodiscard]] std::span<collective::Fabric* const> across() { return collective::fabrics_across(fabric()); }
};

// Makes the call that reduces `buffer` as the bucket's own elements would be.
[[nodiscard]] inline collective::AllreduceCall allreduce_of(const collective::Buffer& buffer,
                                                            const Bucket& bucket,
                                                            const Workspace& workspace) {
  collective::AllreduceCall call;
  static_cast<collective::Reduction&>(call) = bucket.reduction;
  call.buffer = buffer;
  call.stream = workspace.stream();
  return call;
}

// Immutable; any thread. Two objects with the same text() do the same on all ranks.
class Technique {
 public:
  virtual ~Technique() = default;
  Technique() = default;
  Technique(const Technique&) = delete;
  Technique& operator=(const Technique&) = delete;

  // Returns the text that TechniqueKind::make was given: the name and all parameters, in one form, such as
  // "topk:density=0.01". Requests carry it, so that ranks that differ get an error with both texts.
  [[nodiscard]] virtual std::string text() const = 0;
  // Returns what is wrong with such a bucket for this technique; OK: nothing. The same on all ranks.
  [[nodiscard]] virtual Status check(const BucketShape& /*shape*/) const { return {}; }
  // Returns the size of the state that the technique keeps for a bucket of `count` elements. `levels`: those
  // of collective::level_sizes(); empty: {1}.
  [[nodiscard]] virtual std::size_t state_bytes(std::size_t count, DType dtype,
                                                std::span<const int> levels) const = 0;
  // Returns the number of elements at the state's beginning that have the units of gradients. Their type is
  // kernels::residual_type(dtype). A caller that changes these units (a loss scale) multiplies them.
  [[nodiscard]] virtual std::size_t kept_numbers(std::size_t /*count*/,
                                                 std::span<const int> /*levels*/) const {
    return 0;
  }
  // Returns what run number `run` has sent; none: it does not send chunks.
  [[nodiscard]] virtual std::optional<SentChunks> sent(const BucketShape& /*shape*/,
                                                       std::uint64_t /*run*/) const {
    return std::nullopt;
  }
  // Makes the task that reduces the bucket (collective/task.h). The workspace, the technique and the bucket's
  // memory outlive it. Errors end the communication of the whole group, as those of a fabric do.
  [[nodiscard]] virtual collective::Task run(Workspace& workspace, Bucket bucket) const = 0;
  // Returns what it keeps back, on the rank at this place, of a bucket with `count` elements whose sums have
  // this scale; {}: nothing. A flush step adds it to the gradients, clears the state, and reduces densely:
  // layouts change only then.
  [[nodiscard]] virtual Residual residual(std::size_t count, const Scale& scale,
                                          const Place& place) const = 0;
};

using TechniquePtr = std::shared_ptr<const Technique>;

// The outcome of an operation, for the adapter.
struct TechniqueOutcome {
  bool applied = false;          // false: the operation failed, or the technique did not apply
  std::size_t called_bytes = 0;  // bytes that this rank gave to the fabric
};

// A technique with its data for one bucket. The adapter makes it and keeps it alive until the operation is
// over; the lane reads it.
struct BucketTechnique {
  TechniquePtr technique;
  bool flush = false;  // the residual and a dense allreduce, instead of run()
  ByteSpan state;      // Bucket's field of this name, as are the next two
  std::uint64_t run = 0;
  std::vector<Slice> parameters;
  // For each parameter 1 if this rank has a gradient of it, else 0. The members take the largest ones, and
  // reduce densely if no member has one of some parameter: what a technique sent of it then, nobody would
  // take. Null: they know that all have one.
  std::shared_ptr<std::vector<std::uint8_t>> present{};
  // The lane sets it before the operation is done, if the technique has carried it out. Null: nobody reads
  // it.
  TechniqueOutcome* outcome = nullptr;
};

}  // namespace roundelay::compress
