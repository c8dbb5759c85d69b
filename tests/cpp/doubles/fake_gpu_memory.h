// The fake device's memory: host memory, with its kind and lifetime recorded.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/gpu_runtime.h"

namespace roundelay::doubles {

// Thread-safe. Blocks keep it alive.
class FakeMemory : public std::enable_shared_from_this<FakeMemory> {
 public:
  enum class Kind : unsigned char { kNone, kDevice, kPinned };

  // Allocates memory full of garbage. Errors: kUnavailable beyond the limit.
  [[nodiscard]] Result<GpuMemory> allocate(Kind kind, std::size_t bytes) EXCLUDES(mutex_);
  // Makes memory of another owner count as the device's while the result exists.
  [[nodiscard]] std::shared_ptr<void> adopt(ByteSpan memory) EXCLUDES(mutex_);
  // Limits all blocks of this kind together.
  void limit(Kind kind, std::size_t bytes) EXCLUDES(mutex_);
  [[nodiscard]] std::size_t in_use(Kind kind) EXCLUDES(mutex_);

  // Returns the kind of the block that contains all these bytes; kNone if there is none.
  [[nodiscard]] Kind kind_of(ConstByteSpan bytes) EXCLUDES(mutex_);
  // Returns the block that has this address; no bytes if there is none.
  [[nodiscard]] Allocation find(const void* address) EXCLUDES(mutex_);
  // Tells the listener of all blocks that begin or end from now on.
  void tell(std::shared_ptr<MemoryListener> listener) EXCLUDES(mutex_);
  // Ends the process with a message if any of the bytes are freed.
  void expect_live(ConstByteSpan bytes) EXCLUDES(mutex_);
  // Does so, too. While the result exists the bytes stay, also if their owner frees them: cudaFree() waits
  // for the work that the device has by then.
  [[nodiscard]] std::shared_ptr<void> hold(ConstByteSpan bytes) EXCLUDES(mutex_);

 private:
  struct Block {
    std::size_t bytes;
    Kind kind;
    std::shared_ptr<std::byte> memory;  // null: another owner's
  };
  struct Account {
    std::size_t used = 0, limit = SIZE_MAX;
  };
  using Blocks = std::map<const std::byte*, Block>;

  void forget(std::byte* data) EXCLUDES(mutex_);
  // Returns the block that contains all these bytes, or the end.
  Blocks::iterator containing(ConstByteSpan bytes) REQUIRES(mutex_);
  // Carries out a change of the blocks, which the listener hears of.
  template <class Change>
  void change(const std::byte* data, std::size_t bytes, Change change) EXCLUDES(mutex_);
  Account& account(Kind kind) REQUIRES(mutex_) { return kind == Kind::kDevice ? device_ : pinned_; }

  Mutex mutex_;
  Blocks blocks_ GUARDED_BY(mutex_);
  Account device_ GUARDED_BY(mutex_), pinned_ GUARDED_BY(mutex_);
  std::shared_ptr<MemoryListener> listener_ GUARDED_BY(mutex_);  // may be null
};

}  // namespace roundelay::doubles
