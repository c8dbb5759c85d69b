#include "collective/staged/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "collective/present.h"

namespace roundelay::collective::staged {
namespace {

constexpr std::size_t kLine = 64;

std::size_t sum(const std::vector<std::size_t>& sizes, std::size_t members) {
  return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(members), std::size_t{0});
}

// Returns the bytes that may be cut into pieces; nothing: the call stays whole. Adasum's dot products are
// over all elements.
std::optional<std::size_t> divisible(const AllreduceCall& call) {
  if (call.reduce_op == ReduceOp::kAdasum) return std::nullopt;
  return call.buffer.bytes;
}
std::optional<std::size_t> divisible(const BroadcastCall& call) { return call.buffer.size(); }
std::optional<std::size_t> divisible(const BarrierCall& /*call*/) { return std::nullopt; }
std::optional<std::size_t> divisible(const AllgatherCall& /*call*/) { return std::nullopt; }
std::optional<std::size_t> divisible(const AlltoallCall& /*call*/) { return std::nullopt; }
std::optional<std::size_t> divisible(const ReducescatterCall& /*call*/) { return std::nullopt; }

// Returns a part of a step's pinned memory; null where it has none.
ByteSpan part_of(std::byte* pinned, ByteRange range) {
  return pinned == nullptr ? ByteSpan() : ByteSpan(pinned + range.offset, range.bytes);
}

void move_to_host(AllreduceCall& call, const StagedStep& step, std::byte* pinned) {
  call.buffer = {pinned, step.result.offset, step.result.bytes, nullptr};
}
void move_to_host(BroadcastCall& call, const StagedStep& step, std::byte* pinned) {
  call.buffer = part_of(pinned, step.result);
}
void move_to_host(BarrierCall& /*call*/, const StagedStep& /*step*/, std::byte* /*pinned*/) {}

template <class Kind>
void move_parts_to_host(Kind& call, const StagedStep& step, std::byte* pinned) {
  call.output = part_of(pinned, step.result);
  call.input = call.input == nullptr ? nullptr : part_of(pinned, step.given).data();
}
void move_to_host(AllgatherCall& call, const StagedStep& step, std::byte* pinned) {
  move_parts_to_host(call, step, pinned);
  call.region = nullptr;
}
void move_to_host(AlltoallCall& call, const StagedStep& step, std::byte* pinned) {
  move_parts_to_host(call, step, pinned);
}
void move_to_host(ReducescatterCall& call, const StagedStep& step, std::byte* pinned) {
  move_parts_to_host(call, step, pinned);
  call.region = nullptr;
}

// One step of a call, as the member `self` sees it: the piece `number`.
struct Cut {
  std::size_t self;
  std::uint64_t number;
  std::size_t piece_bytes;  // SIZE_MAX: the call is not cut

  // Returns where the piece of these bytes lies.
  [[nodiscard]] ByteRange piece(std::size_t bytes) const {
    const std::size_t offset = number == 0 ? 0 : static_cast<std::size_t>(number) * piece_bytes;
    return {offset, std::min(piece_bytes, bytes - offset)};
  }
};

StagedStep step_of(const AllreduceCall& call, const Cut& cut) {
  const ByteRange range = cut.piece(call.buffer.bytes);
  if (range.bytes == 0) return {};
  std::byte* const data = call.buffer.data() + range.offset;
  return {range.bytes, data, {0, range.bytes}, data, {0, range.bytes}};
}

StagedStep step_of(const BroadcastCall& call, const Cut& cut) {
  const ByteRange range = cut.piece(call.buffer.size());
  if (range.bytes == 0) return {};
  std::byte* const data = call.buffer.data() + range.offset;
  const bool root = static_cast<std::size_t>(call.root) == cut.self;
  return {range.bytes, root ? data : nullptr, {0, range.bytes}, root ? nullptr : data, {0, range.bytes}};
}

// A barrier has no bytes.
StagedStep step_of(const BarrierCall& /*call*/, const Cut& /*cut*/) { return {}; }

// The input is given in its place in the result.
StagedStep step_of(const AllgatherCall& call, const Cut& cut) {
  const std::size_t bytes = call.output.size();
  const ByteRange own{sum(call.receive_bytes, cut.self), call.receive_bytes[cut.self]};
  return {bytes, call.input, own, call.output.data(), {0, bytes}};
}

StagedStep step_of(const AlltoallCall& call, const Cut& /*cut*/) {
  const std::size_t given = sum(call.send_bytes, call.send_bytes.size());
  const std::size_t output_at = (given + kLine - 1) / kLine * kLine;
  const std::size_t taken = call.output.size();
  return {output_at + taken, call.input, {0, given}, call.output.data(), {output_at, taken}};
}

// The result takes the place of this member's shard in the input.
StagedStep step_of(const ReducescatterCall& call, const Cut& cut) {
  const std::size_t given = sum(call.shard_bytes, call.shard_bytes.size());
  const ByteRange own{sum(call.shard_bytes, cut.self), call.shard_bytes[cut.self]};
  return {given, call.input, {0, given}, call.output.data(), own};
}

}  // namespace

StagedPlan::StagedPlan(const Call& call, int self, std::size_t piece_bytes)
    : call_(call), self_(static_cast<std::size_t>(self)), absent_(is_absent(options_of(call), self)) {
  // An absent member does not know how many bytes there are.
  if (!options_of(call).absent.empty()) return;
  const auto bytes = std::visit([](const auto& one) { return divisible(one); }, call);
  if (!bytes) return;
  piece_bytes_ = piece_bytes;
  count_ = std::max((*bytes + piece_bytes_ - 1) / piece_bytes_, std::size_t{1});
}

StagedStep StagedPlan::operator[](std::uint64_t number) const {
  if (absent_) return {};
  const Cut cut{self_, number, piece_bytes_};
  return std::visit([&cut](const auto& one) { return step_of(one, cut); }, call_);
}

Call StagedPlan::on_host(const StagedStep& step, std::byte* pinned) const {
  Call host = call_;
  options_of(host).stream = nullptr;
  std::visit([&](auto& one) { move_to_host(one, step, pinned); }, host);
  return host;
}

}  // namespace roundelay::collective::staged
