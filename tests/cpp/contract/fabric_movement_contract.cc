// All-gather and alltoall, and every operation while some members have joined.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/cpp/contract/fabric_contract.h"

namespace roundelay::contract {
namespace {

using collective::AllgatherCall;
using collective::AlltoallCall;
using collective::ReducescatterCall;

constexpr std::byte kGuard{0x5a};
constexpr std::size_t kGuardBytes = 8;

// Returns byte i of the data from `from` to `to`.
std::byte mark(int from, int to, std::size_t i) {
  return static_cast<std::byte>(static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to) * 7 +
                                i * 3);
}

using Sizes = std::vector<std::size_t>;

std::size_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}); }

std::vector<std::byte> marks(int from, int to, std::size_t bytes) {
  std::vector<std::byte> memory(bytes);
  for (std::size_t i = 0; i < bytes; ++i) memory[i] = mark(from, to, i);
  return memory;
}

// Returns the data of all members for `to` (from == -1), or of `from` for all (to == -1), one after the
// other.
std::vector<std::byte> all_marks(int from, int to, const Sizes& sizes) {
  std::vector<std::byte> memory;
  for (std::size_t m = 0; m < sizes.size(); ++m) {
    const int member = static_cast<int>(m);
    const auto more = marks(from < 0 ? member : from, to < 0 ? member : to, sizes[m]);
    memory.insert(memory.end(), more.begin(), more.end());
  }
  return memory;
}

std::string check_bytes(const std::vector<std::byte>& got, const std::vector<std::byte>& want,
                        const std::string& what) {
  const auto end = got.begin() + static_cast<std::ptrdiff_t>(want.size());
  if (!std::equal(want.begin(), want.end(), got.begin())) return what + ": wrong bytes";
  if (std::any_of(end, got.end(), [](std::byte b) { return b != kGuard; })) {
    return what + ": wrote outside its buffer";
  }
  return {};
}

std::string gather_once(Fabric& fabric, const Sizes& sizes, bool in_place, const std::vector<int>& absent) {
  const int self = fabric.group().index;
  const auto own_offset = std::accumulate(sizes.begin(), sizes.begin() + self, std::size_t{0});
  const auto given = marks(self, 0, sizes[static_cast<std::size_t>(self)]);
  std::vector<std::byte> result(sum(sizes) + kGuardBytes, kGuard);
  if (in_place)
    std::copy(given.begin(), given.end(), result.begin() + static_cast<std::ptrdiff_t>(own_offset));
  auto call = patient<AllgatherCall>();
  call.output = {result.data(), sum(sizes)};
  call.input = in_place ? result.data() + own_offset : given.data();
  call.receive_bytes = sizes;
  call.absent = absent;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  if (std::binary_search(absent.begin(), absent.end(), self)) return {};
  return check_bytes(result, all_marks(-1, 0, sizes), "all-gather");
}

std::string exchange_once(Fabric& fabric, const std::function<std::size_t(int from, int to)>& bytes,
                          const std::vector<int>& absent) {
  const int self = fabric.group().index;
  Sizes sends, receives;
  for (int member = 0; member < fabric.group().size(); ++member) {
    sends.push_back(bytes(self, member));
    receives.push_back(bytes(member, self));
  }
  const auto given = all_marks(self, -1, sends);
  std::vector<std::byte> result(sum(receives) + kGuardBytes, kGuard);
  auto call = patient<AlltoallCall>();
  call.output = {result.data(), sum(receives)};
  call.input = given.data();
  call.send_bytes = sends;
  call.receive_bytes = receives;
  call.absent = absent;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  if (std::binary_search(absent.begin(), absent.end(), self)) return {};
  return check_bytes(result, all_marks(-1, self, receives), "alltoall");
}

std::string all_gathers(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{100001}}) {
      for (const bool even : {true, false}) {
        Sizes sizes;
        for (int member = 0; member < size; ++member)
          sizes.push_back(even ? unit : unit * static_cast<std::size_t>((member + 2) % 3));
        for (const bool in_place : {true, false}) {
          if (std::string bad = gather_once(fabric, sizes, in_place, {}); !bad.empty()) return bad;
        }
      }
    }
    return std::string();
  });
}

std::string alltoalls(Medium& medium, int size, Select select) {
  return medium.run(size, select, [](Fabric& fabric) {
    for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{999}, std::size_t{100001}}) {
      for (const int variant : {0, 1, 2}) {
        const auto bytes = [=](int from, int to) {
          const int factor = variant == 0   ? 1                          // all have the same amount
                             : variant == 1 ? (3 * from + 5 * to) % 4    // some have nothing for some
                                            : (from == 0 ? to + 1 : 0);  // one member has data
          return unit * static_cast<std::size_t>(factor);
        };
        if (std::string bad = exchange_once(fabric, bytes, {}); !bad.empty()) return bad;
      }
    }
    return std::string();
  });
}

// Returns what a group of the `present` members alone would get.
std::string reduce_without(Fabric& fabric, const std::vector<int>& present, const std::vector<int>& absent,
                           std::size_t count) {
  const int self = fabric.group().index;
  const bool here = !std::binary_search(absent.begin(), absent.end(), self);
  const DType dtype = DType::kInt32;
  const auto given = encode(inputs(self, count, dtype, ReduceOp::kSum), dtype);
  std::vector<std::byte> data = given;
  AllreduceCall call = allreduce_over(data.data(), data.size());
  call.dtype = dtype;
  call.absent = absent;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  if (!here) return data == given ? "" : "an absent member's data was touched";
  const auto want = [&](std::size_t i) { return expected(present, i, dtype, ReduceOp::kSum); };
  return compare(decode(data.data(), count, dtype), want, "allreduce");
}

// The last present member gets all but one element for each of the others.
std::string scatter_without(Fabric& fabric, const std::vector<int>& present, const std::vector<int>& absent,
                            std::size_t count) {
  const int self = fabric.group().index;
  const bool here = !std::binary_search(absent.begin(), absent.end(), self);
  const DType dtype = DType::kInt32;
  const auto given = encode(inputs(self, count, dtype, ReduceOp::kSum), dtype);
  std::vector<std::byte> data = given;
  auto call = patient<ReducescatterCall>();
  call.dtype = dtype;
  call.absent = absent;
  call.input = given.data();
  call.shard_bytes.assign(static_cast<std::size_t>(fabric.group().size()), 0);
  std::size_t begin = 0;
  for (const int member : present) {
    const std::size_t own = member == present.back() ? count - present.size() + 1 : 1;
    call.shard_bytes[static_cast<std::size_t>(member)] = own * size_of(dtype);
    if (member < self) begin += own;
  }
  call.output = {data.data(), call.shard_bytes[static_cast<std::size_t>(self)]};
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  if (!here) return data == given ? "" : "an absent member's data was touched";
  const auto want = [&](std::size_t i) { return expected(present, begin + i, dtype, ReduceOp::kSum); };
  return compare(decode(data.data(), call.output.size() / size_of(dtype), dtype), want, "reduce-scatter");
}

std::string adasum_without(Fabric& fabric, const std::vector<int>& absent) {
  const bool here = !std::binary_search(absent.begin(), absent.end(), fabric.group().index);
  std::vector<std::byte> data =
      encode(here ? std::vector<double>{1, 2, 3} : std::vector<double>{5, 5, 5}, DType::kFloat32);
  AllreduceCall call = allreduce_over(data.data(), data.size());
  call.reduce_op = ReduceOp::kAdasum;
  call.absent = absent;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  const auto want = [&](std::size_t i) { return here ? static_cast<double>(i + 1) : 5.0; };
  return compare(decode(data.data(), 3, DType::kFloat32), want, "Adasum");
}

std::string broadcast_without(Fabric& fabric, int root, const std::vector<int>& absent) {
  const int self = fabric.group().index;
  const bool here = !std::binary_search(absent.begin(), absent.end(), self);
  std::vector<std::byte> data = marks(self, 0, 3000);
  BroadcastCall call = broadcast_over(data.data(), data.size(), root);
  call.absent = absent;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  return check_bytes(data, marks(here ? root : self, 0, 3000), "broadcast");
}

std::string all_without(Fabric& fabric, const std::vector<int>& present, const std::vector<int>& absent) {
  const auto is_here = [&](int member) { return !std::binary_search(absent.begin(), absent.end(), member); };
  for (const std::size_t count : {std::size_t{40}, std::size_t{30001}}) {
    std::string bad = reduce_without(fabric, present, absent, count);
    if (bad.empty()) bad = scatter_without(fabric, present, absent, count);
    if (!bad.empty()) return bad;
  }
  for (const int root : {present.front(), present.back()}) {
    if (std::string bad = broadcast_without(fabric, root, absent); !bad.empty()) return bad;
  }
  Sizes sizes;
  for (int member = 0; member < fabric.group().size(); ++member)
    sizes.push_back(is_here(member) ? static_cast<std::size_t>(900 + member) : 0);
  std::string bad = gather_once(fabric, sizes, false, absent);
  const auto bytes = [&](int from, int to) { return is_here(from) && is_here(to) ? std::size_t{77} : 0; };
  if (bad.empty()) bad = exchange_once(fabric, bytes, absent);
  if (bad.empty()) bad = adasum_without(fabric, absent);
  auto barrier = patient<BarrierCall>();
  barrier.absent = absent;
  return bad.empty() ? run_call(fabric, barrier) : bad;
}

// Absent members run ahead to calls in which they take part again. The two must not be mixed up.
std::string joined_members(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    const unsigned all = (1U << static_cast<unsigned>(size)) - 1;
    for (unsigned set = 1; set <= all; set += size > 4 ? 7 : 1) {
      std::vector<int> present, absent;
      for (int member = 0; member < size; ++member)
        ((set >> static_cast<unsigned>(member)) % 2 == 1 ? present : absent).push_back(member);
      std::string bad = all_without(fabric, present, absent);
      if (!bad.empty()) return "present " + std::to_string(set) + ": " + bad;
    }
    return std::string();
  });
}

// Makes calls that fit the group, 4 bytes a member; a test then spoils one.
class Spoiler {
 public:
  explicit Spoiler(Fabric& fabric)
      : fabric_(fabric), sizes_(static_cast<std::size_t>(fabric.group().size()), 4) {}

  void fill(AllreduceCall& call) { call.buffer = {memory_.data(), 0, 4 * sizes_.size()}; }
  void fill(BroadcastCall& call) { call.buffer = {memory_.data(), 4 * sizes_.size()}; }
  void fill(BarrierCall& /*call*/) {}
  void fill(AllgatherCall& call) {
    call.input = input_.data();
    call.output = {memory_.data(), 4 * sizes_.size()};
    call.receive_bytes = sizes_;
  }
  void fill(AlltoallCall& call) {
    call.input = input_.data();
    call.output = {memory_.data(), 4 * sizes_.size()};
    call.send_bytes = call.receive_bytes = sizes_;
  }
  void fill(ReducescatterCall& call) {
    call.input = input_.data();
    call.output = {memory_.data(), 4};
    call.shard_bytes = sizes_;
  }

  // Returns true if the fabric refuses the call that `change` spoiled.
  template <class Kind>
  bool refused(void (*change)(Kind& call, const Group& group)) {
    auto call = patient<Kind>();
    fill(call);
    change(call, fabric_.group());
    const auto started = fabric_.start(call);
    return !started.ok() && started.status().code() == StatusCode::kInvalidArgument;
  }

 private:
  Fabric& fabric_;
  const Sizes sizes_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(64), input_ = memory_;
};

std::string refused_reductions(Spoiler spoiler) {
  using Scatter = ReducescatterCall;
  const std::pair<bool, const char*> checks[] = {
      {spoiler.refused<Scatter>([](Scatter& c, const Group&) {
         c.output = {c.output.data(), 8};
       }),
       "another shard"},
      {spoiler.refused<Scatter>([](Scatter& c, const Group&) { c.dtype = DType::kFloat64; }),
       "half a double"},
      {spoiler.refused<Scatter>([](Scatter& c, const Group&) { c.reduce_op = ReduceOp::kAdasum; }),
       "a scattered Adasum"},
      {spoiler.refused<Scatter>([](Scatter& c, const Group&) { c.reduce_op = ReduceOp::kAverage; }),
       "Average"},
      {spoiler.refused<Scatter>([](Scatter& c, const Group&) { c.prescale.divisor = 0; }), "a divisor of 0"},
      {spoiler.refused<AllreduceCall>([](AllreduceCall& c, const Group&) { c.scale.divisor = 0; }),
       "a divisor of 0"},
      {spoiler.refused<AllreduceCall>([](AllreduceCall& c, const Group&) {
         c.scale = Scale{0.5, 2};
       }),
       "a factor and a divisor"},
      {spoiler.refused<AllreduceCall>([](AllreduceCall& c, const Group&) {
         c.dtype = DType::kInt32;
         c.reduce_op = ReduceOp::kAdasum;
       }),
       "Adasum of integers"},
  };
  for (const auto& [right, what] : checks) {
    if (!right) return std::string(what) + " was accepted";
  }
  return {};
}

std::string refused_movements(Spoiler spoiler) {
  using Gather = AllgatherCall;
  using Exchange = AlltoallCall;
  const std::pair<bool, const char*> checks[] = {
      {spoiler.refused<Gather>([](Gather& c, const Group&) { c.receive_bytes.pop_back(); }), "too few sizes"},
      {spoiler.refused<Gather>([](Gather& c, const Group&) {
         c.output = {c.output.data(), c.output.size() + 1};
       }),
       "a buffer that is too large"},
      {spoiler.refused<Gather>([](Gather& c, const Group&) { c.input = nullptr; }), "no input"},
      {spoiler.refused<Gather>([](Gather& c, const Group&) {
         c.output = {static_cast<std::byte*>(nullptr), c.output.size()};
       }),
       "no buffer"},
      {spoiler.refused<Exchange>([](Exchange& c, const Group&) { c.send_bytes.push_back(4); }),
       "too many sizes"},
      {spoiler.refused<Exchange>(
           [](Exchange& c, const Group&) { c.output = c.output.first(c.output.size() - 1); }),
       "a buffer that is too small"},
      {spoiler.refused<Exchange>(
           [](Exchange& c, const Group& group) { c.send_bytes[static_cast<std::size_t>(group.index)] = 3; }),
       "two sizes of its own part"},
  };
  for (const auto& [right, what] : checks) {
    if (!right) return std::string(what) + " was accepted";
  }
  return {};
}

int other_member(const Group& group) { return group.index == 0 ? group.size() - 1 : 0; }

std::string refused_absences(Spoiler spoiler, int size) {
  using Barrier = BarrierCall;
  if (!spoiler.refused<Barrier>([](Barrier& c, const Group& group) { c.absent = {group.size()}; })) {
    return "an absent member outside the group was accepted";
  }
  if (!spoiler.refused<Barrier>([](Barrier& c, const Group&) { c.absent = {0, 0}; })) {
    return "a member that is absent twice was accepted";
  }
  if (size == 1) return {};
  if (!spoiler.refused<AllgatherCall>(
          [](AllgatherCall& c, const Group& group) { c.absent = {other_member(group)}; })) {
    return "bytes from an absent member were accepted";
  }
  const bool right = spoiler.refused<BroadcastCall>([](BroadcastCall& c, const Group& group) {
    c.absent = {other_member(group)};
    c.root = other_member(group);
  });
  return right ? "" : "an absent root was accepted";
}

std::string refused_parts(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    std::string bad = refused_reductions(Spoiler(fabric));
    if (bad.empty()) bad = refused_movements(Spoiler(fabric));
    if (bad.empty()) bad = refused_absences(Spoiler(fabric), size);
    if (!bad.empty()) return bad;
    if (fabric.poisoned()) return std::string("a refused call poisoned the fabric");
    return run_call(fabric, patient<BarrierCall>());
  });
}

}  // namespace

std::vector<Test> movement_tests() {
  return {{"all-gather", all_gathers, Operation::kAllgather},
          {"alltoall", alltoalls},
          {"members that have joined", joined_members},
          {"refused parts", refused_parts}};
}

}  // namespace roundelay::contract
