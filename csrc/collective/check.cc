#include "collective/check.h"

#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "collective/present.h"

namespace roundelay::collective {
namespace {

using Sizes = std::vector<std::size_t>;

Status refuse(Operation operation, const std::string& why) {
  return Status::invalid(std::string(name_of(operation)) + ": " + why);
}

std::size_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}); }

// Checks the call of a member that takes part. Returns kInvalidArgument, or ok.
class Checker {
 public:
  Checker(const Group& group, const FabricCapabilities& fabric) : group_(group), fabric_(fabric) {}

  Status operator()(const AllreduceCall& call) const {
    ROUNDELAY_RETURN_IF_ERROR(check_memory(call));
    const std::size_t sizes[] = {call.buffer.bytes};
    return check_reduction(call.kOperation, call, sizes);
  }
  Status operator()(const BroadcastCall& call) const {
    ROUNDELAY_RETURN_IF_ERROR(check_memory(call.kOperation, call.buffer));
    return check_root(call);
  }
  Status operator()(const BarrierCall& /*call*/) const { return {}; }
  Status operator()(const AllgatherCall& call) const {
    ROUNDELAY_RETURN_IF_ERROR(check_memory(call.kOperation, call.output));
    ROUNDELAY_RETURN_IF_ERROR(check_sizes(call, call.receive_bytes, "to receive from"));
    ROUNDELAY_RETURN_IF_ERROR(check_parts(call, call.receive_bytes[self()], sum(call.receive_bytes)));
    ROUNDELAY_RETURN_IF_ERROR(check_region(call.kOperation, call.region, call.output));
    return check_place(call, call.output.data(), call.input, call.receive_bytes);
  }
  Status operator()(const AlltoallCall& call) const {
    if (call.messages != nullptr) return check_messages(call);
    ROUNDELAY_RETURN_IF_ERROR(check_memory(call.kOperation, call.output));
    ROUNDELAY_RETURN_IF_ERROR(check_sizes(call, call.send_bytes, "to send to"));
    ROUNDELAY_RETURN_IF_ERROR(check_sizes(call, call.receive_bytes, "to receive from"));
    ROUNDELAY_RETURN_IF_ERROR(check_parts(call, sum(call.send_bytes), sum(call.receive_bytes)));
    const std::size_t given = call.send_bytes[self()], taken = call.receive_bytes[self()];
    if (given == taken) return {};
    return refuse(call.kOperation, "this rank sends itself " + std::to_string(given) +
                                       " bytes but receives " + std::to_string(taken));
  }
  Status operator()(const ReducescatterCall& call) const {
    ROUNDELAY_RETURN_IF_ERROR(check_memory(call.kOperation, call.output));
    ROUNDELAY_RETURN_IF_ERROR(check_sizes(call, call.shard_bytes, "to send to"));
    const std::size_t bytes = sum(call.shard_bytes);
    ROUNDELAY_RETURN_IF_ERROR(check_parts(call, bytes, call.shard_bytes[self()]));
    ROUNDELAY_RETURN_IF_ERROR(check_region(call.kOperation, call.region, {call.input, bytes}));
    ROUNDELAY_RETURN_IF_ERROR(check_place(call, call.input, call.output.data(), call.shard_bytes));
    return check_reduction(call.kOperation, call, call.shard_bytes);
  }

 private:
  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(group_.index); }
  [[nodiscard]] std::string rank_of(int member) const {
    return std::to_string(group_.ranks[static_cast<std::size_t>(member)]);
  }

  [[nodiscard]] Status check_memory(const AllreduceCall& call) const {
    if (call.scattered == nullptr) {
      ROUNDELAY_RETURN_IF_ERROR(check_memory(call.kOperation, {call.buffer.base, call.buffer.bytes}));
      return check_region(call.kOperation, call.buffer.region, {call.buffer.data(), call.buffer.bytes});
    }
    if (!fabric_.scattered || call.reduce_op == ReduceOp::kAdasum) {
      return refuse(call.kOperation, "the buffer may not be scattered");
    }
    if (call.buffer.base != nullptr || call.buffer.bytes != call.scattered->bytes()) {
      return refuse(call.kOperation, "a buffer beside the scattered one");
    }
    return {};
  }
  [[nodiscard]] static Status check_memory(Operation operation, ByteSpan memory) {
    const bool missing = !memory.empty() && memory.data() == nullptr;
    return missing ? refuse(operation, "the buffer has no memory") : Status{};
  }

  [[nodiscard]] Status check_messages(const AlltoallCall& call) const {
    if (!fabric_.messages) return refuse(call.kOperation, "this fabric takes no messages");
    if (!call.absent.empty()) return refuse(call.kOperation, "messages, while a member is absent");
    if (!call.output.empty() || !call.send_bytes.empty() || !call.receive_bytes.empty())
      return refuse(call.kOperation, "parts beside messages");
    const auto bad = [&](int peer, ConstByteSpan data) {
      return peer < 0 || peer >= group_.size() || peer == group_.index || data.empty() ||
             data.size() > call.messages->most_bytes;
    };
    for (const auto& [peer, data] : call.messages->sent) {
      if (bad(peer, data)) return refuse(call.kOperation, "a message to nobody, or of no bytes or too many");
    }
    for (const auto& [peer, data] : call.messages->received) {
      if (bad(peer, data))
        return refuse(call.kOperation, "a message from nobody, or of no bytes or too many");
    }
    return {};
  }
  [[nodiscard]] static Status check_region(Operation operation, const Region* region, ConstByteSpan bytes) {
    if (region == nullptr || region->holds(bytes)) return {};
    return refuse(operation, "the buffer does not lie in its region");
  }
  // Checks that this member's part, of one of these sizes, is in its place among all parts of a region.
  template <class Kind>
  [[nodiscard]] Status check_place(const Kind& call, const std::byte* all, const std::byte* own,
                                   const Sizes& sizes) const {
    if (call.region == nullptr || sizes[self()] == 0) return {};
    const auto before = std::span(sizes).first(self());
    if (own == all + std::accumulate(before.begin(), before.end(), std::size_t{0})) return {};
    return refuse(call.kOperation, "this rank's part is not in its place in the region");
  }

  [[nodiscard]] Status check_root(const BroadcastCall& call) const {
    if (call.root < 0 || call.root >= group_.size()) {
      return refuse(call.kOperation, "root " + std::to_string(call.root) + " is not in a group of " +
                                         std::to_string(group_.size()));
    }
    if (!is_absent(call, call.root)) return {};
    return refuse(call.kOperation, "the root, rank " + rank_of(call.root) + ", has joined");
  }

  // Checks that there is one size for each member, and 0 for absent ones.
  template <class Kind>
  [[nodiscard]] Status check_sizes(const Kind& call, const Sizes& sizes, const std::string& what) const {
    if (sizes.size() != static_cast<std::size_t>(group_.size())) {
      return refuse(call.kOperation, std::to_string(sizes.size()) + " sizes " + what + " for a group of " +
                                         std::to_string(group_.size()));
    }
    for (const int member : call.absent) {
      if (sizes[static_cast<std::size_t>(member)] == 0) continue;
      return refuse(call.kOperation, "bytes " + what + " rank " + rank_of(member) + ", which has joined");
    }
    return {};
  }

  template <class Kind>
  [[nodiscard]] static Status check_parts(const Kind& call, std::size_t given, std::size_t taken) {
    if (given > 0 && call.input == nullptr) return refuse(call.kOperation, "the input has no memory");
    if (taken == call.output.size()) return {};
    return refuse(call.kOperation, std::to_string(taken) + " bytes do not fit a buffer of " +
                                       std::to_string(call.output.size()));
  }

  [[nodiscard]] static Status check_reduction(Operation operation, const Reduction& how,
                                              std::span<const std::size_t> sizes) {
    for (const std::size_t bytes : sizes) {
      if (bytes % size_of(how.dtype) == 0) continue;
      return refuse(operation, std::to_string(bytes) + " bytes are no whole number of " +
                                   std::string(name_of(how.dtype)));
    }
    const bool adasum = how.reduce_op == ReduceOp::kAdasum;
    if (how.reduce_op == ReduceOp::kAverage || (adasum && operation != Operation::kAllreduce)) {
      return refuse(operation, "no fabric reduces by " + std::string(name_of(how.reduce_op)));
    }
    if (adasum && !is_floating(how.dtype)) {
      return refuse(operation, "Adasum of " + std::string(name_of(how.dtype)) + " has no meaning");
    }
    for (const Scale scale : {how.prescale, how.scale}) {
      if (scale.divisor == 0) return refuse(operation, "the divisor is 0");
      if (scale.divisor != 1 && scale.factor != 1) return refuse(operation, "a factor and a divisor at once");
    }
    return {};
  }

  const Group& group_;
  const FabricCapabilities& fabric_;
};

Status check_absent(const Call& call, const Group& group) {
  int before = -1;
  for (const int member : options_of(call).absent) {
    if (member <= before || member >= group.size()) {
      return refuse(operation_of(call), "the absent members are not ascending indices of a group of " +
                                            std::to_string(group.size()));
    }
    before = member;
  }
  return {};
}

}  // namespace

Status check_call(const Call& call, const Group& group, const FabricCapabilities& fabric) {
  ROUNDELAY_RETURN_IF_ERROR(check_absent(call, group));
  if (is_absent(options_of(call), group.index)) return {};
  return std::visit(Checker(group, fabric), call);
}

}  // namespace roundelay::collective
