#include "tests/cpp/contract/fabric_contract.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "collective/algorithms/algorithms.h"
#include "kernels/kernels.h"
#include "tests/cpp/algorithm_names.h"

namespace roundelay::contract {
namespace {

using collective::PendingCall;

constexpr DType kAllDTypes[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                DType::kInt64,   DType::kInt32,   DType::kInt16,   DType::kInt8,
                                DType::kUInt8,   DType::kBool};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

// Small whole numbers whose sums and products over 8 members are exact in every type; they repeat.
constexpr std::size_t kPeriod = 40;
double input(int member, std::size_t i, DType dtype, ReduceOp op) {
  const std::size_t mixed = static_cast<std::size_t>(member) * 3 + i;
  if (dtype == DType::kBool) return mixed % 5 < 3 ? 1.0 : 0.0;
  if (op == ReduceOp::kProduct) return mixed % 8 == 0 ? 2.0 : 1.0;
  return static_cast<double>(mixed % 5 + 1);
}

double combine(double a, double b, DType dtype, ReduceOp op) {
  const bool boolean = dtype == DType::kBool;
  switch (op) {
    case ReduceOp::kSum:
      return boolean ? std::max(a, b) : a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    default:
      return a * b;
  }
}

// Runs one allreduce of `count` elements that start `shift` bytes after an aligned address, between guards.
std::string allreduce_once(Fabric& fabric, std::size_t count, DType dtype, ReduceOp op, Scale scale = {},
                           std::size_t shift = 0, Scale prescale = {}) {
  constexpr std::byte kGuard{0x5a};
  const std::vector<int> members = first_members(fabric.group().size());
  const std::vector<std::byte> data = encode(inputs(fabric.group().index, count, dtype, op), dtype);
  std::vector<std::byte> memory(shift + 8 + data.size() + 8, kGuard);
  std::byte* const at = memory.data() + shift + 8;
  std::copy(data.begin(), data.end(), at);
  AllreduceCall call = allreduce_over(memory.data(), data.size());
  call.buffer.offset = shift + 8;
  call.dtype = dtype;
  call.reduce_op = op;
  call.prescale = prescale;
  call.scale = scale;
  const std::string what = std::string(name_of(dtype)) + " " + std::string(name_of(op));
  if (std::string error = run_call(fabric, call); !error.empty()) return what + ": " + error;
  const auto is_guard = [](std::byte b) { return b == kGuard; };
  if (!std::all_of(memory.data(), at, is_guard) ||
      !std::all_of(at + data.size(), memory.data() + memory.size(), is_guard)) {
    return what + ": wrote outside its buffer";
  }
  const auto want = [&](std::size_t i) {
    const double both = prescale.factor * scale.factor;
    const double value = expected(members, i, dtype, op) * both / static_cast<double>(scale.divisor);
    return is_floating(dtype) ? value : std::trunc(value);
  };
  return compare(decode(at, count, dtype), want, what);
}

std::string all_types(Medium& medium, int size, Select select) {
  return medium.run(size, select, [](Fabric& fabric) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kOps) {
        if (std::string bad = allreduce_once(fabric, 67, dtype, op); !bad.empty()) return bad;
      }
      if (dtype == DType::kBool) continue;
      std::string bad = allreduce_once(fabric, 35, dtype, ReduceOp::kSum, {1.0, 2});
      if (bad.empty()) bad = allreduce_once(fabric, 35, dtype, ReduceOp::kSum, {3.0, 1});
      if (bad.empty()) bad = allreduce_once(fabric, 35, dtype, ReduceOp::kSum, {0.5, 1}, 1, {2.0, 1});
      if (!bad.empty()) return bad;
    }
    return std::string();
  });
}

std::string sizes(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    const auto p = static_cast<std::size_t>(size);
    std::vector<std::size_t> counts = {0, 1, 2, 3, p - 1, p, p + 1, 2 * p + 1, 255};
    // Lengths around the cuts of the MPI tests' messages and of the ring (slow in large groups, which cut
    // alike).
    const std::size_t piece = collective::kPieceBytes / sizeof(float);
    for (const std::size_t cut : {std::size_t{1024}, size <= 4 ? piece * p : p}) {
      for (const std::size_t count : {cut - 1, cut, cut + 1}) counts.push_back(count);
    }
    for (const std::size_t count : counts) {
      for (const std::size_t shift : {0, 1}) {
        std::string bad = allreduce_once(fabric, count, DType::kFloat32, ReduceOp::kSum, {1.0, size}, shift);
        // A sum of small numbers divided by P is exact only if P is a power of two.
        if (!bad.empty() && (size & (size - 1)) == 0) return bad;
        bad = allreduce_once(fabric, count, DType::kInt16, ReduceOp::kSum, {2.0, 1}, shift);
        if (!bad.empty()) return bad;
      }
    }
    return std::string();
  });
}

// Sends more pieces than can be in flight at a time. Larger groups cut alike and only take longer.
std::string many_pieces(Medium& medium, int size, Select select) {
  if (size > 4) return {};
  return medium.run(size, select, [size](Fabric& fabric) {
    const std::size_t piece = collective::kPieceBytes / sizeof(std::int32_t);
    const std::size_t count = piece * static_cast<std::size_t>(size) * 6 + 5;
    return allreduce_once(fabric, count, DType::kInt32, ReduceOp::kSum);
  });
}

std::string broadcasts(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    for (int root = 0; root < size; ++root) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4097},
                                      std::size_t{256} << 10, (std::size_t{1500} << 10) + 3}) {
        const bool is_root = fabric.group().index == root;
        std::vector<std::byte> memory(bytes + 1);
        for (std::size_t i = 0; is_root && i < bytes; ++i)
          memory[i] = static_cast<std::byte>(i * 7 + bytes + 1);
        if (std::string error = run_call(fabric, broadcast_over(memory.data(), bytes, root)); !error.empty())
          return error;
        for (std::size_t i = 0; i < bytes; ++i) {
          if (memory[i] != static_cast<std::byte>(i * 7 + bytes + 1)) {
            return "root " + std::to_string(root) + ": byte " + std::to_string(i) + " is wrong";
          }
        }
      }
    }
    return std::string();
  });
}

// Values that round differently in each order of addition, and NaNs with different payloads.
std::string bit_equal(Medium& medium, int size, Select select) {
  return medium.run(size, select, [](Fabric& fabric) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      for (const ReduceOp op : kOps) {
        constexpr std::size_t kCount = 1001;
        std::vector<std::byte> mine(kCount * size_of(dtype));
        unsigned state = 12345U + 977U * static_cast<unsigned>(fabric.group().index);
        for (std::byte& b : mine) {
          state = state * 1664525U + 1013904223U;
          b = static_cast<std::byte>(state >> 24U);
        }
        AllreduceCall call = allreduce_over(mine.data(), mine.size());
        call.dtype = dtype;
        call.reduce_op = op;
        call.scale = {1.0, 3};
        if (std::string error = run_call(fabric, call); !error.empty()) return error;
        std::vector<std::byte> first = mine;
        if (std::string error = run_call(fabric, broadcast_over(first.data(), first.size()));
            !error.empty()) {
          return error;
        }
        if (first != mine) return std::string(name_of(dtype)) + " differs from member 0's result";
      }
    }
    return std::string();
  });
}

// A barrier ends only after all have entered: each member adds to a sum, and then all must see the same sum.
std::string barriers(Medium& medium, int size, Select select) {
  return medium.run(size, select, [](Fabric& fabric) {
    for (int round = 0; round < 20; ++round) {
      if (std::string error = run_call(fabric, patient<BarrierCall>()); !error.empty()) return error;
    }
    return std::string();
  });
}

// Calls that run together; every other member tests them in the opposite order.
std::string two_at_once(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    for (int round = 0; round < 10; ++round) {
      std::vector<std::vector<double>> values;
      std::vector<std::vector<std::byte>> memory;
      std::vector<std::unique_ptr<PendingCall>> pending;
      for (const std::size_t count : {std::size_t{100000}, std::size_t{10}, std::size_t{3000}}) {
        memory.push_back(
            encode(inputs(fabric.group().index, count, DType::kFloat32, ReduceOp::kSum), DType::kFloat32));
        auto started = fabric.start(allreduce_over(memory.back().data(), memory.back().size()));
        if (!started.ok()) return started.status().message();
        pending.push_back(std::move(*started));
      }
      std::vector<bool> over(3);
      while (std::count(over.begin(), over.end(), true) < 3) {
        for (std::size_t n = 0; n < 3; ++n) {
          const std::size_t i = fabric.group().index % 2 == 0 ? n : 2 - n;
          if (over[i]) continue;
          const Result<bool> done = pending[i]->test();
          if (!done.ok()) return done.status().message();
          over[i] = *done;
        }
        std::this_thread::yield();  // there are more members than cores
      }
      for (const auto& result : memory) {
        const auto got = decode(result.data(), result.size() / 4, DType::kFloat32);
        const auto want = [&](std::size_t i) {
          return expected(first_members(size), i, DType::kFloat32, ReduceOp::kSum);
        };
        if (std::string bad = compare(got, want, "two at once"); !bad.empty()) return bad;
      }
    }
    return std::string();
  });
}

// A fabric refuses a call that makes no sense, and goes on.
std::string refusals(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    std::vector<std::byte> memory(10);
    AllreduceCall call = allreduce_over(memory.data(), memory.size());
    if (fabric.start(call).ok()) return std::string("10 bytes of float32 were accepted");
    call.buffer.bytes = 8;
    call.reduce_op = ReduceOp::kAverage;
    if (fabric.start(call).status().code() != StatusCode::kInvalidArgument) {
      return std::string("Average was accepted");
    }
    if (fabric.start(broadcast_over(memory.data(), memory.size(), size)).ok()) {
      return std::string("a root outside the group was accepted");
    }
    if (fabric.poisoned()) return std::string("a refused call poisoned the fabric");
    return allreduce_once(fabric, 5, DType::kInt32, ReduceOp::kSum);
  });
}

}  // namespace

std::vector<int> first_members(int size) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

double expected(const std::vector<int>& members, std::size_t i, DType dtype, ReduceOp op) {
  double value = input(members.front(), i, dtype, op);
  for (std::size_t n = 1; n < members.size(); ++n) {
    value = combine(value, input(members[n], i, dtype, op), dtype, op);
  }
  return value;
}

std::vector<double> inputs(int member, std::size_t count, DType dtype, ReduceOp op) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = i < kPeriod ? input(member, i, dtype, op) : values[i - kPeriod];
  }
  return values;
}

std::string compare(const std::vector<double>& got, const std::function<double(std::size_t)>& want,
                    const std::string& what) {
  std::vector<double> all(got.size());
  for (std::size_t i = 0; i < got.size(); ++i) all[i] = i < kPeriod ? want(i) : all[i - kPeriod];
  const auto differ = std::mismatch(got.begin(), got.end(), all.begin());
  if (differ.first == got.end()) return {};
  return what + ": element " + std::to_string(differ.first - got.begin()) + " of " +
         std::to_string(got.size()) + " is " + std::to_string(*differ.first) + ", not " +
         std::to_string(*differ.second);
}

std::vector<std::byte> encode(const std::vector<double>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  kernels::cast(bytes.data(), dtype, values.data(), DType::kFloat64, values.size());
  return bytes;
}

std::vector<std::byte> random_elements(std::size_t count, DType dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> numbers(-2000, 2000);
  std::vector<double> values(count);
  for (double& value : values) value = is_floating(dtype) ? numbers(random) / 7.0 : numbers(random) % 2;
  return encode(values, dtype);
}

std::vector<double> decode(const std::byte* data, std::size_t count, DType dtype) {
  std::vector<double> values(count);
  kernels::cast(values.data(), DType::kFloat64, data, dtype, count);
  return values;
}

AllreduceCall allreduce_over(std::byte* memory, std::size_t bytes) {
  auto call = patient<AllreduceCall>();
  call.buffer.base = memory;
  call.buffer.bytes = bytes;
  return call;
}

BroadcastCall broadcast_over(std::byte* memory, std::size_t bytes, int root) {
  auto call = patient<BroadcastCall>();
  call.buffer = {memory, bytes};
  call.root = root;
  return call;
}

std::string run_call(Fabric& fabric, const Call& call) {
  auto pending = fabric.start(call);
  if (!pending.ok()) return pending.status().message();
  return (*pending)->wait().message();
}

std::string run_on_threads(const std::vector<std::unique_ptr<Fabric>>& members, const Part& part) {
  std::vector<std::string> complaints(members.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] { complaints[i] = part(*members[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < complaints.size(); ++i) {
    if (!complaints[i].empty()) return "member " + std::to_string(i) + ": " + complaints[i];
  }
  return {};
}

const std::vector<Test>& fabric_contract() {
  static const std::vector<Test> kTests = [] {
    std::vector<Test> tests = {
        {"every type and operation", all_types, Operation::kAllreduce},
        {"bit-equal", bit_equal, Operation::kAllreduce},
        {"sizes and alignment", sizes, Operation::kAllreduce},
        {"more pieces than are in flight", many_pieces, Operation::kAllreduce},
        {"broadcast from each root", broadcasts, Operation::kBroadcast},
        {"barriers", barriers},
        {"several calls at once", two_at_once},
        {"refused calls", refusals},
    };
    for (const auto& more : {reduction_tests(), region_tests(), scattered_tests(), movement_tests()}) {
      tests.insert(tests.end(), more.begin(), more.end());
    }
    return tests;
  }();
  return kTests;
}

const std::vector<Test>& algorithm_contract() {
  static const std::vector<Test> kTests = [] {
    std::vector<Test> tests;
    for (const Test& test : fabric_contract()) {
      if (!test.operation) continue;
      for (const std::string_view name : algorithm_names(*test.operation)) {
        tests.push_back(test);
        tests.back().name += ", " + std::string(name);
        tests.back().select = always(name);
      }
    }
    return tests;
  }();
  return kTests;
}

}  // namespace roundelay::contract
