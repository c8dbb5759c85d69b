#include "collective/shm/rounds.h"

#include <algorithm>
#include <utility>

namespace roundelay::collective::shm {

Rounds::Rounds(History& history, std::vector<int> members, std::uint64_t call, ScratchPool& pool,
               const CallMark& mark)
    : history_(history),
      members_(std::move(members)),
      index_(static_cast<int>(std::lower_bound(members_.begin(), members_.end(), history.index) -
                              members_.begin())),
      call_(call),
      mark_(mark),
      pool_(pool) {
  for (const int member : members_) {
    history_.last_present[static_cast<std::size_t>(member)] = word_of(call_ + 1, 0);
  }
  // This member took no part in the calls since its last one, and reads nothing of them.
  publish(&Progress::released, word_of(call_, 0));
  // A call of no bytes waits for nobody. Many of them would bring this member so far ahead that its mark took
  // the place of one that another member has not compared, in the call of that mark or in the next one.
  constexpr std::uint64_t kAhead = Marks::kCalls - 2;
  if (mark_.set() && call_ > kAhead) wait_for_readers(word_of(call_ - kAhead, 0));
}

Rounds::~Rounds() {
  for (ScratchPool::Block& block : blocks_) pool_.release(std::move(block));
}

std::byte* Rounds::scratch(std::size_t bytes) {
  blocks_.push_back(pool_.acquire(bytes));
  return blocks_.back().memory.get();
}

// Sequentially consistent, as nap() is. Either a sleeper sees the word, or this member sees it asleep.
void Rounds::publish(Counter counter, Word word) {
  const Segment& segment = history_.segment;
  (segment.progress(history_.index).*counter).store(word, std::memory_order_seq_cst);
  for (const int member : members_) {
    Doorbell& doorbell = segment.doorbell(member);
    if (doorbell.asleep.load(std::memory_order_seq_cst) == 0 || doorbell.asleep.exchange(0) == 0) continue;
    doorbell.ring();
    FabricCounters::add(history_.counters->wakes);
  }
}

bool Rounds::place(ConstByteSpan bytes) {
  if (history_.heap == nullptr) return false;
  const std::optional<std::uint64_t> place = history_.heap->find(bytes);
  if (!place) return false;
  Progress& own = history_.segment.progress(history_.index);
  own.place.store(*place, std::memory_order_relaxed);
  own.placed.store(call_, std::memory_order_relaxed);
  return true;
}

// No member leaves the call, and writes these words again, before this one has read its bytes.
std::byte* Rounds::placed(int member) const {
  const Progress& theirs = history_.segment.progress(in_group(member));
  if (theirs.placed.load(std::memory_order_relaxed) != call_) return nullptr;
  return history_.heap->at(in_group(member), theirs.place.load(std::memory_order_relaxed));
}

// A member that has gone on to the next call writes a larger word only when all pieces of this one are taken.
// A late member then finds the larger word, and takes nothing.
std::optional<std::uint64_t> Rounds::claim(std::uint64_t count) {
  SharedWord<Word>& taken = history_.segment.claims().taken;
  const Word first = word_of(call_, 0);
  Word seen = taken.load(std::memory_order_relaxed);
  do {
    if (seen >= first + count) return std::nullopt;
  } while (!taken.compare_exchange_weak(seen, std::max(seen, first) + 1, std::memory_order_relaxed));
  return std::max(seen, first) - first;
}

Nap Rounds::nap(Duration most) {
  Doorbell& doorbell = history_.segment.doorbell(history_.index);
  const std::uint32_t seen = doorbell.rings.load(std::memory_order_acquire);
  doorbell.asleep.store(1, std::memory_order_seq_cst);
  if (all_done() || in_vain()) return {};
  FabricCounters::add(history_.counters->sleeps);
  return {doorbell.rings, seen, most};
}

// Members that take no part in this call may still read the slot's last use.
Rounds::Waiting Rounds::writable(std::uint64_t round) {
  Word& last_use = history_.last_use[(call_ + round) % Segment::kSlots];
  wait_for_readers(std::exchange(last_use, word_of(call_, round + 1)));
  return {this};
}

void Rounds::wait_for_readers(Word word) {
  counter_ = &Progress::released;
  word_ = word;
  of_readers_ = true;
  next_ = 0;
  end_ = history_.segment.members();
}

Rounds::Waiting Rounds::wait(Counter counter, int member, std::uint64_t round) {
  counter_ = counter;
  word_ = word_of(call_, round + 1);
  of_readers_ = false;
  next_ = member == kEveryone ? 0 : member;
  end_ = member == kEveryone ? size() : member + 1;
  return {this};
}

bool Rounds::reached(int member) const {
  const int in_group = of_readers_ ? member : this->in_group(member);
  if (in_group == history_.index) return true;
  Word word = word_;
  if (of_readers_) word = std::min(word, history_.last_present[static_cast<std::size_t>(in_group)]);
  return (history_.segment.progress(in_group).*counter_).load(std::memory_order_seq_cst) >= word;
}

void Rounds::show_mark() {
  mark_shown_ = true;
  history_.segment.marks(history_.index).write(call_, mark_);
  look_back();
}

// Compares earlier calls in which this member waited for nobody: two roots may both have sent.
void Rounds::look_back() {
  for (const int member : members_) {
    std::uint64_t& agreed = history_.agreed[static_cast<std::size_t>(member)];
    if (member == history_.index || agreed + 1 >= call_) continue;
    for (std::uint64_t call =
             std::max(agreed + 1, call_ - std::min<std::uint64_t>(call_ - 1, Marks::kCalls - 1));
         call < call_ && !in_vain_; ++call) {
      const std::optional<CallMark> mine = history_.segment.marks(history_.index).read(call);
      const std::optional<CallMark> other = history_.segment.marks(member).read(call);
      if (!mine || !other) continue;
      if (*mine != *other) in_vain_ = InVain{member, describe(*mine, *other)};
      agreed = call;
    }
  }
}

void Rounds::refuse(int member, std::size_t sent, std::size_t expected) {
  in_vain_ = InVain{in_group(member), std::to_string(expected) + " bytes from it are expected here in " +
                                          describe(mark_) + ", and it sends " + std::to_string(sent)};
}

// Compares the member's mark with this one's, once a call. True: they are equal, or the member has not come
// to this call.
bool Rounds::agrees(int in_group) {
  if (!mark_.set() || in_group == history_.index) return true;
  std::uint64_t& agreed = history_.agreed[static_cast<std::size_t>(in_group)];
  if (agreed == call_) return true;
  const std::optional<CallMark> other = history_.segment.marks(in_group).read(call_);
  if (other && *other != mark_) {
    in_vain_ = InVain{in_group, describe(mark_, *other)};
    return false;
  }
  if (other) agreed = call_;
  return true;
}

bool Rounds::all_done() {
  if (in_vain_) return false;
  // A member's mark is written before its first word.
  while (next_ < end_ && reached(next_) && (of_readers_ || agrees(in_group(next_)))) ++next_;
  waiting_for_ = next_ == end_ ? -1 : of_readers_ ? next_ : in_group(next_);
  if (next_ == end_ && mark_.set() && !mark_shown_) show_mark();
  return next_ == end_ && !in_vain_;
}

const std::optional<Rounds::InVain>& Rounds::in_vain() {
  if (in_vain_ || next_ == end_ || (!of_readers_ && !agrees(waiting_for_))) return in_vain_;
  const bool left = history_.segment.progress(waiting_for_).left.load(std::memory_order_acquire) != 0;
  if (left && !reached(next_)) in_vain_ = InVain{waiting_for_};
  return in_vain_;
}

}  // namespace roundelay::collective::shm
