// The division of copies into launches and blocks.
#include <map>

#include "kernels/cuda/plan.h"
#include "tests/cpp/catch.h"

namespace roundelay::kernels::cuda {
namespace {

std::byte* at(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

constexpr std::uintptr_t kTo = 0x10000, kFrom = 0x90000;

TEST_CASE("plain copies of any types become one group of bytes", "[cuda]") {
  const std::vector<GpuCopy> copies = {
      {at(kTo), at(kFrom), 100, DType::kFloat32, DType::kFloat32},
      {at(kTo + 4096), at(kFrom + 4096), 7, DType::kBool, DType::kBool},
      {at(kTo + 8192), at(kFrom + 8192), 0, DType::kFloat64, DType::kFloat64},
      {at(kTo + 8192), at(kTo + 8192), 9, DType::kInt64, DType::kInt64},
  };
  const auto groups = plan_copies(copies, true, 100);
  REQUIRE(groups.size() == 1);
  REQUIRE(groups[0].bytes);
  REQUIRE(groups[0].items.size() == 2);  // the empty copy and the copy in place are left out
  REQUIRE(groups[0].items[0].count == 400);
  REQUIRE(groups[0].items[1].count == 7);
}

TEST_CASE("scaled copies are grouped by their types, in place too", "[cuda]") {
  const std::vector<GpuCopy> copies = {
      {at(kTo), at(kTo), 100, DType::kFloat32, DType::kFloat32},
      {at(kTo + 4096), at(kFrom), 50, DType::kFloat32, DType::kFloat16},
      {at(kTo + 8192), at(kFrom + 8192), 10, DType::kFloat32, DType::kFloat32},
  };
  const auto groups = plan_copies(copies, false, 100);
  REQUIRE(groups.size() == 2);
  REQUIRE(groups[0].items.size() == 2);
  REQUIRE((groups[1].from_type == DType::kFloat16 && groups[1].items[0].count == 50));
}

TEST_CASE("a copy's width is what both addresses allow", "[cuda]") {
  const auto width = [](std::uintptr_t to, std::uintptr_t from, DType to_type, DType from_type,
                        bool identity) {
    const std::vector<GpuCopy> copies = {{at(kTo + to), at(kFrom + from), 1000, to_type, from_type}};
    return static_cast<int>(plan_copies(copies, identity, 1).at(0).items.back().width);
  };
  REQUIRE(width(0, 0, DType::kFloat32, DType::kFloat32, true) == 16);
  REQUIRE(width(8, 0, DType::kFloat32, DType::kFloat32, true) == 8);
  REQUIRE(width(4, 8, DType::kFloat32, DType::kFloat32, true) == 4);
  REQUIRE(width(2, 4, DType::kFloat32, DType::kFloat32, true) == 2);
  REQUIRE(width(1, 0, DType::kFloat32, DType::kFloat32, true) == 1);
  REQUIRE(width(8, 0, DType::kFloat16, DType::kFloat32, true) == 16);  // 4 elements: 8 bytes and 16
  REQUIRE(width(8, 8, DType::kFloat16, DType::kFloat32, true) == 4);
  REQUIRE(width(2, 4, DType::kFloat16, DType::kFloat32, true) == 4);
  REQUIRE(width(1, 4, DType::kFloat16, DType::kFloat32, true) == 1);
  REQUIRE(width(4, 4, DType::kFloat32, DType::kFloat32, false) == 4);
}

TEST_CASE("addresses that are off by as much meet a pack after a few bytes", "[cuda]") {
  const std::vector<GpuCopy> copies = {
      {at(kTo + 5), at(kFrom + 21), 1000, DType::kInt8, DType::kInt8},
      {at(kTo + 2005), at(kFrom + 2005), 3, DType::kInt8, DType::kInt8},
  };
  const auto groups = plan_copies(copies, true, 1);
  const auto& items = groups.at(0).items;
  REQUIRE(items.size() == 3);
  REQUIRE((items[0].count == 11 && items[0].width == 1));
  REQUIRE((items[1].count == 989 && items[1].width == 16 && items[1].to == at(kTo + 16) &&
           items[1].from == at(kFrom + 32)));
  REQUIRE(items[2].count == 3);
}

TEST_CASE("every element is in exactly one block of one launch", "[cuda]") {
  std::vector<CopyItem> items;
  for (std::uint64_t i = 0; i < 1000; ++i) items.push_back({at(kTo), at(kFrom), 1 + i * i % 5000, 0, 16});
  constexpr std::uint64_t kChunk = 256;
  std::span<CopyItem> left = items;
  std::size_t launches = 0;
  while (!left.empty()) {
    const CopyLaunch next = next_launch(left, kChunk, 240);
    REQUIRE((next.items > 0 && next.items <= 240));
    std::uint32_t block = 0;
    for (const CopyItem& item : left.first(next.items)) {
      REQUIRE(item.first_block == block);
      block += static_cast<std::uint32_t>((item.count + kChunk - 1) / kChunk);
    }
    REQUIRE(next.blocks == block);
    left = left.subspan(next.items);
    ++launches;
  }
  REQUIRE(launches == 5);
}

TEST_CASE("a launch keeps within the number of blocks that a grid can have", "[cuda]") {
  std::vector<CopyItem> items(3, CopyItem{at(kTo), at(kFrom), std::uint64_t{1} << 40, 0, 16});
  REQUIRE(next_launch(items, 1024, 240).items == 1);  // 2^30 blocks each
}

TEST_CASE("little work is spread over all multiprocessors, much of it in large blocks", "[cuda]") {
  const BlockShape little = block_shape(1 << 10, 4, 132), much = block_shape(1 << 28, 4, 132);
  REQUIRE((little.threads == kLeastThreads && little.packs == 1));
  REQUIRE((much.threads == kMostThreads && much.packs == 4));
  for (std::uint64_t packs = 1 << 14; packs < 1 << 22; packs = packs * 3 / 2) {
    const BlockShape shape = block_shape(packs, 4, 132);
    const bool busy = packs / shape.of_block() >= 2 * 132;
    REQUIRE((busy || shape.of_block() == kLeastThreads));
    REQUIRE((shape.packs == 1 || shape.threads == kMostThreads));
  }
}

TEST_CASE("a reduction's width is what all of its addresses allow", "[cuda]") {
  const std::vector<const std::byte*> even = {at(kFrom), at(kFrom + 4096)};
  const std::vector<const std::byte*> off = {at(kFrom), at(kFrom + 4)};
  const std::vector<const std::byte*> odd = {at(kFrom), at(kFrom + 1)};
  REQUIRE(common_width(at(kTo), even, 4) == 16);
  REQUIRE(common_width(at(kTo), off, 4) == 4);
  REQUIRE(common_width(at(kTo), odd, 4) == 1);
  REQUIRE(common_width(at(kTo + 2), even, 4) == 1);
}

}  // namespace
}  // namespace roundelay::kernels::cuda
