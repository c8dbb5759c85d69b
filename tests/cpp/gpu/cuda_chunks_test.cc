// The CUDA kernels for residuals, chunks and norms, compiled for the CPU: they must give all bits of
// kernels/chunks.h. The "device" is a loop over the threads of a block.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "kernels/chunks.h"
#include "kernels/cuda/accumulate.cuh"
#include "kernels/kernels.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/cuda/values.h"

namespace roundelay::kernels::cuda {
namespace {

using tests::values_of;

constexpr std::size_t kCount = 9001;  // two rounds of the halves' norms, and a rest

// Aligned as a device's memory is.
struct Memory {
  explicit Memory(const Bytes& bytes) : count(bytes.size()) {
    std::memcpy(at.get(), bytes.data(), bytes.size());
  }
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(at.get()); }
  [[nodiscard]] Bytes read() const { return {data(), data() + count}; }

  std::unique_ptr<double[]> at = std::make_unique<double[]>(16 * kCount);
  std::size_t count;
};

template <typename Block>
void run_blocks(std::uint64_t blocks, Block block) {
  for (std::uint64_t b = 0; b < blocks; ++b) {
    for (int thread = 0; thread < kChunkThreads; ++thread) block(Thread{thread, kChunkThreads}, b);
  }
}

// Blocks have one pack of each thread, or as many as a thread loads at once.
template <typename How>
void run_flat(const Memory& to, const Memory& from, int packs) {
  const auto each = static_cast<std::uint64_t>(kChunkThreads * packs * kMovePack<How>);
  const FlatWork work{to.data(), from.data(), kCount, each};
  run_blocks((kCount + each - 1) / each,
             [&](Thread thread, std::uint64_t block) { move_flat<How>(thread, work, block); });
}

template <DType kType>
void check_residuals() {
  INFO(name_of(kType));
  for (const unsigned seed : {1U, 2U, 3U}) {
    Bytes values = values_of(kType, kCount, seed);
    Bytes residual = values_of(residual_type(kType), kCount, seed + 10);
    for (std::size_t i = 0; i < kCount; i += 4)  // zeros take the value's bits
      std::memset(residual.data() + i * sizeof(ResidualOf<kType>), 0, sizeof(ResidualOf<kType>));
    const Memory on_values(values), on_residual(residual);
    run_flat<Keep<kType>>(on_residual, on_values, 1);
    keep(residual.data(), values.data(), kCount, kType);
    REQUIRE(on_residual.read() == residual);
    REQUIRE(on_values.read() == values);

    const Memory on_sent(values);
    run_flat<Take<kType>>(on_sent, on_residual, kUnroll);
    Bytes sent(values.size());
    take_rounded(sent.data(), residual.data(), kCount, kType);
    REQUIRE(on_sent.read() == sent);
    REQUIRE(on_residual.read() == residual);

    run_flat<GiveBack<kType>>(on_sent, on_residual, kUnroll);
    give_back(sent.data(), residual.data(), kCount, kType);
    REQUIRE(on_sent.read() == sent);
    REQUIRE(on_residual.read() == residual);
  }
}

TEST_CASE("the device's residuals have the CPU's bits", "[cuda]") {
  check_residuals<DType::kFloat64>();
  check_residuals<DType::kFloat32>();
  check_residuals<DType::kFloat16>();
  check_residuals<DType::kBFloat16>();
}

template <DType kType>
void check_norms() {
  Bytes source = values_of(kType, kCount, 5);
  std::memset(source.data(), 0, kCount / 2 * sizeof(Stored<kType>));  // a round of zeros
  for (const std::size_t chunk :
       {std::size_t{1}, std::size_t{7}, std::size_t{512}, std::size_t{1300}, kCount}) {
    const Memory from(source);
    const Chunking of{kCount, chunk};
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {  // by an element
      const Chunking shifted{kCount - shift, chunk};
      std::vector<float> norms(of.chunks());
      const std::byte* const begin = from.data() + shift * sizeof(Stored<kType>);
      const NormWork work{norms.data(), begin, shifted};
      double sum[kNormSums];
      for (std::uint64_t block = 0; block < shifted.chunks(); ++block) {
        for (int step = 0; step < kNormSteps; ++step) {
          for (int thread = 0; thread < kNormThreads<kType>; ++thread)
            norm_step<kType>(step, thread, work, sum, block);
        }
        const std::byte* const of_block = begin + block * chunk * sizeof(Stored<kType>);
        const float expected = norm(of_block, shifted.size(block), kType);
        INFO(name_of(kType) << ", chunk " << block << " of " << chunk);
        REQUIRE(std::memcmp(&norms[block], &expected, sizeof expected) == 0);
      }
    }
  }
}

TEST_CASE("the device's norms have the CPU's bits", "[cuda]") {
  check_norms<DType::kFloat64>();
  check_norms<DType::kFloat32>();
  check_norms<DType::kFloat16>();
  check_norms<DType::kBFloat16>();
}

TEST_CASE("the device selects what the CPU selects", "[cuda]") {
  std::mt19937 random(6);
  const auto shared = std::make_unique<SelectSteps::Shared>();
  for (const std::uint32_t count : {1U, 2U, 1023U, 1024U, 1025U, 100003U}) {
    for (const std::uint32_t different : {1U, 3U, 1U << 30}) {
      std::vector<float> norms(count);
      for (float& one : norms) one = static_cast<float>(random() % different) * 0.37F;
      for (const std::uint32_t keep : {0U, 1U, count / 10, count - 1, count}) {
        std::vector<std::uint32_t> expected(keep), got(keep);
        select_largest(expected.data(), keep, norms.data(), count);
        const Largest work{got.data(), keep, norms.data(), count};
        for (int step = 0; step < SelectSteps::kSteps; ++step) {
          for (std::uint32_t thread = 0; thread < kSelectThreads; ++thread)
            SelectSteps(work, *shared, thread).run(step);
        }
        INFO(keep << " of " << count << ", " << different << " different");
        REQUIRE(got == expected);
      }
    }
  }
}

TEST_CASE("the device moves chunks to their places, whatever is missing", "[cuda]") {
  for (const std::size_t chunk : {std::size_t{3}, std::size_t{1000}, std::size_t{1024}, std::size_t{8400}}) {
    const Chunking of{kCount, chunk};
    std::vector<std::uint32_t> indices;
    for (std::uint32_t i = 0; i < of.chunks() + 1; i += 2) indices.push_back(i);
    indices.push_back(static_cast<std::uint32_t>(of.chunks() + 5));  // there is no such chunk
    Bytes residual = values_of(DType::kFloat32, kCount, 7);
    const Memory on_residual(residual), message(Bytes(indices.size() * chunk * 2, std::byte{0x5a}));
    constexpr std::uint64_t kEach = 1024;
    const std::uint64_t blocks = (chunk + kEach - 1) / kEach;
    ChunkWork work{message.data(), on_residual.data(), indices.data(), of, kEach, blocks};
    run_blocks(blocks * indices.size(), [&](Thread thread, std::uint64_t block) {
      gather_block<DType::kBFloat16>(thread, work, block);
    });
    Bytes dense(message.count), scattered(kCount * 2);
    for (std::size_t j = 0; j < indices.size(); ++j) {
      const std::size_t at = indices[j] * chunk, size = of.size(indices[j]);
      if (size == 0) continue;
      take_rounded(dense.data() + j * chunk * 2, residual.data() + at * 4, size, DType::kBFloat16);
      std::memcpy(scattered.data() + at * 2, dense.data() + j * chunk * 2, size * 2);
    }
    REQUIRE(message.read() == dense);
    REQUIRE(on_residual.read() == residual);

    const Memory back(Bytes(kCount * 2));
    work.to = back.data();
    work.from = message.data();
    run_blocks(blocks * indices.size(), [&](Thread thread, std::uint64_t block) {
      scatter_block<DType::kBFloat16, DType::kBFloat16>(thread, work, block);
    });
    REQUIRE(back.read() == scattered);

    const Memory wide(Bytes(kCount * 4));
    work.to = wide.data();
    run_blocks(blocks * indices.size(), [&](Thread thread, std::uint64_t block) {
      scatter_block<DType::kFloat32, DType::kBFloat16>(thread, work, block);
    });
    Bytes widened(kCount * 4);
    for (const std::uint32_t i : indices) {
      const std::size_t at = i * chunk, size = of.size(i);
      if (size > 0)
        cast(widened.data() + at * 4, DType::kFloat32, scattered.data() + at * 2, DType::kBFloat16, size);
    }
    REQUIRE(wide.read() == widened);

    run_blocks(blocks * indices.size(), [&](Thread thread, std::uint64_t block) {
      clear_block<DType::kFloat32>(thread, work, block);
    });
    for (const std::uint32_t i : indices)
      if (of.size(i) > 0) std::memset(widened.data() + i * chunk * 4, 0, of.size(i) * 4);
    REQUIRE(wide.read() == widened);
  }
}

template <DType kType>
void check_accumulation(std::size_t chunk, std::size_t shift, LocalMomentum how) {
  INFO(name_of(kType) << " in chunks of " << chunk << ", shifted by " << shift << ", momentum "
                      << how.factor);
  const DType kept_type = residual_type(kType);
  Bytes values = values_of(kType, kCount, 8), residual = values_of(kept_type, kCount, 9),
        momentum = values_of(kept_type, kCount, 10);
  const Memory on_values(values), on_residual(residual), on_momentum(momentum);
  const Chunking of{kCount - shift, chunk};
  const auto kept_in = [&](std::byte* first, std::byte* second) {
    const std::size_t begin = shift * size_of(kept_type);
    return ResidualState{first + begin, how.factor != 0 ? second + begin : nullptr, how};
  };
  std::vector<float> norms(of.chunks()), expected(of.chunks());
  const AccumulateWork work{norms.data(), kept_in(on_residual.data(), on_momentum.data()),
                            on_values.data() + shift * size_of(kType), of};
  double sum[kNormSums];
  for (std::uint64_t block = 0; block < of.chunks(); ++block) {
    with_way(work.kept, [&]<typename Way>() {
      for (int step = 0; step < kNormSteps; ++step) {
        for (int thread = 0; thread < kKeptThreads<kType>; ++thread)
          accumulate_step<kType, Way>(step, thread, work, sum, block);
      }
    });
    expected[block] =
        accumulate(chunk_of(kept_in(residual.data(), momentum.data()), of, block, kType),
                   values.data() + (shift + block * chunk) * size_of(kType), of.size(block), kType);
  }
  REQUIRE(std::memcmp(norms.data(), expected.data(), norms.size() * sizeof(float)) == 0);
  REQUIRE(on_values.read() == values);
  REQUIRE(on_residual.read() == residual);
  REQUIRE(on_momentum.read() == momentum);
}

template <DType kType>
void check_accumulations() {
  for (const std::size_t chunk :
       {std::size_t{1}, std::size_t{7}, std::size_t{512}, std::size_t{1300}, kCount}) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
      check_accumulation<kType>(chunk, shift, {});
      check_accumulation<kType>(chunk, shift, {0.9, false});
      check_accumulation<kType>(chunk, shift, {0.9, true});
    }
  }
}

TEST_CASE("the device accumulates as the CPU does", "[cuda][csc]") {
  check_accumulations<DType::kFloat64>();
  check_accumulations<DType::kFloat32>();
  check_accumulations<DType::kFloat16>();
  check_accumulations<DType::kBFloat16>();
}

TEST_CASE("the device marks an overflow as the CPU does", "[cuda][csc]") {
  for (const float bad : {1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> norms(300, 2.0F);
    norms[299] = bad;
    std::uint16_t value = 5, expected = 5;
    const MarkWork work{reinterpret_cast<std::byte*>(&value), norms.data(), norms.size()};
    for (int thread = 0; thread < kChunkThreads; ++thread)
      mark_overflow_block<DType::kFloat16>({thread, kChunkThreads}, work);
    mark_overflow(&expected, DType::kFloat16, norms.data(), norms.size());
    REQUIRE(value == expected);
    REQUIRE((value == 5) == (bad == 1.0F));
  }
}

TEST_CASE("numbers of a progression are written by all threads", "[cuda]") {
  std::vector<std::uint32_t> indices(2000);
  const NumberWork work{indices.data(), indices.size(), {2, 3}};
  run_blocks(2, [&](Thread thread, std::uint64_t block) { number_block(thread, work, block); });
  for (std::uint32_t j = 0; j < indices.size(); ++j) REQUIRE(indices[j] == 2 + 3 * j);
}

}  // namespace
}  // namespace roundelay::kernels::cuda
