#include "collective/nccl/turn.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

namespace roundelay::collective::nccl {
namespace {

bool reduces(const Call& call) {
  return call.operation == Operation::kAllreduce || call.operation == Operation::kReducescatter;
}

// What comes before this member's part, in bytes.
std::size_t before(const std::vector<std::size_t>& parts, std::size_t member) {
  const auto end = parts.begin() + static_cast<std::ptrdiff_t>(member);
  return std::accumulate(parts.begin(), end, std::size_t{0});
}

std::size_t total(const std::vector<std::size_t>& parts) { return before(parts, parts.size()); }

bool are_equal(const std::vector<std::size_t>& parts) {
  return std::adjacent_find(parts.begin(), parts.end(), std::not_equal_to<>()) == parts.end();
}

}  // namespace

bool fits(const Call& call, int members) {
  return call.absent.empty() && (!reduces(call) || reduction_of(call, members));
}

Turn::Turn(const Tools& tools, const Call& call) : tools_(tools), call_(call) {
  if (reduces(call)) how_ = reduction_of(call, tools.group.size()).value_or(Reduction{});
}

Status Turn::begin() {
  switch (call_.operation) {
    case Operation::kAllreduce:
      return reduce_all();
    case Operation::kReducescatter:
      return scatter();
    case Operation::kAllgather:
      return gather();
    case Operation::kAlltoall:
      return exchange();
    case Operation::kBroadcast:
      if (call_.buffer.bytes == 0) return {};
      return tools_.communicator.broadcast(result(), call_.buffer.bytes, call_.root, call_.stream);
    default:
      return barrier();
  }
}

Status Turn::end() {
  const bool in_place = reduced_ == result() && how_.after.identity();
  if (reduced_ != nullptr && count() > 0 && !in_place) {
    const kernels::GpuCopy items[] = {{result(), reduced_, count(), call_.dtype, how_.wire}};
    ROUNDELAY_RETURN_IF_ERROR(tools_.kernels.copy_batch(tools_.device, items, how_.after, call_.stream));
  }
  return scratch_taken_ ? tools_.scratch.give(call_.stream) : Status{};
}

Result<std::byte*> Turn::take_scratch(std::size_t bytes) {
  scratch_taken_ = true;
  return tools_.scratch.take(bytes, call_.stream);
}

Status Turn::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to == from || bytes == 0) return {};
  return tools_.runtime.copy(tools_.device, to, from, bytes, call_.stream);
}

Status Turn::widen(std::byte* to, const std::byte* from, std::size_t elements) {
  const kernels::GpuCopy items[] = {{to, from, elements, how_.wire, call_.dtype}};
  return tools_.kernels.copy_batch(tools_.device, items, how_.before, call_.stream);
}

// The group is the thread's: it ends whatever happens in it.
Status Turn::grouped(const std::function<Status()>& calls) {
  ROUNDELAY_RETURN_IF_ERROR(tools_.communicator.begin_group());
  const Status called = calls();
  const Status ended = tools_.communicator.end_group();
  return called.ok() ? ended : called;
}

Status Turn::reduce_all() {
  if (count() == 0) return {};
  std::byte* at = result();
  if (widens()) {
    const Result<std::byte*> scratch = take_scratch(count() * size_of(how_.wire));
    if (!scratch.ok()) return scratch.status();
    at = *scratch;
  }
  if (widens() || !how_.before.identity()) ROUNDELAY_RETURN_IF_ERROR(widen(at, result(), count()));
  reduced_ = at;
  return tools_.communicator.all_reduce(at, at, count(), how_.wire, how_.reduction, call_.stream);
}

// Unequal shards, which NCCL does not know: all members reduce all, and keep their own.
Status Turn::scatter() {
  const std::size_t element = size_of(call_.dtype);
  const std::size_t elements = total(call_.send_bytes) / element;
  if (elements == 0) return {};
  const bool equal = are_equal(call_.send_bytes);
  const bool prepared = widens() || !how_.before.identity();
  const std::byte* from = call_.input;
  std::byte *all = nullptr, *own = nullptr;
  if (prepared || !equal) {
    const Result<std::byte*> scratch = take_scratch(elements * size_of(how_.wire));
    if (!scratch.ok()) return scratch.status();
    all = *scratch;
    own = all + before(call_.send_bytes, self()) / element * size_of(how_.wire);
  }
  if (prepared) {
    ROUNDELAY_RETURN_IF_ERROR(widen(all, call_.input, elements));
    from = all;
  }
  platform::NcclCommunicator& communicator = tools_.communicator;
  reduced_ = equal && !widens() ? result() : own;
  if (!equal) return communicator.all_reduce(from, all, elements, how_.wire, how_.reduction, call_.stream);
  std::byte* const to = widens() ? own : result();
  return communicator.reduce_scatter(from, to, count(), how_.wire, how_.reduction, call_.stream);
}

Status Turn::gather() {
  const std::vector<std::size_t>& parts = call_.receive_bytes;
  if (total(parts) == 0) return {};
  if (!are_equal(parts)) return gather_unevenly();
  return tools_.communicator.all_gather(call_.input, result(), parts.front(), call_.stream);
}

Status Turn::gather_unevenly() {
  const std::vector<std::size_t>& parts = call_.receive_bytes;
  ROUNDELAY_RETURN_IF_ERROR(copy(result() + before(parts, self()), call_.input, parts[self()]));
  return grouped([&] {
    std::byte* at = result();
    for (std::size_t root = 0; root < parts.size(); at += parts[root++]) {
      if (parts[root] == 0) continue;
      ROUNDELAY_RETURN_IF_ERROR(
          tools_.communicator.broadcast(at, parts[root], static_cast<int>(root), call_.stream));
    }
    return Status{};
  });
}

Status Turn::exchange() {
  std::byte* const own = result() + before(call_.receive_bytes, self());
  ROUNDELAY_RETURN_IF_ERROR(
      copy(own, call_.input + before(call_.send_bytes, self()), call_.send_bytes[self()]));
  const std::size_t kept = call_.send_bytes[self()];
  if (total(call_.send_bytes) == kept && total(call_.receive_bytes) == kept) return {};
  return grouped([this] { return send_and_receive(); });
}

Status Turn::send_and_receive() {
  const std::byte* from = call_.input;
  std::byte* to = result();
  for (std::size_t peer = 0; peer < call_.send_bytes.size(); ++peer) {
    const std::size_t out = call_.send_bytes[peer], in = call_.receive_bytes[peer];
    const auto number = static_cast<int>(peer);
    if (peer != self() && out > 0) {
      ROUNDELAY_RETURN_IF_ERROR(tools_.communicator.send(from, out, number, call_.stream));
    }
    if (peer != self() && in > 0) {
      ROUNDELAY_RETURN_IF_ERROR(tools_.communicator.receive(to, in, number, call_.stream));
    }
    from += out;
    to += in;
  }
  return {};
}

// Nobody looks at the byte.
Status Turn::barrier() {
  const Result<std::byte*> byte = take_scratch(1);
  if (!byte.ok()) return byte.status();
  return tools_.communicator.all_reduce(*byte, *byte, 1, DType::kUInt8, {.op = ReduceOp::kMax}, call_.stream);
}

}  // namespace roundelay::collective::nccl
