#include "collective/check.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "collective/present.h"

namespace roundelay::collective {
namespace {

Status refuse(const Call& call, const std::string& why) {
  return Status::invalid(std::string(name_of(call.operation)) + ": " + why);
}

bool reduces(const Call& call) {
  return call.operation == Operation::kAllreduce || call.operation == Operation::kReducescatter;
}

Status check_absent(const Call& call, const Group& group) {
  int before = -1;
  for (const int member : call.absent) {
    if (member <= before || member >= group.size()) {
      return refuse(
          call, "the absent members are not ascending indices of a group of " + std::to_string(group.size()));
    }
    before = member;
  }
  return {};
}

Status check_root(const Call& call, const Group& group) {
  if (call.root < 0 || call.root >= group.size()) {
    return refuse(
        call, "root " + std::to_string(call.root) + " is not in a group of " + std::to_string(group.size()));
  }
  if (is_absent(call, call.root)) {
    return refuse(call, "the root, rank " + std::to_string(group.ranks[static_cast<std::size_t>(call.root)]) +
                            ", has joined");
  }
  return {};
}

// One size a member, none for those that are absent.
Status check_sizes(const Call& call, const Group& group, const std::vector<std::size_t>& sizes,
                   const std::string& what) {
  if (sizes.size() != static_cast<std::size_t>(group.size())) {
    return refuse(call, std::to_string(sizes.size()) + " sizes " + what + " for a group of " +
                            std::to_string(group.size()));
  }
  for (const int member : call.absent) {
    if (sizes[static_cast<std::size_t>(member)] != 0) {
      return refuse(call, "bytes " + what + " rank " +
                              std::to_string(group.ranks[static_cast<std::size_t>(member)]) +
                              ", which has joined");
    }
  }
  return {};
}

// The vectors of sizes, the memory of `input` and the size of `buffer`.
Status check_parts(const Call& call, const Group& group) {
  const auto self = static_cast<std::size_t>(group.index);
  const auto sum = [](const std::vector<std::size_t>& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  };
  const bool sends = call.operation != Operation::kAllgather;
  const bool receives = call.operation != Operation::kReducescatter;
  if (sends) ROUNDELAY_RETURN_IF_ERROR(check_sizes(call, group, call.send_bytes, "to send to"));
  if (receives) ROUNDELAY_RETURN_IF_ERROR(check_sizes(call, group, call.receive_bytes, "to receive from"));
  const std::size_t given = sends ? sum(call.send_bytes) : call.receive_bytes[self];
  const std::size_t taken = receives ? sum(call.receive_bytes) : call.send_bytes[self];
  if (given > 0 && call.input == nullptr) return refuse(call, "the input has no memory");
  if (taken != call.buffer.bytes) {
    return refuse(
        call, std::to_string(taken) + " bytes do not fit a buffer of " + std::to_string(call.buffer.bytes));
  }
  if (sends && receives && call.send_bytes[self] != call.receive_bytes[self]) {
    return refuse(call, "this rank sends itself " + std::to_string(call.send_bytes[self]) +
                            " bytes but receives " + std::to_string(call.receive_bytes[self]));
  }
  return {};
}

Status check_reduction(const Call& call) {
  const std::size_t element = size_of(call.dtype);
  std::vector<std::size_t> sizes = call.send_bytes;
  sizes.push_back(call.buffer.bytes);
  for (const std::size_t bytes : sizes) {
    if (bytes % element == 0) continue;
    return refuse(
        call, std::to_string(bytes) + " bytes are no whole number of " + std::string(name_of(call.dtype)));
  }
  const bool adasum = call.reduce_op == ReduceOp::kAdasum;
  if (call.reduce_op == ReduceOp::kAverage || (adasum && call.operation != Operation::kAllreduce)) {
    return refuse(call, "no fabric reduces by " + std::string(name_of(call.reduce_op)));
  }
  if (adasum && !is_floating(call.dtype)) {
    return refuse(call, "Adasum of " + std::string(name_of(call.dtype)) + " has no meaning");
  }
  for (const Scale scale : {call.prescale, call.scale}) {
    if (scale.divisor == 0) return refuse(call, "the divisor is 0");
    if (scale.divisor != 1 && scale.factor != 1) return refuse(call, "a factor and a divisor at once");
  }
  return {};
}

Status check_memory(const Call& call, bool takes_scattered) {
  if (call.scattered == nullptr) {
    const bool missing = call.buffer.bytes > 0 && call.buffer.base == nullptr;
    return missing ? refuse(call, "the buffer has no memory") : Status{};
  }
  const bool fits = call.operation == Operation::kAllreduce && call.reduce_op != ReduceOp::kAdasum;
  if (!takes_scattered || !fits) return refuse(call, "the buffer may not be scattered");
  if (call.buffer.base != nullptr || call.buffer.bytes != call.scattered->bytes()) {
    return refuse(call, "a buffer beside the scattered one");
  }
  return {};
}

}  // namespace

Status check_call(const Call& call, const Group& group, bool takes_scattered) {
  if (call.operation == Operation::kJoin || call.operation == Operation::kProcessSet) {
    return refuse(call, "there is no data to move");
  }
  ROUNDELAY_RETURN_IF_ERROR(check_absent(call, group));
  if (is_absent(call, group.index)) return {};
  ROUNDELAY_RETURN_IF_ERROR(check_memory(call, takes_scattered));
  if (call.operation == Operation::kBroadcast) return check_root(call, group);
  if (call.operation == Operation::kBarrier) return {};
  if (call.operation != Operation::kAllreduce) ROUNDELAY_RETURN_IF_ERROR(check_parts(call, group));
  return reduces(call) ? check_reduction(call) : Status{};
}

}  // namespace roundelay::collective
