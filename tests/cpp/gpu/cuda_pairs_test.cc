// The CUDA kernels for messages of pairs, compiled for the CPU: they must give all bits of kernels/pairs.h.
// The "device" is a loop over the threads of a block.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/pairs.cuh"
#include "tests/cpp/catch.h"
#include "tests/cpp/cuda/values.h"

namespace roundelay::kernels::cuda {
namespace {

using tests::values_of;
using Indices = std::vector<std::int64_t>;

constexpr std::array kForms = {IndexForm{1, 1, false},    IndexForm{140003, 3000, false},
                               IndexForm{1, 1, true},     IndexForm{140003, 3000, true},
                               IndexForm{70000, 0, true}, IndexForm{65536, 65536, true}};

// The memory of one rank.
template <DType kType>
struct Memory {
  Memory(IndexForm form, unsigned seed)
      : residual(values_of(residual_type(kType), form.elements, seed)),
        momentum(values_of(residual_type(kType), form.elements, seed + 1)),
        sums(values_of(residual_type(kType), form.elements, seed + 2)),
        values(form.count + 1),
        indices(form.bytes() / sizeof(std::uint32_t) + 1),
        pairs(pairs_at(&overflow, reinterpret_cast<std::byte*>(values.data()),
                       reinterpret_cast<std::byte*>(indices.data()), kType, form)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] ResidualState kept(bool moves) {
    return {residual.data(), moves ? momentum.data() : nullptr};
  }
  bool operator==(const Memory& other) const {
    return residual == other.residual && momentum == other.momentum && sums == other.sums &&
           indices == other.indices &&
           std::memcmp(values.data(), other.values.data(), values.size() * sizeof(double)) == 0;
  }

  Bytes residual, momentum, sums;
  float overflow = 1;
  std::vector<double> values;
  std::vector<std::uint32_t> indices;
  Pairs pairs;
};

Indices some_indices(IndexForm form, unsigned seed) {
  std::mt19937 random(seed);
  Indices indices;
  std::size_t left = form.count;
  for (std::size_t i = 0; i < form.elements; ++i) {
    if (random() % (form.elements - i) < left) {
      indices.push_back(static_cast<std::int64_t>(i));
      --left;
    }
  }
  return indices;
}

template <typename Block>
void run_blocks(std::uint64_t turns, Block block) {
  for (std::uint64_t b = 0; b * kBlockElements < turns; ++b) {
    for (int thread = 0; thread < kChunkThreads; ++thread) block(Thread{thread, kChunkThreads}, b);
  }
}

template <DType kType>
void add_on_device(Memory<kType>& memory, Scale prescale) {
  const AddPairsWork work{memory.sums.data(), memory.pairs, make_scaler(prescale)};
  run_blocks(work.pairs.form.count,
             [&](Thread thread, std::uint64_t block) { add_pairs_block<kType>(thread, work, block); });
}

template <DType kType>
void check_type() {
  for (const IndexForm form : kForms) {
    for (const Scale scale : {Scale{}, Scale{0.1, 1}, Scale{1.0, 3}}) {
      for (const bool moves : {false, true}) {
        if (moves != (scale.divisor == 1)) continue;
        INFO(name_of(kType) << ", " << form.count << " of " << form.elements << ", scale " << scale.factor
                            << " / " << scale.divisor);
        Memory<kType> host(form, 3), device(form, 3);
        const Indices indices = some_indices(form, 4);
        take_pairs(host.pairs, host.kept(moves), indices);
        const TakePairsWork work{device.pairs, device.kept(moves), indices.data()};
        run_blocks(work.turns(),
                   [&](Thread thread, std::uint64_t block) { take_pairs_block<kType>(thread, work, block); });
        REQUIRE(device == host);
        REQUIRE(add_pairs(host.sums.data(), host.pairs, scale));
        add_on_device(device, scale);
        REQUIRE(device == host);
        REQUIRE(device.overflow == 1);
      }
    }
  }
}

TEST_CASE("the device's pairs have the CPU's bits", "[cuda][pairs]") {
  check_type<DType::kFloat64>();
  check_type<DType::kFloat32>();
  check_type<DType::kFloat16>();
  check_type<DType::kBFloat16>();
}

TEST_CASE("the device marks an index beyond the array, and writes nothing there", "[cuda][pairs]") {
  for (const bool is_short : {false, true}) {
    const IndexForm form{140003, 3000, is_short};
    Memory<DType::kFloat32> memory(form, 6);
    take_pairs(memory.pairs, memory.kept(false), some_indices(form, 7));
    if (is_short) {
      for (std::size_t block = 0; block < form.blocks(); ++block) memory.pairs.words[block] = 3;
    } else {
      memory.pairs.words[10] = 140003;
    }
    const Bytes before = memory.sums;
    add_on_device(memory, {});
    CHECK(std::isnan(memory.overflow));
    CHECK(memory.sums != before);
  }
}

}  // namespace
}  // namespace roundelay::kernels::cuda
