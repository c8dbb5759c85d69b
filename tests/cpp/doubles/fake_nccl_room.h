// The meeting point of one fake communicator: the members' stream threads bring their parts here and sleep
// until the others have come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/status.h"
#include "platform/nccl/api.h"

namespace roundelay::doubles {

// One member's arguments of a collective.
struct FakeNcclPart {
  enum class Kind : unsigned char { kAllReduce, kReduceScatter, kAllGather, kBroadcast };
  Kind kind = Kind::kAllReduce;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;  // elements of `from` (all-reduce, broadcast), or of one member's share
  DType dtype = DType::kUInt8;
  platform::NcclCommunicator::Reduction reduction{};
  int root = 0;
};

// One end of a message. `from` is null at the receiver.
struct FakeNcclMessage {
  int peer = 0;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t bytes = 0;
};

// Thread-safe.
class FakeNcclRoom {
 public:
  explicit FakeNcclRoom(int members);

  // Returns the room with this id in this process.
  [[nodiscard]] static std::shared_ptr<FakeNcclRoom> of(const platform::NcclId& id, int members);

  [[nodiscard]] std::size_t size() const { return members_.size(); }
  void enter() EXCLUDES(mutex_);
  [[nodiscard]] bool complete() const EXCLUDES(mutex_);

  // Called by a stream's thread. Blocks until all members are there, or this one has left.
  void meet(int index, const FakeNcclPart& part) EXCLUDES(mutex_);
  void exchange(int index, const std::vector<FakeNcclMessage>& messages) EXCLUDES(mutex_);

  // Ends everything that blocks this member's streams, now and later. The others still wait for it.
  void leave(int index) EXCLUDES(mutex_);
  // Count the operations in this member's streams.
  void expect(int index) EXCLUDES(mutex_);
  void finished(int index) EXCLUDES(mutex_);
  // Waits until none is left. Returns false at the deadline, or if the member has left.
  [[nodiscard]] bool wait_finished(int index, Deadline deadline) EXCLUDES(mutex_);
  // Returns an error if members disagreed.
  [[nodiscard]] Status error() const EXCLUDES(mutex_);

 private:
  struct Member {
    std::uint64_t next_round = 0;
    int expected = 0;
    bool left = false;
  };
  struct Round {
    std::vector<std::optional<FakeNcclPart>> parts;
    int there = 0, gone = 0;
    bool done = false;
  };
  struct Letter {
    const std::byte* data;
    std::size_t bytes;
    bool taken = false;
  };
  using LetterPtr = std::shared_ptr<Letter>;
  using Box = std::deque<LetterPtr>;  // messages from one member to another

  void bring(Round& round, int index, const FakeNcclPart& part) REQUIRES(mutex_);
  [[nodiscard]] bool wait_for_letter(const Box& box, int index) REQUIRES(mutex_);
  void take_letter(Box& box, const FakeNcclMessage& message, int index) REQUIRES(mutex_);
  void block(int index) REQUIRES(mutex_);
  Member& member(int index) REQUIRES(mutex_) { return members_[static_cast<std::size_t>(index)]; }

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Member> members_;  // its size is constant; mutex_ guards its elements
  int entered_ GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Round> rounds_ GUARDED_BY(mutex_);
  std::map<std::pair<int, int>, Box> mail_ GUARDED_BY(mutex_);
  Status error_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::doubles
