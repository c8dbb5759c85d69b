#include "tests/cpp/explore/explorer.h"

#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "tests/cpp/explore/steps.h"

namespace roundelay::explore {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;
constexpr std::uint64_t kMostStates = 1'000'000;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29U);
}

std::uint64_t mix(std::uint64_t hash, const void* pointer) {
  return mix(hash, reinterpret_cast<std::uintptr_t>(pointer));
}

std::uint64_t mix(std::uint64_t hash, ConstByteSpan bytes) {
  std::uint64_t word = 0;
  std::size_t i = 0;
  for (; i + sizeof(word) <= bytes.size(); i += sizeof(word)) {
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    hash = mix(hash, word);
  }
  for (; i < bytes.size(); ++i) hash = mix(hash, std::to_integer<std::uint64_t>(bytes[i]));
  return hash;
}

enum class State : unsigned char { kReady, kStalled, kAsleep, kOver, kDead };

struct Member {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  State state = State::kReady;
  bool begun = false;
  const void* word = nullptr;  // the word that it looked at last, or sleeps on
  bool changed = false;        // `word` has changed since
  const void* looked_at = nullptr;
  std::uint64_t way = 0;         // hash of its accesses
  std::uint64_t way_before = 0;  // `way` without the last look
  std::uint64_t last_value = 0;  // of the last look
  std::uint64_t writes = 0;      // counted for a member that is to die
};

// Runs the members step by step; one run after the other over the same stacks.
class Stage {
 public:
  explicit Stage(Scene& scene) : scene_(scene), members_(static_cast<std::size_t>(scene.members())) {}

  void begin();
  void move(std::size_t member);
  void give_up();
  [[nodiscard]] std::vector<std::size_t> ready() const;
  [[nodiscard]] bool over() const;
  [[nodiscard]] bool somebody_died() const;
  [[nodiscard]] std::uint64_t hash() const;

  // Only the running member calls these.
  Member& running() { return members_[running_]; }
  void pause();
  void wake(const void* word, State from);
  void before_write();

  std::string complaint;

 private:
  static void enter();

  Scene& scene_;
  const std::optional<Death> death_ = scene_.death();
  std::vector<Member> members_;
  std::size_t running_ = 0;
  ucontext_t chooser_{};
  bool giving_up_ = false;
};

Stage* stage = nullptr;  // the stage of the running member

void Stage::enter() {
  Stage& self = *stage;
  const std::size_t member = self.running_;
  try {
    self.scene_.run(static_cast<int>(member));
  } catch (const GivenUp&) {
  }
  if (self.members_[member].state != State::kDead) self.members_[member].state = State::kOver;
  swapcontext(&self.members_[member].context, &self.chooser_);
}

void Stage::begin() {
  scene_.reset();
  complaint.clear();
  for (Member& member : members_) {
    member.state = State::kReady;
    member.begun = member.changed = false;
    member.word = nullptr;
    member.way = member.way_before = member.last_value = member.writes = 0;
    getcontext(&member.context);
    member.context.uc_stack.ss_sp = member.stack.get();
    member.context.uc_stack.ss_size = kStackBytes;
    makecontext(&member.context, &Stage::enter, 0);
  }
}

void Stage::move(std::size_t member) {
  running_ = member;
  members_[member].begun = true;
  stage = this;
  swapcontext(&chooser_, &members_[member].context);
  stage = nullptr;
}

void Stage::give_up() {
  giving_up_ = true;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].begun && members_[i].state < State::kOver) move(i);
  }
  giving_up_ = false;
}

void Stage::pause() {
  swapcontext(&running().context, &chooser_);
  if (giving_up_) throw GivenUp{};
}

void Stage::before_write() {
  if (giving_up_ || !death_ || static_cast<std::size_t>(death_->member) != running_) return;
  Member& self = running();
  if (self.writes++ < death_->writes) return;
  self.state = State::kDead;
  throw GivenUp{};
}

void Stage::wake(const void* word, State from) {
  for (Member& member : members_) {
    if (member.word != word) continue;
    member.changed = true;
    if (member.state == from) member.state = State::kReady;
  }
}

std::vector<std::size_t> Stage::ready() const {
  std::vector<std::size_t> who;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].state == State::kReady) who.push_back(i);
  }
  return who;
}

bool Stage::over() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.state >= State::kOver; });
}

bool Stage::somebody_died() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.state == State::kDead; });
}

std::uint64_t Stage::hash() const {
  std::uint64_t hash = 1;
  for (const Member& member : members_) {
    hash = mix(hash, member.way);
    hash = mix(hash, member.last_value);
    hash = mix(hash, static_cast<std::uint64_t>(member.state));
    hash = mix(hash, member.writes);
  }
  for (const ConstByteSpan bytes : scene_.memory()) hash = mix(hash, bytes);
  return hash;
}

// A state on the current order: the members that may move, and the one that does.
struct Choice {
  std::uint64_t state;
  std::vector<std::size_t> ready;
  std::size_t taken = 0;
  double orders = 0;  // from here to an end, through the members taken before
};

class Search {
 public:
  explicit Search(Scene& scene) : stage_(scene) {}

  Report run() {
    do {
      ++report_.runs;
      const double orders = go();
      stage_.give_up();
      if (!report_.complaint.empty()) break;
      back(orders);
    } while (!way_.empty());
    report_.states = known_.size();
    return std::move(report_);
  }

 private:
  // Replays the current order and goes on to a state that is known. Returns the number of orders from there.
  double go() {
    stage_.begin();
    for (const Choice& choice : way_) stage_.move(choice.ready[choice.taken]);
    while (true) {
      if (!stage_.complaint.empty()) return complain(stage_.complaint);
      auto ready = stage_.ready();
      if (ready.empty()) return end();
      const std::uint64_t state = stage_.hash();
      if (const auto found = known_.find(state); found != known_.end()) return found->second;
      if (known_.size() > kMostStates) return complain("too many states");
      way_.push_back({state, std::move(ready)});
      stage_.move(way_.back().ready.front());
    }
  }

  double end() {
    if (stage_.over()) return 1;
    if (!stage_.somebody_died()) return complain("nobody moves any more");
    ++report_.left_waiting;
    return 1;
  }

  // Goes back to the last choice that has a member left, and takes that member.
  void back(double orders) {
    while (!way_.empty()) {
      Choice& last = way_.back();
      last.orders += orders;
      if (++last.taken < last.ready.size()) return;
      orders = last.orders;
      known_[last.state] = orders;
      way_.pop_back();
    }
    report_.orders = orders;
  }

  double complain(const std::string& what) {
    report_.complaint = what + "; members moved:";
    for (const Choice& choice : way_) report_.complaint += ' ' + std::to_string(choice.ready[choice.taken]);
    return 0;
  }

  Stage stage_;
  std::vector<Choice> way_;
  std::unordered_map<std::uint64_t, double> known_;
  Report report_;
};

}  // namespace

void looked(const void* word, std::uint64_t value, bool kept) {
  if (stage == nullptr) return;
  Member& self = stage->running();
  self.way_before = self.way;
  self.word = self.looked_at = word;
  self.changed = false;
  self.way = mix(mix(self.way, word), kept ? value : 1);
  self.last_value = value;
  stage->pause();
}

void before_write() {
  if (stage != nullptr) stage->before_write();
}

void wrote(const void* word, std::uint64_t seen) {
  if (stage == nullptr) return;
  Member& self = stage->running();
  self.way = mix(mix(mix(self.way, word), 2), seen);
  self.last_value = 0;
  stage->wake(word, State::kStalled);
  stage->pause();
}

void stall() {
  Member& self = stage->running();
  self.way = self.way_before;
  self.last_value = 0;
  if (!self.changed) self.state = State::kStalled;
  stage->pause();
}

std::uint64_t before_last_look() { return stage->running().way_before; }

void back_at(std::uint64_t place) {
  stage->running().way = place;
  stage->running().last_value = 0;
}

void past_last_word(std::uint64_t place) { back_at(mix(mix(place, stage->running().looked_at), 1)); }

void sleep_on(const void* word) {
  Member& self = stage->running();
  self.word = word;
  self.way = mix(mix(self.way, word), 3);
  self.last_value = 0;
  self.state = State::kAsleep;
  stage->pause();
}

void wake(const void* word) {
  Member& self = stage->running();
  self.way = mix(mix(self.way, word), 4);
  stage->wake(word, State::kAsleep);
  stage->pause();
}

void fail(const char* complaint) {
  stage->complaint = complaint;
  stage->pause();
}

Report explore(Scene& scene) { return Search(scene).run(); }

}  // namespace roundelay::explore
