#include "tests/cpp/doubles/fake_gpu_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace roundelay::doubles {
namespace {

constexpr std::align_val_t kAlignment{256};
constexpr int kFresh = 0xAB, kFreed = 0xDD;

}  // namespace

template <class Change>
void FakeMemory::change(const std::byte* data, std::size_t bytes, Change change) {
  std::shared_ptr<MemoryListener> listener;
  {
    const MutexLock lock(mutex_);
    listener = listener_;
  }
  if (listener != nullptr) listener->begin_change(reinterpret_cast<std::uintptr_t>(data), bytes);
  change();
  if (listener != nullptr) listener->end_change();
}

Result<GpuMemory> FakeMemory::allocate(Kind kind, std::size_t bytes) {
  {
    const MutexLock lock(mutex_);
    Account& of_kind = account(kind);
    if (bytes > of_kind.limit || of_kind.used > of_kind.limit - bytes) {
      return Status::unavailable("out of memory: " + std::to_string(bytes) + " bytes" +
                                 (kind == Kind::kPinned ? " of pinned memory" : " on the fake device"));
    }
    of_kind.used += bytes;
  }
  const std::size_t size = std::max(bytes, std::size_t{1});
  auto* const data = static_cast<std::byte*>(::operator new(size, kAlignment));
  std::memset(data, kFresh, size);
  std::shared_ptr<std::byte> memory(data, [size](std::byte* freed) {
    std::memset(freed, kFreed, size);
    ::operator delete(freed, kAlignment);
  });
  change(data, size, [&] {
    const MutexLock lock(mutex_);
    blocks_.emplace(data, Block{bytes, kind, std::move(memory)});
  });
  return GpuMemory(data, [self = shared_from_this()](std::byte* given) { self->forget(given); });
}

std::shared_ptr<void> FakeMemory::adopt(ByteSpan memory) {
  change(memory.data(), memory.size(), [&] {
    const MutexLock lock(mutex_);
    blocks_.insert_or_assign(memory.data(), Block{memory.size(), Kind::kDevice, nullptr});
  });
  return {memory.data(),
          [self = shared_from_this()](void* data) { self->forget(static_cast<std::byte*>(data)); }};
}

void FakeMemory::limit(Kind kind, std::size_t bytes) {
  const MutexLock lock(mutex_);
  account(kind).limit = bytes;
}

std::size_t FakeMemory::in_use(Kind kind) {
  const MutexLock lock(mutex_);
  return account(kind).used;
}

FakeMemory::Blocks::iterator FakeMemory::containing(ConstByteSpan bytes) {
  auto block = blocks_.upper_bound(bytes.data());
  if (block == blocks_.begin()) return blocks_.end();
  --block;
  const auto offset = static_cast<std::size_t>(bytes.data() - block->first);
  const bool inside = offset <= block->second.bytes && bytes.size() <= block->second.bytes - offset;
  return inside ? block : blocks_.end();
}

FakeMemory::Kind FakeMemory::kind_of(ConstByteSpan bytes) {
  const MutexLock lock(mutex_);
  const auto block = containing(bytes);
  return block == blocks_.end() ? Kind::kNone : block->second.kind;
}

void FakeMemory::expect_live(ConstByteSpan bytes) { static_cast<void>(hold(bytes)); }

std::shared_ptr<void> FakeMemory::hold(ConstByteSpan bytes) {
  if (bytes.empty()) return nullptr;
  {
    const MutexLock lock(mutex_);
    if (const auto block = containing(bytes); block != blocks_.end()) return block->second.memory;
  }
  std::fprintf(stderr, "fake GPU: %zu bytes at %p were freed before the work on them was done\n",
               bytes.size(), static_cast<const void*>(bytes.data()));
  std::abort();
}

// The listener hears of the first address alone, as that of cudaFree() does.
void FakeMemory::forget(std::byte* data) {
  std::shared_ptr<std::byte> memory;  // is freed without the lock
  change(data, 1, [&] {
    const MutexLock lock(mutex_);
    const auto block = blocks_.find(data);
    memory = std::move(block->second.memory);
    if (memory != nullptr) account(block->second.kind).used -= block->second.bytes;
    blocks_.erase(block);
  });
}

Allocation FakeMemory::find(const void* address) {
  const MutexLock lock(mutex_);
  const auto* const wanted = static_cast<const std::byte*>(address);
  auto block = blocks_.upper_bound(wanted);
  if (block == blocks_.begin()) return {};
  --block;
  if (static_cast<std::size_t>(wanted - block->first) >= block->second.bytes) return {};
  const MemoryPlace place = block->second.kind == Kind::kDevice ? MemoryPlace{MemoryKind::kDevice, 0}
                                                                : MemoryPlace{MemoryKind::kRegistered, -1};
  return {reinterpret_cast<std::uintptr_t>(block->first), block->second.bytes, place};
}

void FakeMemory::tell(std::shared_ptr<MemoryListener> listener) {
  const MutexLock lock(mutex_);
  listener_ = std::move(listener);
}

}  // namespace roundelay::doubles
