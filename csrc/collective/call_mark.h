// What the members of a group have to agree on where no coordinator has compared their calls: each message of
// a call carries the mark (collective/tcp/message.h), or it lies beside the member's first word
// (collective/shm/segment.h). A member that finds another mark than its own fails before it uses a byte.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/status.h"

namespace roundelay::collective {

// Travels as it is.
struct CallMark {
  std::uint64_t sequence = 0;  // counts the calls of a group from 1; 0: the call has no mark
  std::uint64_t bytes = 0;     // those that members agree on
  std::int32_t detail =
      -1;  // the root; digests of a technique with its run, of unequal or coalesced parts; -1: nothing
  Operation operation = Operation::kBarrier;
  ReduceOp reduce_op = ReduceOp::kSum;
  DType dtype = DType::kUInt8;
  // What the user has called, if it is no operation of its own: a reduce is a reducescatter in which one
  // member has the only shard, a gather and a scatter are alltoalls, operators on bits fold what a call that
  // moves has brought together, and a technique makes several calls, which all have its mark.
  enum class Form : std::uint8_t { kItself, kReduce, kGather, kScatter, kAnd, kOr, kXor, kTechnique };
  Form form = Form::kItself;

  [[nodiscard]] bool set() const { return sequence != 0; }
  // Returns whether only two members at a time agree on bytes, each on those of their message: an alltoall
  // with splits.
  [[nodiscard]] bool agrees_by_pair() const {
    return operation == Operation::kAlltoall && form == Form::kItself;
  }
  friend bool operator==(const CallMark&, const CallMark&) = default;
};
static_assert(sizeof(CallMark) == 24, "no padding travels");

// Returns "call 7, allreduce Sum of 1024 bytes float32".
std::string describe(const CallMark& mark);
// Returns "A here, and B there".
std::string describe(const CallMark& mine, const CallMark& peers);
// Returns kMismatch with the peer's rank and both calls, as describe() tells them.
Status differs_from(int peer_rank, const std::string& calls);

}  // namespace roundelay::collective
