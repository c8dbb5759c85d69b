// A call asks a fabric to carry out an operation. Each operation has a struct, and Call holds any of them.
// Code that treats operations differently visits the Call with one overload for each struct, so that the
// compiler finds an operation without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "base/abort.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/gpu.h"
#include "base/region.h"
#include "collective/call_mark.h"
#include "collective/level_observer.h"
#include "collective/message_list.h"
#include "collective/scatter_list.h"

namespace roundelay::collective {

// The options that every call has.
struct CallOptions {
  std::vector<int> absent;  // members (ascending) that take no part; they too must start the call
  // The stream of a call on a GPU's memory; null for a call on the CPU's. The call is enqueued to this
  // stream, and is over when it is enqueued: the device may do the work later.
  GpuStream stream = nullptr;
  Deadline deadline = Deadline::never();
  const AbortToken* abort = nullptr;  // every test looks at it; may be null
  LevelObserver* observer = nullptr;  // a fabric with levels tells it about this call; may be null
  // The algorithm that the call asks for, the same on all members and in static storage; empty, or one that
  // the operation does not have: the group's rule chooses. Levels ask for it in each stage.
  std::string_view algorithm{};
  // The plan over levels that the call asks for, by the members of its stages' groups, innermost first; the
  // same on all members, in memory that outlives the call. Empty, or one that the fabric does not have: its
  // first one.
  std::span<const std::uint32_t> factors{};
  // If it is set, members compare it with their peers', and fail with kMismatch before they use bytes of a
  // call that differs. Fabrics `shm` and `tcp`, and levels of them, do so.
  CallMark mark{};
};

// The arithmetic of a reduction.
struct Reduction {
  DType dtype = DType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;  // never kAverage: that is kSum with a divisor in `scale`
  Scale prescale{};                     // scales each part, and rounds it, before the reduction
  Scale scale{};  // a divisor divides the result before it is rounded, a factor multiplies the rounded result
};

// Memory that may lie in a region.
struct Buffer {
  std::byte* base = nullptr;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  // The region that has the buffer; null: any memory of this process. `base` is then the region's own part,
  // and the buffers of all members are at this offset of regions with one key. A fabric whose members are
  // those of the region reaches the bytes there; all others use this member's pointers alone.
  const Region* region = nullptr;

  [[nodiscard]] std::byte* data() const { return base + offset; }
};

// The work of a call in a group of one: `output` gets `input`, scaled. No output: there is no work.
struct SingleWork {
  const std::byte* input = nullptr;
  ByteSpan output{};
  const Reduction* arithmetic = nullptr;  // the scales; null: the bytes are only copied
};

// Code that treats all operations alike uses these functions, which each struct has:
// - sizes(): references to its vectors of sizes by member;
// - single_work(): its work in a group of one, but for a scattered buffer;
// - result_bytes(): the size of the result on this member;
// - given_bytes(member): the size of this member's input; `member` is its index in the group;
// - agreed_bytes(): a bound for the bytes of the call's messages, the same on all members.

struct AllreduceCall : CallOptions, Reduction {
  static constexpr Operation kOperation = Operation::kAllreduce;
  static std::tuple<> sizes() { return {}; }
  [[nodiscard]] SingleWork single_work() const {
    return {buffer.data(), {buffer.data(), buffer.bytes}, this};
  }

  Buffer buffer;  // holds the input, then the result
  // The list in which the bytes lie; null: they lie in `buffer`. With a list, `buffer` has no memory, and
  // `buffer.bytes` is the list's size.
  // Members may cut their lists differently. Only for fabrics with FabricCapabilities::scattered, and not for
  // Adasum. The list outlives the call.
  const ScatterList* scattered = nullptr;

  [[nodiscard]] std::size_t result_bytes() const { return buffer.bytes; }
  [[nodiscard]] std::size_t given_bytes(int /*member*/) const { return buffer.bytes; }
  [[nodiscard]] std::size_t agreed_bytes() const {
    const bool widened = reduce_op == ReduceOp::kAdasum && size_of(dtype) == 2;  // it travels as fp32
    return buffer.bytes * (widened ? 2 : 1);
  }
};

struct BroadcastCall : CallOptions {
  static constexpr Operation kOperation = Operation::kBroadcast;
  static std::tuple<> sizes() { return {}; }
  [[nodiscard]] static SingleWork single_work() { return {}; }

  ByteSpan buffer;  // holds the input on the root, and the result on all
  int root = 0;     // an index in the group

  [[nodiscard]] std::size_t result_bytes() const { return buffer.size(); }
  [[nodiscard]] std::size_t given_bytes(int member) const { return member == root ? buffer.size() : 0; }
  [[nodiscard]] std::size_t agreed_bytes() const { return buffer.size(); }
};

struct BarrierCall : CallOptions {
  static constexpr Operation kOperation = Operation::kBarrier;
  static std::tuple<> sizes() { return {}; }
  [[nodiscard]] static SingleWork single_work() { return {}; }

  [[nodiscard]] static std::size_t result_bytes() { return 0; }
  [[nodiscard]] static std::size_t given_bytes(int /*member*/) { return 0; }
  [[nodiscard]] static std::size_t agreed_bytes() { return 0; }
};

// The next three structs have vectors of sizes, with one entry for each member of the group, 0 for absent
// ones. Parts follow each other in memory in this order, without gaps. A region is as in Buffer: the parts of
// all members begin at the same offset of their regions.
struct AllgatherCall : CallOptions {
  static constexpr Operation kOperation = Operation::kAllgather;
  auto sizes() { return std::tie(receive_bytes); }
  [[nodiscard]] SingleWork single_work() const { return {input, output}; }

  const std::byte* input = nullptr;        // this member's part; may lie in its place in `output`
  ByteSpan output;                         // the parts of all members
  std::vector<std::size_t> receive_bytes;  // the size of each member's part
  const Region* region = nullptr;          // not null: `output` lies there, and `input` in its place in it

  [[nodiscard]] std::size_t result_bytes() const { return output.size(); }
  [[nodiscard]] std::size_t given_bytes(int member) const {
    return receive_bytes[static_cast<std::size_t>(member)];
  }
  [[nodiscard]] std::size_t agreed_bytes() const { return output.size(); }
};

struct AlltoallCall : CallOptions {
  static constexpr Operation kOperation = Operation::kAlltoall;
  auto sizes() { return std::tie(send_bytes, receive_bytes); }
  [[nodiscard]] SingleWork single_work() const { return {input, output}; }

  const std::byte* input = nullptr;        // this member's parts for all members
  ByteSpan output;                         // all members' parts for this one
  std::vector<std::size_t> send_bytes;     // the size of each member's part from this one
  std::vector<std::size_t> receive_bytes;  // the size of this member's part from each
  // What travels instead of these parts, of which there are then none; null: the parts. Only for fabrics with
  // FabricCapabilities::messages. All members take part. The list outlives the call.
  const MessageList* messages = nullptr;

  [[nodiscard]] std::size_t result_bytes() const { return output.size(); }
  [[nodiscard]] std::size_t given_bytes(int /*member*/) const {
    return std::accumulate(send_bytes.begin(), send_bytes.end(), std::size_t{0});
  }
  // Of parts each member knows its own only.
  [[nodiscard]] std::size_t agreed_bytes() const {
    return messages == nullptr ? SIZE_MAX : messages->most_bytes;
  }
};

// A reduce to one member is a reducescatter in which the others have shards of no bytes. Likewise a gather,
// and a scatter, is an alltoall in which only one member gets parts, or sends them.
struct ReducescatterCall : CallOptions, Reduction {
  static constexpr Operation kOperation = Operation::kReducescatter;
  auto sizes() { return std::tie(shard_bytes); }
  [[nodiscard]] SingleWork single_work() const { return {input, output, this}; }

  const std::byte* input = nullptr;      // this member's parts of all shards
  ByteSpan output;                       // this member's shard; may be its place in `input`
  std::vector<std::size_t> shard_bytes;  // the size of each member's shard
  const Region* region = nullptr;        // not null: `input` lies there, and `output` is its place in it

  [[nodiscard]] std::size_t result_bytes() const { return output.size(); }
  [[nodiscard]] std::size_t given_bytes(int /*member*/) const { return agreed_bytes(); }
  [[nodiscard]] std::size_t agreed_bytes() const {
    return std::accumulate(shard_bytes.begin(), shard_bytes.end(), std::size_t{0});
  }
};

using Call =
    std::variant<AllreduceCall, BroadcastCall, BarrierCall, AllgatherCall, AlltoallCall, ReducescatterCall>;

inline const CallOptions& options_of(const Call& call) {
  return std::visit([](const auto& one) -> const CallOptions& { return one; }, call);
}
inline CallOptions& options_of(Call& call) {
  return std::visit([](auto& one) -> CallOptions& { return one; }, call);
}

inline Operation operation_of(const Call& call) {
  return std::visit([](const auto& one) { return one.kOperation; }, call);
}

// Returns the size of the result on this member.
inline std::size_t result_bytes(const Call& call) {
  return std::visit([](const auto& one) { return one.result_bytes(); }, call);
}

// Returns the size of this member's input. `member` is its index in the group.
inline std::size_t given_bytes(const Call& call, int member) {
  return std::visit([member](const auto& one) { return one.given_bytes(member); }, call);
}

// Returns a bound for the bytes of the call's messages, the same on all members. SIZE_MAX: there is none.
inline std::size_t agreed_bytes(const Call& call) {
  return std::visit([](const auto& one) { return one.agreed_bytes(); }, call);
}

}  // namespace roundelay::collective
