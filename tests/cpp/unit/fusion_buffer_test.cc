// Layout, fusion buffer, pack and unpack.
#include <cstdint>
#include <random>

#include "execute/fusion_buffer.h"
#include "execute/pack.h"
#include "kernels/kernels.h"
#include "negotiate/fusion_layout.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUNDELAY_UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ROUNDELAY_UNDER_SANITIZER 1
#endif
#endif

namespace roundelay::execute {
namespace {

namespace reference = kernels::reference;

bool aligned(const std::byte* address, std::uintptr_t alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

TEST_CASE("slots are aligned, in order and apart", "[fusion]") {
  const std::vector<std::size_t> sizes = {1, 64, 0, 65, 128, 7};
  const negotiate::FusionLayout layout = negotiate::make_fusion_layout(sizes);
  REQUIRE(layout.slots ==
          std::vector<negotiate::FusionSlot>{{0, 1}, {64, 64}, {128, 0}, {128, 65}, {256, 128}, {384, 7}});
  REQUIRE(layout.bytes == 448);
  REQUIRE(negotiate::make_fusion_layout({}).bytes == 0);
}

TEST_CASE("a fusion buffer grows on demand and is used again", "[fusion]") {
  FusionBuffer buffer(1 << 20);
  REQUIRE(buffer.data() == nullptr);
  REQUIRE(buffer.reserve(0).ok());
  REQUIRE(buffer.reserve(100).ok());
  REQUIRE(buffer.capacity() >= 100);
  REQUIRE(aligned(buffer.data(), 64));
  std::byte* const small = buffer.data();
  REQUIRE(buffer.reserve(70).ok());
  REQUIRE(buffer.data() == small);
  REQUIRE(buffer.reserve(1 << 20).ok());
  REQUIRE(aligned(buffer.data(), 4096));
  std::byte* const large = buffer.data();
  std::memset(large, 1, buffer.capacity());
  REQUIRE(buffer.reserve(5).ok());
  REQUIRE(buffer.data() == large);
}

TEST_CASE("more memory than is to be kept goes back with the next operation that fits", "[fusion]") {
  FusionBuffer buffer(1000);
  REQUIRE(buffer.reserve(5000).ok());
  REQUIRE(buffer.reserve(4000).ok());  // more than the buffer keeps: it is used again
  REQUIRE(buffer.capacity() >= 5000);
  REQUIRE(buffer.reserve(900).ok());
  REQUIRE(buffer.capacity() < 1100);
}

TEST_CASE("a buffer that cannot be had is a status, and the next try is free", "[fusion]") {
  FusionBuffer buffer(1000);
  REQUIRE(buffer.reserve(10).ok());
  REQUIRE(buffer.reserve(SIZE_MAX).code() == StatusCode::kUnavailable);
  REQUIRE(buffer.capacity() == 0);
#ifndef ROUNDELAY_UNDER_SANITIZER  // their allocators would end the process
  const Status status = buffer.reserve(std::size_t{1} << 60);
  REQUIRE(status.code() == StatusCode::kUnavailable);
  REQUIRE(status.message().find("ROUNDELAY_FUSION_THRESHOLD") != std::string::npos);
#endif
  REQUIRE(buffer.reserve(10).ok());
}

TEST_CASE("moved and leaked memory is not freed twice, nor used again", "[fusion]") {
  FusionBuffer first(1000);
  REQUIRE(first.reserve(500).ok());
  std::byte* const memory = first.data();
  FusionBuffer second(std::move(first));
  REQUIRE(second.data() == memory);
  FusionBuffer third(10);
  REQUIRE(third.reserve(20).ok());
  third = std::move(second);
  REQUIRE(third.data() == memory);
  third.leak();
  REQUIRE(third.data() == nullptr);
  REQUIRE(third.reserve(500).ok());
  REQUIRE(third.data() != memory);
  memory[0] = std::byte{1};  // a poisoned fabric may still do this
  third.leak();
  third.leak();
}

struct Tensors {
  std::vector<Bytes> memory;  // each starts at an odd address
  std::vector<std::size_t> counts;
  std::vector<std::size_t> sizes;
};

Tensors make_tensors(DType dtype, std::size_t seed) {
  Tensors tensors;
  for (const std::size_t count : {1, 0, 3, 17, 64, 1003, 32}) {
    const std::size_t size = size_of(dtype);
    Bytes memory(count * size + 1);
    for (std::size_t i = 0; i < count; ++i) {
      reference::write(dtype, memory.data() + 1 + i * size, reference::small_value(dtype, i, seed + count));
    }
    tensors.memory.push_back(std::move(memory));
    tensors.counts.push_back(count);
    tensors.sizes.push_back(count * size);
  }
  return tensors;
}

std::vector<PackItem> pack_items(const Tensors& tensors, const negotiate::FusionLayout& layout) {
  std::vector<PackItem> items;
  for (std::size_t k = 0; k < tensors.counts.size(); ++k) {
    items.push_back({tensors.memory[k].data() + 1, layout.slots[k]});
  }
  return items;
}

std::vector<UnpackItem> unpack_items(Tensors& tensors, const negotiate::FusionLayout& layout) {
  std::vector<UnpackItem> items;
  for (std::size_t k = 0; k < tensors.counts.size(); ++k) {
    items.push_back({tensors.memory[k].data() + 1, layout.slots[k]});
  }
  return items;
}

TEST_CASE("what is packed comes back, for every dtype", "[fusion]") {
  for (const DType dtype : reference::kAllDTypes) {
    const Tensors tensors = make_tensors(dtype, 1);
    const negotiate::FusionLayout layout = negotiate::make_fusion_layout(tensors.sizes);
    FusionBuffer buffer(layout.bytes);
    REQUIRE(buffer.reserve(layout.bytes).ok());
    std::memset(buffer.data(), 0xff, layout.bytes);
    pack(pack_items(tensors, layout), buffer.data());
    for (const negotiate::FusionSlot& slot : layout.slots) {
      for (std::size_t i = 0; i < negotiate::padding_after(slot.bytes); ++i) {
        REQUIRE(buffer.data()[slot.offset + slot.bytes + i] == std::byte{0});
      }
    }
    Tensors back = make_tensors(dtype, 2);
    unpack(unpack_items(back, layout), buffer.data());
    INFO(name_of(dtype));
    REQUIRE(back.memory == tensors.memory);
  }
}

TEST_CASE("packed ranks reduce over the whole range, padding included", "[fusion]") {
  for (const DType dtype :
       {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32}) {
    const Tensors ours = make_tensors(dtype, 1);
    const Tensors theirs = make_tensors(dtype, 1);
    const negotiate::FusionLayout layout = negotiate::make_fusion_layout(ours.sizes);
    Bytes a(layout.bytes);
    Bytes b(layout.bytes);
    pack(pack_items(ours, layout), a.data());
    pack(pack_items(theirs, layout), b.data());
    kernels::reduce(a.data(), b.data(), layout.bytes / size_of(dtype), dtype, ReduceOp::kSum);
    Tensors back = make_tensors(dtype, 2);
    unpack(unpack_items(back, layout), a.data());
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < back.counts.size(); ++k) {
      for (std::size_t i = 0; i < back.counts[k]; ++i) {
        const double value = reference::read(dtype, back.memory[k].data() + 1 + i * size_of(dtype));
        if (value != 2 * reference::small_value(dtype, i, 1 + back.counts[k])) ++wrong;
      }
    }
    INFO(name_of(dtype));
    REQUIRE(wrong == 0);
  }
}

}  // namespace
}  // namespace roundelay::execute
