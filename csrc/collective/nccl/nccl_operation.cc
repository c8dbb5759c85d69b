#include "collective/nccl/nccl_operation.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

namespace roundelay::collective::nccl {
namespace {

// Returns the bytes before a member's part.
std::size_t before(const std::vector<std::size_t>& parts, std::size_t member) {
  const auto end = parts.begin() + static_cast<std::ptrdiff_t>(member);
  return std::accumulate(parts.begin(), end, std::size_t{0});
}

std::size_t total(const std::vector<std::size_t>& parts) { return before(parts, parts.size()); }

bool are_equal(const std::vector<std::size_t>& parts) {
  return std::adjacent_find(parts.begin(), parts.end(), std::not_equal_to<>()) == parts.end();
}

// NCCL and kernels can carry out all kinds of calls but some reductions.
bool fits_reduction(const Reduction& how, int members) { return reduction_of(how, members).has_value(); }
bool fits_kind(const AllreduceCall& call, int members) { return fits_reduction(call, members); }
bool fits_kind(const ReducescatterCall& call, int members) { return fits_reduction(call, members); }
bool fits_kind(const BroadcastCall& /*call*/, int /*members*/) { return true; }
bool fits_kind(const BarrierCall& /*call*/, int /*members*/) { return true; }
bool fits_kind(const AllgatherCall& /*call*/, int /*members*/) { return true; }
bool fits_kind(const AlltoallCall& /*call*/, int /*members*/) { return true; }

}  // namespace

bool fits(const Call& call, int members) {
  return options_of(call).absent.empty() &&
         std::visit([members](const auto& one) { return fits_kind(one, members); }, call);
}

NcclOperation::NcclOperation(const Tools& tools, const Call& call)
    : tools_(tools), call_(call), stream_(options_of(call).stream) {}

Status NcclOperation::end() {
  if (last_copy_) {
    ROUNDELAY_RETURN_IF_ERROR(
        tools_.kernels.copy_batch(tools_.device, {&*last_copy_, 1}, how_.after, stream_));
  }
  return scratch_taken_ ? tools_.scratch.release(stream_) : Status{};
}

Result<std::byte*> NcclOperation::take_scratch(std::size_t bytes) {
  scratch_taken_ = true;
  return tools_.scratch.acquire(bytes, stream_);
}

Status NcclOperation::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to == from || bytes == 0) return {};
  return tools_.runtime.copy(tools_.device, to, from, bytes, stream_);
}

Status NcclOperation::widen(std::byte* to, const std::byte* from, std::size_t elements, DType dtype) {
  const kernels::GpuCopy items[] = {{to, from, elements, how_.nccl_type, dtype}};
  return tools_.kernels.copy_batch(tools_.device, items, how_.before, stream_);
}

void NcclOperation::finish_later(const std::byte* reduced, ByteSpan result, DType dtype) {
  if (result.empty() || (reduced == result.data() && how_.after.identity())) return;
  last_copy_ = {result.data(), reduced, result.size() / size_of(dtype), dtype, how_.nccl_type};
}

// A group belongs to the thread, and has to end even after an error in it.
Status NcclOperation::grouped(const std::function<Status()>& calls) {
  ROUNDELAY_RETURN_IF_ERROR(tools_.communicator.begin_group());
  const Status called = calls();
  const Status ended = tools_.communicator.end_group();
  return called.ok() ? ended : called;
}

template <>
Status NcclOperation::start(const AllreduceCall& call) {
  const ByteSpan buffer(call.buffer.data(), call.buffer.bytes);
  const std::size_t elements = buffer.size() / size_of(call.dtype);
  if (elements == 0) return {};
  how_ = reduction_of(call, tools_.group.size()).value_or(ReductionPlan{});
  std::byte* at = buffer.data();
  if (widens(call.dtype)) {
    const Result<std::byte*> scratch = take_scratch(elements * size_of(how_.nccl_type));
    if (!scratch.ok()) return scratch.status();
    at = *scratch;
  }
  if (widens(call.dtype) || !how_.before.identity()) {
    ROUNDELAY_RETURN_IF_ERROR(widen(at, buffer.data(), elements, call.dtype));
  }
  finish_later(at, buffer, call.dtype);
  return tools_.communicator.all_reduce(at, at, elements, how_.nccl_type, how_.reduction, stream_);
}

// NCCL knows no unequal shards. If they are unequal, every member reduces all of them and keeps its own.
template <>
Status NcclOperation::start(const ReducescatterCall& call) {
  const std::size_t element = size_of(call.dtype);
  const std::size_t elements = total(call.shard_bytes) / element;
  if (elements == 0) return {};
  how_ = reduction_of(call, tools_.group.size()).value_or(ReductionPlan{});
  const bool equal = are_equal(call.shard_bytes), widened = widens(call.dtype);
  const bool prepared = widened || !how_.before.identity();
  const std::byte* from = call.input;
  std::byte *all = nullptr, *own = nullptr;
  if (prepared || !equal) {
    const Result<std::byte*> scratch = take_scratch(elements * size_of(how_.nccl_type));
    if (!scratch.ok()) return scratch.status();
    all = *scratch;
    own = all + before(call.shard_bytes, self()) / element * size_of(how_.nccl_type);
  }
  if (prepared) {
    ROUNDELAY_RETURN_IF_ERROR(widen(all, call.input, elements, call.dtype));
    from = all;
  }
  platform::NcclCommunicator& communicator = tools_.communicator;
  std::byte* const reduced = equal && !widened ? call.output.data() : own;
  finish_later(reduced, call.output, call.dtype);
  if (!equal) return communicator.all_reduce(from, all, elements, how_.nccl_type, how_.reduction, stream_);
  return communicator.reduce_scatter(from, reduced, call.output.size() / element, how_.nccl_type,
                                     how_.reduction, stream_);
}

template <>
Status NcclOperation::start(const BroadcastCall& call) {
  if (call.buffer.empty()) return {};
  return tools_.communicator.broadcast(call.buffer.data(), call.buffer.size(), call.root, stream_);
}

template <>
Status NcclOperation::start(const AllgatherCall& call) {
  const std::vector<std::size_t>& parts = call.receive_bytes;
  if (total(parts) == 0) return {};
  if (!are_equal(parts)) return gather_unevenly(call);
  return tools_.communicator.all_gather(call.input, call.output.data(), parts.front(), stream_);
}

Status NcclOperation::gather_unevenly(const AllgatherCall& call) {
  const std::vector<std::size_t>& parts = call.receive_bytes;
  ROUNDELAY_RETURN_IF_ERROR(copy(call.output.data() + before(parts, self()), call.input, parts[self()]));
  return grouped([&] {
    std::byte* at = call.output.data();
    for (std::size_t root = 0; root < parts.size(); at += parts[root++]) {
      if (parts[root] == 0) continue;
      ROUNDELAY_RETURN_IF_ERROR(
          tools_.communicator.broadcast(at, parts[root], static_cast<int>(root), stream_));
    }
    return Status{};
  });
}

template <>
Status NcclOperation::start(const AlltoallCall& call) {
  std::byte* const own = call.output.data() + before(call.receive_bytes, self());
  const std::size_t kept = call.send_bytes[self()];
  ROUNDELAY_RETURN_IF_ERROR(copy(own, call.input + before(call.send_bytes, self()), kept));
  if (total(call.send_bytes) == kept && total(call.receive_bytes) == kept) return {};
  return grouped([this, &call] { return send_and_receive(call); });
}

Status NcclOperation::send_and_receive(const AlltoallCall& call) {
  const std::byte* from = call.input;
  std::byte* to = call.output.data();
  for (std::size_t peer = 0; peer < call.send_bytes.size(); ++peer) {
    const std::size_t out = call.send_bytes[peer], in = call.receive_bytes[peer];
    const auto number = static_cast<int>(peer);
    if (peer != self() && out > 0) {
      ROUNDELAY_RETURN_IF_ERROR(tools_.communicator.send(from, out, number, stream_));
    }
    if (peer != self() && in > 0) {
      ROUNDELAY_RETURN_IF_ERROR(tools_.communicator.receive(to, in, number, stream_));
    }
    from += out;
    to += in;
  }
  return {};
}

// All members reduce one byte, whose value does not matter.
template <>
Status NcclOperation::start(const BarrierCall& /*call*/) {
  const Result<std::byte*> byte = take_scratch(1);
  if (!byte.ok()) return byte.status();
  return tools_.communicator.all_reduce(*byte, *byte, 1, DType::kUInt8, {.op = ReduceOp::kMax}, stream_);
}

// Comes after all specialisations of start(), which it uses.
Status NcclOperation::begin() {
  return std::visit([this](const auto& one) { return start(one); }, call_);
}

}  // namespace roundelay::collective::nccl
