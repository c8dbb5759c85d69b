// The rounds of one call. A program (collective/program/program.h) writes to the segment, waits and reads
// through them. In each round a member
// - waits until its slot is writable, puts up to a slot of bytes there, and calls stage();
// - waits until others have staged theirs, may put reduced bytes in its slot, and calls reduce();
// - calls release() when it reads no slot of the round any more.
//
// A member has two slots, so that two rounds may be open at a time.
#pragma once

#include <coroutine>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/backoff.h"
#include "collective/fabric.h"
#include "collective/program/scratch.h"
#include "collective/shm/heap.h"
#include "collective/shm/segment.h"

namespace roundelay::collective::shm {

// Remembers one member's earlier calls. One thread at a time.
struct History {
  History(const Segment& of, int member, const Heap* of_group = nullptr)
      : segment(of),
        index(member),
        heap(of_group),
        last_present(static_cast<std::size_t>(of.members())),
        agreed(static_cast<std::size_t>(of.members())) {}

  const Segment segment;
  const int index;
  const Heap* const heap;               // null: none
  std::vector<Word> last_present;       // each member's end of the last call that it took part in
  std::vector<std::uint64_t> agreed;    // the last call in which each member's mark was equal to this one's
  Word last_use[Segment::kSlots] = {};  // the last round that used each slot of this member
  const std::shared_ptr<FabricCounters> counters = std::make_shared<FabricCounters>();
};

// One thread at a time.
class Rounds {
 public:
  // Begins call number `call` of the group, from 1, between `members` (ascending, this one among them). All
  // other functions count members by their position in this list. If `mark` is set, peers that wait for this
  // member compare it with theirs. The program may begin when all_done() says so. `history` and `pool`
  // outlive it.
  Rounds(History& history, std::vector<int> members, std::uint64_t call, ScratchPool& pool,
         const CallMark& mark = {});
  ~Rounds();
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::size_t slot_bytes() const { return history_.segment.slot_bytes(); }
  // Returns memory that is valid until the call ends.
  std::byte* scratch(std::size_t bytes);

  // Returns this member's slot of a round. It may be written between `co_await writable(round)` and
  // stage(round), and then until reduce(round) in parts that no other member reads before.
  [[nodiscard]] std::byte* slot(std::uint64_t round) const { return slot_of(index_, round); }
  // Returns a member's slot of a round.
  [[nodiscard]] std::byte* slot_of(int member, std::uint64_t round) const {
    return history_.segment.slot(in_group(member), call_ + round);
  }
  // Copies bytes to this member's slot.
  void put(std::uint64_t round, std::size_t offset, const std::byte* from, std::size_t bytes) {
    if (bytes == 0) return;
    std::memcpy(slot(round) + offset, from, bytes);
    FabricCounters::add(history_.counters->bytes_staged, bytes);
  }
  // Tells the other members, if these bytes lie in the heap, that they read them there, in all rounds. Call
  // it before stage(0), which then needs no bytes in the slot.
  bool place(ConstByteSpan bytes);
  // Returns where a member's bytes of all rounds lie; null: in its slots. After `co_await staged(0)`.
  [[nodiscard]] std::byte* placed(int member) const;
  // Tell the other members how far this one has come in a round.
  void stage(std::uint64_t round) { publish(&Progress::staged, word_of(call_, round + 1)); }
  void reduce(std::uint64_t round) { publish(&Progress::reduced, word_of(call_, round + 1)); }
  void release(std::uint64_t round) { publish(&Progress::released, word_of(call_, round + 1)); }
  // Returns the next of `count` pieces of the call's work, which this member then has to do. Returns nothing
  // when all are taken.
  std::optional<std::uint64_t> claim(std::uint64_t count);
  // Ends the call for this member.
  void finish() { publish(&Progress::released, word_of(call_ + 1, 0)); }

  struct Waiting {
    Rounds* rounds;
    [[nodiscard]] bool await_ready() const { return rounds->all_done(); }
    void await_suspend(std::coroutine_handle<> /*program*/) const noexcept {}
    void await_resume() const noexcept {}
  };
  // Returns a member's index in the whole group.
  [[nodiscard]] int in_group(int member) const { return members_[static_cast<std::size_t>(member)]; }

  // A program co_awaits it. No member then reads the earlier bytes in this member's slot of the round.
  Waiting writable(std::uint64_t round);
  // A program co_awaits them. One member, or all, then have staged or reduced their bytes of a round.
  Waiting staged(int member, std::uint64_t round) { return wait(&Progress::staged, member, round); }
  Waiting staged(std::uint64_t round) { return wait(&Progress::staged, kEveryone, round); }
  Waiting reduced(int member, std::uint64_t round) { return wait(&Progress::reduced, member, round); }
  Waiting reduced(std::uint64_t round) { return wait(&Progress::reduced, kEveryone, round); }

  // Looks at the counters that the program waits for. True: they have come far enough.
  bool all_done();
  // A member for which the program waits in vain, and why.
  struct InVain {
    int member = -1;      // its index in the whole group
    std::string calls{};  // what this member and that one have called, if it differs; empty: it has left
  };
  // Looks, after an all_done() that said false, whether the member it waits for will ever come. Otherwise
  // returns it, and the call cannot go on.
  [[nodiscard]] const std::optional<InVain>& in_vain();
  // Makes the program wait in vain: a member's part has another size than this member expects.
  void refuse(int member, std::size_t sent, std::size_t expected);
  // Returns a sleep of up to `most` that ends when the counters have moved, or a thread rings this member's
  // doorbell.
  Nap nap(Duration most);
  [[nodiscard]] int waiting_for() const { return waiting_for_; }  // an index in the whole group, or -1

 private:
  using Counter = SharedWord<Word> Progress::*;
  static constexpr int kEveryone = -1;

  void wait_for_readers(Word word);
  Waiting wait(Counter counter, int member, std::uint64_t round);
  void publish(Counter counter, Word word);
  [[nodiscard]] bool reached(int member) const;
  [[nodiscard]] bool agrees(int in_group);
  void show_mark();
  void look_back();

  History& history_;
  const std::vector<int> members_;
  const int index_;
  const std::uint64_t call_;
  const CallMark mark_;
  bool mark_shown_ = false;
  std::optional<InVain> in_vain_;
  ScratchPool& pool_;
  std::vector<ScratchPool::Block> blocks_;
  // The program waits until the members from next_ to end_ have reached word_ in this counter. Before this
  // member writes what others may still read, these are all members of the group, and none has to reach more
  // than the end of the last call that it took part in.
  Counter counter_ = &Progress::staged;
  Word word_ = 0;
  bool of_readers_ = false;
  int next_ = 0, end_ = 0;
  int waiting_for_ = -1;
};

}  // namespace roundelay::collective::shm
