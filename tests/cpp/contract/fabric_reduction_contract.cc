// The rounding of reductions, reduce-scatter and Adasum.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/kernels.h"
#include "tests/cpp/contract/fabric_contract.h"

namespace roundelay::contract {
namespace {

using collective::ReducescatterCall;

constexpr DType kFloating[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

std::vector<double> random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> numbers(-4.0, 4.0);
  std::vector<double> values(count);
  for (double& value : values) value = numbers(random);
  return values;
}

AllreduceCall sum_over(std::vector<std::byte>& memory, DType dtype, Scale scale) {
  AllreduceCall call = allreduce_over(memory.data(), memory.size());
  call.dtype = dtype;
  call.scale = scale;
  return call;
}

// Equal inputs have themselves as their average, to the last bit, for few bytes and for many.
std::string averages(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    for (const DType dtype : kFloating) {
      for (const std::size_t count : {std::size_t{3}, std::size_t{100}, std::size_t{20011}}) {
        const std::vector<std::byte> given = encode(random_numbers(count, 1), dtype);
        std::vector<std::byte> data = given;
        const std::string error = run_call(fabric, sum_over(data, dtype, {1.0, size}));
        if (!error.empty()) return error;
        if (data != given) return std::string(name_of(dtype)) + " of equal values is another value";
      }
    }
    return std::string();
  });
}

// Elements have the same result alone and among others: fusion changes no sum.
std::string anywhere(Medium& medium, int size, Select select) {
  return medium.run(size, select, [](Fabric& fabric) {
    const auto seed = static_cast<unsigned>(fabric.group().index);
    for (const DType dtype : kFloating) {
      const std::size_t few = 120, before = 7001, element = size_of(dtype);
      std::vector<double> values = random_numbers(before + few + 5003, seed);
      std::vector<std::byte> many = encode(values, dtype);
      const auto begin = many.begin() + static_cast<std::ptrdiff_t>(before * element);
      std::vector<std::byte> alone(begin, begin + static_cast<std::ptrdiff_t>(few * element));
      AllreduceCall call = sum_over(alone, dtype, {1.0, 3});
      call.prescale = {0.7, 1};
      if (std::string error = run_call(fabric, call); !error.empty()) return error;
      call.buffer = {many.data(), 0, many.size()};
      if (std::string error = run_call(fabric, call); !error.empty()) return error;
      if (!std::equal(alone.begin(), alone.end(), begin)) {
        return std::string(name_of(dtype)) + " depends on where the elements lie";
      }
    }
    return std::string();
  });
}

std::vector<std::byte> random_data(std::size_t count, DType dtype, unsigned seed) {
  std::vector<double> values = random_numbers(count, seed);
  for (double& value : values) value = is_floating(dtype) ? value : std::trunc(std::fabs(value) * 9);
  return encode(values, dtype);
}

void work_on(AllreduceCall& call, std::vector<std::byte>& output, const std::vector<std::byte>& /*input*/) {
  call.buffer.base = output.data();
}
void work_on(ReducescatterCall& call, std::vector<std::byte>& output, const std::vector<std::byte>& input) {
  call.output = {output.data(), call.output.size()};
  call.input = input.data();
}

// Compares a call whose input and result the caller multiplies with a call that scales by itself.
template <class Kind>
std::string multiplied_once(Fabric& fabric, Kind call, std::size_t count) {
  constexpr Scale kBefore{0.3, 1}, kAfter{1.7, 1};
  const std::vector<std::byte> given =
      random_data(count, call.dtype, 7U + static_cast<unsigned>(fabric.group().index));
  std::vector<std::byte> want = given, got = given, input = given;
  constexpr bool kScatters = call.kOperation == Operation::kReducescatter;
  std::vector<std::byte>& multiplied = kScatters ? input : want;
  kernels::scale_copy(multiplied.data(), given.data(), count, call.dtype, kBefore);
  work_on(call, want, input);
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  kernels::scale_copy(want.data(), want.data(), call.result_bytes() / size_of(call.dtype), call.dtype,
                      kAfter);
  work_on(call, got, given);
  call.prescale = kBefore;
  call.scale = kAfter;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  const auto end = want.begin() + static_cast<std::ptrdiff_t>(call.result_bytes());
  if (std::equal(want.begin(), end, got.begin())) return {};
  return std::string(name_of(call.kOperation)) + " of " + std::to_string(count) + " " +
         std::string(name_of(call.dtype)) + " by " + std::string(name_of(call.reduce_op)) +
         ": not what multiplying before and after gives";
}

// Scaling equals the user's own multiplications to the last bit, for few bytes and for many.
std::string factors(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    const auto members = static_cast<std::size_t>(size);
    for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                              DType::kInt64, DType::kInt32, DType::kInt8}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAdasum}) {
        if (op == ReduceOp::kAdasum && !is_floating(dtype)) continue;
        for (const std::size_t each : {std::size_t{3}, std::size_t{20011}}) {
          const std::size_t count = each * members, bytes = count * size_of(dtype);
          AllreduceCall whole = allreduce_over(nullptr, bytes);
          whole.dtype = dtype;
          whole.reduce_op = op;
          std::string bad = multiplied_once(fabric, whole, count);
          if (bad.empty() && op != ReduceOp::kAdasum) {
            auto shard = patient<ReducescatterCall>();
            shard.dtype = dtype;
            shard.reduce_op = op;
            shard.output = {static_cast<std::byte*>(nullptr), bytes / members};
            shard.shard_bytes.assign(members, bytes / members);
            bad = multiplied_once(fabric, shard, count);
          }
          if (!bad.empty()) return bad;
        }
      }
    }
    return std::string();
  });
}

// Returns how many elements each member's shard has. Some have none.
std::vector<std::size_t> shard_counts(int size, std::size_t each, bool uneven) {
  std::vector<std::size_t> counts;
  for (int member = 0; member < size; ++member) {
    const auto extra = static_cast<std::size_t>(member * 5 % 3);
    counts.push_back(uneven ? each * extra + (extra + 1) % 2 : each);
  }
  return counts;
}

std::string scatter_once(Fabric& fabric, const std::vector<std::size_t>& counts, DType dtype, ReduceOp op,
                         Scale prescale, Scale scale) {
  const auto self = static_cast<std::size_t>(fabric.group().index);
  std::size_t total = 0, begin = 0;
  auto call = patient<ReducescatterCall>();
  for (std::size_t member = 0; member < counts.size(); ++member) {
    if (member == self) begin = total;
    total += counts[member];
    call.shard_bytes.push_back(counts[member] * size_of(dtype));
  }
  const std::vector<std::byte> given = encode(inputs(fabric.group().index, total, dtype, op), dtype);
  const std::vector<std::byte> before = given;
  std::vector<std::byte> result(counts[self] * size_of(dtype) + 8, std::byte{0x5a});
  call.output = {result.data(), result.size() - 8};
  call.input = given.data();
  call.dtype = dtype;
  call.reduce_op = op;
  call.prescale = prescale;
  call.scale = scale;
  if (std::string error = run_call(fabric, call); !error.empty()) return error;
  if (given != before) return "the input was changed";
  if (std::count(result.end() - 8, result.end(), std::byte{0x5a}) != 8) return "wrote outside its buffer";
  const std::vector<int> members = first_members(fabric.group().size());
  const auto want = [&](std::size_t i) {
    const double sum = expected(members, begin + i, dtype, op) * prescale.factor * scale.factor;
    const double value = sum / static_cast<double>(scale.divisor);
    return is_floating(dtype) ? value : std::trunc(value);
  };
  return compare(decode(result.data(), counts[self], dtype), want,
                 std::string(name_of(dtype)) + " " + std::string(name_of(op)));
}

std::string reduce_scatters(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                              DType::kInt64, DType::kInt8, DType::kBool}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
        for (const bool uneven : {false, true}) {
          std::string bad = scatter_once(fabric, shard_counts(size, 33, uneven), dtype, op, {}, {});
          if (!bad.empty()) return bad;
        }
      }
      if (dtype == DType::kBool) continue;
      std::string bad =
          scatter_once(fabric, shard_counts(size, 20, true), dtype, ReduceOp::kSum, {2.0, 1}, {1.0, 4});
      if (!bad.empty()) return bad;
    }
    for (const std::size_t each : {std::size_t{0}, std::size_t{1}, std::size_t{40000}, std::size_t{400000}}) {
      if (each > 50000 && size > 3) continue;
      for (const bool uneven : {false, true}) {
        std::string bad =
            scatter_once(fabric, shard_counts(size, each, uneven), DType::kInt32, ReduceOp::kSum, {}, {});
        if (!bad.empty()) return bad;
      }
    }
    return std::string();
  });
}

// The result may be this member's shard of the input.
std::string scatters_in_place(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    const auto self = static_cast<std::size_t>(fabric.group().index);
    for (const std::size_t each : {std::size_t{1}, std::size_t{33}, std::size_t{100000}}) {
      const std::vector<std::size_t> counts = shard_counts(size, each, true);
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      const auto own = counts.begin() + static_cast<std::ptrdiff_t>(self);
      const std::size_t begin = std::accumulate(counts.begin(), own, std::size_t{0});
      std::vector<std::byte> memory =
          encode(inputs(fabric.group().index, total, DType::kFloat32, ReduceOp::kSum), DType::kFloat32);
      auto call = patient<ReducescatterCall>();
      call.output = {memory.data() + begin * sizeof(float), *own * sizeof(float)};
      call.input = memory.data();
      for (const std::size_t count : counts) call.shard_bytes.push_back(count * sizeof(float));
      if (std::string error = run_call(fabric, call); !error.empty()) return error;
      const auto want = [&](std::size_t i) {
        return expected(first_members(size), begin + i, DType::kFloat32, ReduceOp::kSum);
      };
      const auto got = decode(call.output.data(), *own, DType::kFloat32);
      if (std::string bad = compare(got, want, "in place"); !bad.empty()) return bad;
    }
    return std::string();
  });
}

using Vector = std::vector<double>;

Vector adasum(const Vector& a, const Vector& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  Vector sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum[i] = (aa == 0 ? 0 : a[i] * (1 - ab / (2 * aa))) + (bb == 0 ? 0 : b[i] * (1 - ab / (2 * bb)));
  }
  return sum;
}

// Combines members beyond the largest power of two with their neighbours first, then pairs, pairs of pairs
// ...
Vector adasum_of(std::vector<Vector> parts) {
  const std::size_t folded = parts.size() - std::bit_floor(parts.size());
  for (std::size_t i = 0; i < folded; ++i) {
    parts[i] = adasum(parts[i], parts[i + 1]);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i + 1));
  }
  for (; parts.size() > 1; parts.resize(parts.size() / 2)) {
    for (std::size_t i = 0; i < parts.size() / 2; ++i) parts[i] = adasum(parts[2 * i], parts[2 * i + 1]);
  }
  return parts.front();
}

// `exact`: the values make every step exact.
std::string adasum_once(Fabric& fabric, DType dtype, const std::vector<Vector>& parts, bool exact) {
  const auto self = static_cast<std::size_t>(fabric.group().index);
  std::vector<std::byte> memory = encode(parts[self], dtype);
  AllreduceCall call = allreduce_over(memory.data(), memory.size());
  call.dtype = dtype;
  call.reduce_op = ReduceOp::kAdasum;
  const std::string what = "Adasum of " + std::string(name_of(dtype));
  if (std::string error = run_call(fabric, call); !error.empty()) return what + ": " + error;
  std::vector<Vector> given;  // as the type represents them
  for (const Vector& part : parts) given.push_back(decode(encode(part, dtype).data(), part.size(), dtype));
  const Vector want = adasum_of(given);
  const Vector got = decode(memory.data(), want.size(), dtype);
  const double digit = dtype == DType::kBFloat16  ? 0x1p-7
                       : dtype == DType::kFloat16 ? 0x1p-10
                       : dtype == DType::kFloat32 ? 0x1p-18  // allows a few roundings in each round
                                                  : 0x1p-47;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double least = std::max(1.0, std::fabs(want[i]));
    if (std::fabs(got[i] - want[i]) <= (exact ? 0 : digit * least)) continue;
    return what + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
           std::to_string(want[i]);
  }
  std::vector<std::byte> first = memory;
  const std::string error = run_call(fabric, broadcast_over(first.data(), first.size()));
  if (!error.empty()) return error;
  return first == memory ? std::string() : what + " differs from member 0's result";
}

std::string adasums(Medium& medium, int size, Select select) {
  return medium.run(size, select, [size](Fabric& fabric) {
    const auto members = static_cast<std::size_t>(size);
    std::vector<Vector> equal(members, Vector{1, -2, 3, 0, 5});
    std::vector<Vector> orthogonal(members, Vector(members, 0.0)), parallel(members), zeros(members);
    std::vector<Vector> any(members);
    for (std::size_t m = 0; m < members; ++m) {
      const auto number = static_cast<unsigned>(m);
      orthogonal[m][m] = static_cast<double>(m + 1);
      for (int i = 0; i < 9; ++i) parallel[m].push_back(std::ldexp(i, static_cast<int>(m)));
      zeros[m] = m % 2 == 0 ? Vector(4, 0.0) : Vector{1, 2, 3, 4};
      any[m] = random_numbers(5001, number);
    }
    const bool power_of_two = std::has_single_bit(members);
    for (const DType dtype : kFloating) {
      std::string bad = adasum_once(fabric, dtype, equal, true);
      if (bad.empty()) bad = adasum_once(fabric, dtype, orthogonal, true);
      if (bad.empty()) bad = adasum_once(fabric, dtype, parallel, power_of_two && size_of(dtype) > 2);
      if (bad.empty()) bad = adasum_once(fabric, dtype, zeros, true);
      if (bad.empty()) bad = adasum_once(fabric, dtype, any, false);
      if (bad.empty()) bad = adasum_once(fabric, dtype, std::vector<Vector>(members), true);
      if (!bad.empty()) return bad;
    }
    return std::string();
  });
}

}  // namespace

std::vector<Test> reduction_tests() {
  return {{"averages of equal values", averages},
          {"sums do not depend on the place", anywhere},
          {"factors", factors},
          {"reduce-scatter", reduce_scatters, Operation::kReducescatter},
          {"reduce-scatter in place", scatters_in_place, Operation::kReducescatter},
          {"Adasum", adasums}};
}

}  // namespace roundelay::contract
