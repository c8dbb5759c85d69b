#include "collective/staged/plan.h"

#include <algorithm>
#include <numeric>

#include "collective/present.h"

namespace roundelay::collective::staged {
namespace {

constexpr std::size_t kLine = 64;

std::size_t sum(const std::vector<std::size_t>& sizes, std::size_t members) {
  return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(members), std::size_t{0});
}

// Adasum's dot products are over all elements; an absent member does not know how many bytes there are.
bool may_be_cut(const Call& call) {
  if (!call.absent.empty()) return false;
  return call.operation == Operation::kBroadcast ||
         (call.operation == Operation::kAllreduce && call.reduce_op != ReduceOp::kAdasum);
}

}  // namespace

Plan::Plan(const Call& call, int self, std::size_t piece_bytes)
    : call_(call), self_(static_cast<std::size_t>(self)), absent_(is_absent(call, self)) {
  if (!may_be_cut(call)) return;
  piece_bytes_ = piece_bytes;
  count_ = std::max((call.buffer.bytes + piece_bytes_ - 1) / piece_bytes_, std::size_t{1});
}

Step Plan::operator[](std::uint64_t number) const {
  if (absent_) return {};
  switch (call_.operation) {
    case Operation::kAllreduce:
    case Operation::kBroadcast:
      return piece(number);
    case Operation::kAllgather:
      return gather();
    case Operation::kAlltoall:
      return exchange();
    case Operation::kReducescatter:
      return scatter();
    default:
      return {};  // a barrier has no bytes
  }
}

Step Plan::piece(std::uint64_t number) const {
  const std::size_t offset = number == 0 ? 0 : static_cast<std::size_t>(number) * piece_bytes_;
  const std::size_t bytes = std::min(piece_bytes_, call_.buffer.bytes - offset);
  if (bytes == 0) return {};
  std::byte* const data = call_.buffer.data() + offset;
  const bool broadcast = call_.operation == Operation::kBroadcast;
  const bool root = static_cast<std::size_t>(call_.root) == self_;
  const bool gives = !broadcast || root, takes = !broadcast || !root;
  return {bytes, gives ? data : nullptr, {0, bytes}, takes ? data : nullptr, {0, bytes}};
}

// The own part lies in its place in the result.
Step Plan::gather() const {
  const std::size_t bytes = call_.buffer.bytes;
  const Range own{sum(call_.receive_bytes, self_), call_.receive_bytes[self_]};
  return {bytes, call_.input, own, call_.buffer.data(), {0, bytes}};
}

Step Plan::exchange() const {
  const std::size_t given = sum(call_.send_bytes, call_.send_bytes.size());
  const std::size_t behind = (given + kLine - 1) / kLine * kLine;
  const std::size_t taken = call_.buffer.bytes;
  return {behind + taken, call_.input, {0, given}, call_.buffer.data(), {behind, taken}};
}

// The result is the own shard of what is given.
Step Plan::scatter() const {
  const std::size_t given = sum(call_.send_bytes, call_.send_bytes.size());
  const Range own{sum(call_.send_bytes, self_), call_.send_bytes[self_]};
  return {given, call_.input, {0, given}, call_.buffer.data(), own};
}

Call Plan::on_host(const Step& step, std::byte* pinned) const {
  Call host = call_;
  host.stream = nullptr;
  host.buffer = {pinned, step.result.offset, step.result.bytes, nullptr};
  host.input = host.input == nullptr || pinned == nullptr ? nullptr : pinned + step.given.offset;
  return host;
}

}  // namespace roundelay::collective::staged
