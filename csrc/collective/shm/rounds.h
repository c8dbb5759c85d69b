// One call's view of the segment: what a program (collective/program.h) writes, waits for and reads, round by
// round. In each round a member stages up to a slot of bytes, perhaps puts reduced bytes in their place, and
// releases the round when it reads nobody's slot any more. Two rounds may be open at a time.
#pragma once

#include <coroutine>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "collective/backoff.h"
#include "collective/fabric.h"
#include "collective/scratch.h"
#include "collective/shm/segment.h"

namespace roundelay::collective::shm {

// What one member knows of the calls before: kept from call to call.
struct History {
  History(const Segment& of, int member)
      : segment(of), index(member), last_present(static_cast<std::size_t>(of.members())) {}

  const Segment segment;
  const int index;
  std::vector<Word> last_present;       // by member: the end of the last call that it takes part in
  Word last_use[Segment::kSlots] = {};  // of this member's own slots
  const std::shared_ptr<FabricWork> work = std::make_shared<FabricWork>();
};

class Rounds {
 public:
  // Call number `call` of the group, from 1, between `members` (ascending, this one among them); in what
  // follows they count from 0.
  Rounds(History& history, std::vector<int> members, std::uint64_t call, ScratchPool& pool);
  ~Rounds();
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::size_t slot_bytes() const { return history_.segment.slot_bytes(); }
  std::byte* scratch(std::size_t bytes);  // until the call ends

  // This member's slot of a round, to be written between `co_await writable(round)` and stage(round), then,
  // in parts that nobody reads before, until reduce(round).
  [[nodiscard]] std::byte* slot(std::uint64_t round) const { return slot_of(index_, round); }
  [[nodiscard]] std::byte* slot_of(int member, std::uint64_t round) const {
    return history_.segment.slot(in_group(member), call_ + round);
  }
  // Bytes into it.
  void put(std::uint64_t round, std::size_t offset, const std::byte* from, std::size_t bytes) {
    if (bytes == 0) return;
    std::memcpy(slot(round) + offset, from, bytes);
    FabricWork::add(history_.work->bytes_staged, bytes);
  }
  void stage(std::uint64_t round) { publish(&Progress::staged, word_of(call_, round + 1)); }
  void reduce(std::uint64_t round) { publish(&Progress::reduced, word_of(call_, round + 1)); }
  void release(std::uint64_t round) { publish(&Progress::released, word_of(call_, round + 1)); }
  // The next of `count` pieces of the call's work, which is this member's to do now; nothing: all are taken.
  std::optional<std::uint64_t> claim(std::uint64_t count);
  // The call is over for this member.
  void finish() { publish(&Progress::released, word_of(call_ + 1, 0)); }

  struct Waiting {
    Rounds* rounds;
    [[nodiscard]] bool await_ready() const { return rounds->all_done(); }
    void await_suspend(std::coroutine_handle<> /*program*/) const noexcept {}
    void await_resume() const noexcept {}
  };
  [[nodiscard]] int in_group(int member) const { return members_[static_cast<std::size_t>(member)]; }

  // For co_await. Nobody reads this member's slot of the round before any more:
  Waiting writable(std::uint64_t round);
  // One member's bytes are there, or everyone's:
  Waiting staged(int member, std::uint64_t round) { return wait(&Progress::staged, member, round); }
  Waiting staged(std::uint64_t round) { return wait(&Progress::staged, kEveryone, round); }
  Waiting reduced(int member, std::uint64_t round) { return wait(&Progress::reduced, member, round); }

  // Looks at what is awaited.
  bool all_done();
  // Until what is awaited may be there, or somebody rings this member's doorbell.
  Nap nap(Duration most);
  [[nodiscard]] int waiting_for() const { return waiting_for_; }  // the group's index; -1: nobody

 private:
  using Counter = SharedWord<Word> Progress::*;
  static constexpr int kEveryone = -1;

  Waiting wait(Counter counter, int member, std::uint64_t round);
  void publish(Counter counter, Word word);
  bool reached(int member) const;

  History& history_;
  const std::vector<int> members_;
  const int index_;
  const std::uint64_t call_;
  ScratchPool& pool_;
  std::vector<ScratchPool::Block> blocks_;
  // What is awaited: members from next_ on are to have reached word_. For writable() these are all members of
  // the group, each held to no more than the end of the last call that it took part in.
  Counter counter_ = &Progress::staged;
  Word word_ = 0;
  bool of_readers_ = false;
  int next_ = 0, end_ = 0;
  int waiting_for_ = -1;
};

}  // namespace roundelay::collective::shm
