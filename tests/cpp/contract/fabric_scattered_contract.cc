// Allreduces of tensors that are not packed, on fabrics that support them.
#include <algorithm>
#include <random>

#include "collective/scatter_list.h"
#include "tests/cpp/contract/fabric_contract.h"

namespace roundelay::contract {
namespace {

using collective::ScatterList;

constexpr std::byte kGuard{0x5a};

// One member's elements, cut into tensors of up to `most`, in place or not, at odd addresses between guards.
class Tensors {
 public:
  Tensors(const std::vector<std::byte>& elements, std::size_t element, std::size_t most,
          std::mt19937& random) {
    std::size_t end = 0, begin = 0;
    const auto room = [&](std::size_t bytes) {
      const std::size_t at = end + 8 + random() % 8;
      end = at + bytes + 8;
      return at;
    };
    while (begin < elements.size()) {
      const std::size_t count = random() % 8 == 0 ? 0 : 1 + random() % most;
      const std::size_t bytes = std::min(count * element, elements.size() - begin);
      const std::size_t input = room(bytes);
      cuts_.push_back({begin, input, random() % 2 == 0 ? input : room(bytes), bytes});
      begin += bytes;
    }
    memory_.assign(end, kGuard);
    for (const Cut& cut : cuts_) {
      std::copy_n(elements.data() + cut.begin, cut.bytes, memory_.data() + cut.input);
      list_.add({memory_.data() + cut.input, memory_.data() + cut.output, cut.bytes});
    }
    expected_ = memory_;
  }

  [[nodiscard]] const ScatterList& list() const { return list_; }

  // Checks that the outputs hold `want`, and that separate inputs and all guards are unchanged.
  [[nodiscard]] bool hold(const std::vector<std::byte>& want) {
    for (const Cut& cut : cuts_) {
      std::copy_n(want.data() + cut.begin, cut.bytes, expected_.data() + cut.output);
    }
    return memory_ == expected_;
  }

 private:
  struct Cut {
    std::size_t begin, input, output, bytes;
  };
  std::vector<Cut> cuts_;
  std::vector<std::byte> memory_, expected_;
  ScatterList list_;
};

struct Case {
  DType dtype;
  ReduceOp op;
  std::size_t count;
  std::size_t most;  // elements per tensor
};

// The bits equal those of one buffer, however each member cuts its tensors.
std::string same_bits(Fabric& fabric, const Case& of, const std::vector<int>& absent, unsigned seed) {
  const int self = fabric.group().index;
  std::mt19937 random(seed + 100U * static_cast<unsigned>(self));  // each member cuts differently
  std::vector<std::byte> whole = random_elements(of.count, of.dtype, seed + static_cast<unsigned>(self));
  Tensors tensors(whole, size_of(of.dtype), of.most, random);
  AllreduceCall call = allreduce_over(whole.data(), whole.size());
  call.dtype = of.dtype;
  call.reduce_op = of.op;
  call.absent = absent;
  const bool scaled = of.op == ReduceOp::kSum && is_floating(of.dtype) && seed % 2 == 0;
  if (scaled) call.scale = {1.0, fabric.group().size()};
  if (scaled && seed % 4 == 0) call.prescale = {0.7, 1};
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  call.buffer = {nullptr, 0, whole.size()};
  call.scattered = &tensors.list();
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  if (std::find(absent.begin(), absent.end(), self) != absent.end()) return {};
  if (tensors.hold(whole)) return {};
  return std::to_string(of.count) + " of " + std::string(name_of(of.dtype)) +
         ": other bits than in one buffer, or something beside the outputs was written";
}

std::string wherever_tensors_lie(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    if (!fabric.capabilities().scattered) return std::string();
    unsigned seed = 0;
    for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                              DType::kInt64, DType::kInt8, DType::kBool}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
        std::string bad = same_bits(fabric, {dtype, op, 67, 5}, {}, ++seed);
        if (bad.empty()) bad = same_bits(fabric, {dtype, op, 9001, 700}, {}, ++seed);
        if (!bad.empty()) return bad;
      }
    }
    // One element per tensor, more tensors than bytes in a cache line, tensors across a fabric's chunks.
    for (const Case& of : {Case{DType::kFloat32, ReduceOp::kSum, 0, 4},
                           {DType::kFloat32, ReduceOp::kSum, 1, 1},
                           {DType::kFloat32, ReduceOp::kSum, 2049, 1},
                           {DType::kUInt8, ReduceOp::kSum, 70001, 40},
                           {DType::kFloat32, ReduceOp::kSum, 400003, 90000},
                           {DType::kFloat64, ReduceOp::kSum, 140001, 500000}}) {
      const std::vector<int> absent = size > 2 ? std::vector<int>{1} : std::vector<int>{};
      std::string bad = same_bits(fabric, of, {}, ++seed);
      if (bad.empty()) bad = same_bits(fabric, of, absent, ++seed);
      if (!bad.empty()) return bad;
    }
    return std::string();
  });
}

// A fabric refuses the call if it makes no sense or is not supported, and goes on.
std::string refused(Medium& medium, int size, Select select) {
  return medium.run(size, select, [](Fabric& fabric) {
    std::vector<std::byte> memory(16);
    ScatterList list;
    list.add({memory.data(), memory.data(), 16});
    const auto refuses = [&fabric](const Call& call) {
      return fabric.start(call).status().code() == StatusCode::kInvalidArgument;
    };
    AllreduceCall call = allreduce_over(nullptr, 16);
    call.scattered = &list;
    AllreduceCall wrong = call;
    wrong.buffer.bytes = 8;
    if (!refuses(wrong)) return std::string("fewer bytes than the list has were accepted");
    wrong = call;
    wrong.buffer.base = memory.data();
    if (!refuses(wrong)) return std::string("a buffer and a list were accepted");
    wrong = call;
    wrong.reduce_op = ReduceOp::kAdasum;
    if (!refuses(wrong)) return std::string("a scattered Adasum was accepted");
    if (!fabric.capabilities().scattered && !refuses(call))
      return std::string("what it does not take was accepted");
    return run_call(fabric, allreduce_over(memory.data(), memory.size()));
  });
}

}  // namespace

std::vector<Test> scattered_tests() {
  return {{"scattered tensors have the sums of one buffer", wherever_tensors_lie},
          {"scattered calls that make no sense", refused}};
}

}  // namespace roundelay::contract
