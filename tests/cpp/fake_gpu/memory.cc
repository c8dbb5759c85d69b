#include <c10/core/Allocator.h>

#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "tests/cpp/fake_gpu/device.h"

namespace roundelay::fake_gpu {
namespace {

constexpr std::byte kGarbage{0xCB};

struct Block {
  GpuMemory memory;
  std::size_t bytes;
  c10::Stream home;
  std::vector<c10::Stream> borrowers;
};
using BlockPtr = std::unique_ptr<Block>;

// Keeps blocks until the cache is emptied. If work still uses a freed block, wrong values show it.
class Pool final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Stream stream = current_stream(-1);
    if (bytes == 0) return {nullptr, nullptr, &Pool::free, stream.device()};
    BlockPtr block = take(std::bit_ceil(std::max<std::size_t>(bytes, 64)), stream);
    std::byte* const data = block->memory.get();
    return {data, block.release(), &Pool::free, stream.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const c10::Stream stream = current_stream(-1);
    drain(stream);
    std::memcpy(to, from, bytes);
  }

  void empty() EXCLUDES(mutex_) {
    std::map<Key, std::vector<BlockPtr>> unused;
    {
      MutexLock lock(mutex_);
      come_home();
      unused.swap(free_);
    }
    for (const auto& [key, blocks] : unused) {
      for (const BlockPtr& block : blocks) drain(block->home);
    }
  }

  static void free(void* context) {
    if (context != nullptr) static_cast<Pool*>(allocator())->put_back(BlockPtr(static_cast<Block*>(context)));
  }

 private:
  using Key = std::pair<std::uint64_t, std::size_t>;  // stream, size

  BlockPtr take(std::size_t bytes, const c10::Stream& stream) EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      come_home();
      std::vector<BlockPtr>& free = free_[{stream.hash(), bytes}];
      if (!free.empty()) {
        BlockPtr block = std::move(free.back());
        free.pop_back();
        enqueue(stream, [data = block->memory.get(), bytes] {
          std::memset(data, static_cast<int>(kGarbage), bytes);
        });
        return block;
      }
    }
    return std::make_unique<Block>(
        Block{value_of(gpu().allocate(stream.device_index(), bytes)), bytes, stream, {}});
  }

  void put_back(BlockPtr block) EXCLUDES(mutex_) {
    std::vector<GpuEventPtr> used;
    for (const c10::Stream& borrower : std::exchange(block->borrowers, {})) used.push_back(mark(borrower));
    MutexLock lock(mutex_);
    away_.emplace_back(std::move(block), std::move(used));
    come_home();
  }

  // Takes back the blocks that other streams have finished with.
  void come_home() REQUIRES(mutex_) {
    std::erase_if(away_, [this](auto& away) REQUIRES(mutex_) {
      for (const GpuEventPtr& event : away.second) {
        if (!value_of(event->reached())) return false;
      }
      const Key key{away.first->home.hash(), away.first->bytes};
      free_[key].push_back(std::move(away.first));
      return true;
    });
  }

  Mutex mutex_;
  std::map<Key, std::vector<BlockPtr>> free_ GUARDED_BY(mutex_);
  std::vector<std::pair<BlockPtr, std::vector<GpuEventPtr>>> away_ GUARDED_BY(mutex_);
};

}  // namespace

namespace {
Pool& pool() {
  static auto& pool = *new Pool;
  return pool;
}
}  // namespace

c10::Allocator* allocator() { return &pool(); }

void empty_cache() { pool().empty(); }

void record_on_stream(const c10::DataPtr& data, const c10::Stream& stream) {
  if (data.get_deleter() != &Pool::free) return;  // other code owns this memory, as with CUDA's allocator
  auto* const block = static_cast<Block*>(data.get_context());
  if (block != nullptr && stream != block->home) block->borrowers.push_back(stream);
}

namespace {
[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(c10::kPrivateUse1, allocator());
  return true;
}();
}  // namespace

}  // namespace roundelay::fake_gpu
