// Explores every interleaving of small cases of the schedule lock, breadth first. Two or three ranks submit
// by one script, and one of them has a surprise anywhere, with the real lock and the real keeper. Ranks
// submit, enter, freeze and answer in any order. Messages between two ranks stay in order and may be
// arbitrarily late.
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/announcements.h"
#include "negotiate/schedule_keeper.h"
#include "submit/schedule_lock.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/negotiate_requests.h"

namespace roundelay::submit {
namespace {

constexpr TimePoint kNow{std::chrono::hours(1)};

struct Order {
  bool freeze = false;
  std::optional<std::uint64_t> unlock;
  friend bool operator==(const Order&, const Order&) = default;
};

struct Member {
  ScheduleLock lock;
  std::uint64_t word = 0;     // the word that the others see
  std::size_t submitted = 0;  // uses of its script
  std::uint64_t entered = 0;  // positions, over all locks
  std::size_t queued = 0;     // uses that wait for the end of the lock
  bool answered = false;
  std::deque<Order> orders;           // on the way to this member
  std::deque<std::uint64_t> answers;  // on the way to the keeper
};

struct World {
  std::vector<Member> members;
  negotiate::ScheduleKeeper keeper;
  std::optional<std::uint64_t> end;  // as the order says
};

using Uses = std::vector<wire::Request>;

struct Case {
  std::vector<Uses> scripts;  // by member
  ScheduleLock::Operations operations;
  bool impatient = false;  // a member may decide at any time that it has waited for too long
};

class Explorer {
 public:
  explicit Explorer(const Case& given) : case_(given) {
    World start;
    start.members.resize(case_.scripts.size());
    start.keeper.begin(case_.scripts.size());
    for (Member& member : start.members) member.lock.begin(1, case_.operations);
    visit(std::move(start));
  }

  void run() {
    while (!open_.empty()) {
      const World world = std::move(open_.front());
      open_.pop_front();
      const std::size_t before = moves_;
      for (std::size_t m = 0; m < world.members.size(); ++m) {
        submit(world, m);
        enter(world, m);
        lose_patience(world, m);
        answer(world, m);
        apply(world, m);
        hear(world, m);
      }
      order(world);
      if (moves_ == before) check_end(world);
    }
  }

  std::size_t states() const { return seen_.size(); }
  std::size_t ends() const { return ends_; }
  std::size_t ends_unlocked() const { return ends_unlocked_; }

 private:
  void visit(World world) {
    ++moves_;
    check(world);
    if (seen_.insert(key(world)).second) open_.push_back(std::move(world));
  }

  void submit(const World& before, std::size_t m) {
    const Uses& script = case_.scripts[m];
    const Member& old = before.members[m];
    if (old.submitted == script.size() || old.lock.filed(script[old.submitted].name))
      return;  // still in flight
    World world = before;
    Member& member = world.members[m];
    if (!member.lock.file(script[member.submitted])) ++member.queued;
    ++member.submitted;
    if (member.lock.active()) member.word = announcement(1, member.lock.announced());
    visit(std::move(world));
  }

  std::uint64_t least(const World& world) const {
    std::uint64_t least = UINT64_MAX;
    for (const Member& member : world.members) least = std::min(least, announced_under(1, member.word));
    return least;
  }

  void enter(const World& before, std::size_t m) {
    if (!before.members[m].lock.may_enter(least(before))) return;
    World world = before;
    static_cast<void>(world.members[m].lock.enter(least(before)));
    ++world.members[m].entered;
    visit(std::move(world));
  }

  void lose_patience(const World& before, std::size_t m) {
    const ScheduleLock& lock = before.members[m].lock;
    const bool waits = lock.entered() < lock.announced() || lock.any_blocked();
    if (!case_.impatient || !lock.open() || !waits) return;
    World world = before;
    world.members[m].lock.freeze();
    visit(std::move(world));
  }

  void answer(const World& before, std::size_t m) {
    const Member& old = before.members[m];
    if (!old.lock.active() || old.lock.open() || old.answered) return;
    World world = before;
    world.members[m].answered = true;
    world.members[m].answers.push_back(old.lock.announced());
    visit(std::move(world));
  }

  void hear(const World& before, std::size_t m) {
    if (before.members[m].answers.empty()) return;
    World world = before;
    REQUIRE(world.keeper.on_frozen(m, world.members[m].answers.front(), kNow));
    world.members[m].answers.pop_front();
    visit(std::move(world));
  }

  void order(const World& before) {
    World world = before;
    Order order;
    order.freeze = world.keeper.take_freeze();
    order.unlock = world.keeper.take_unlock();
    if (order == Order{}) return;
    if (order.unlock) world.end = order.unlock;
    for (Member& member : world.members) member.orders.push_back(order);
    visit(std::move(world));
  }

  void apply(const World& before, std::size_t m) {
    if (before.members[m].orders.empty()) return;
    World world = before;
    Member& member = world.members[m];
    const Order order = member.orders.front();
    member.orders.pop_front();
    if (order.freeze) member.lock.freeze();
    if (order.unlock) {
      while (member.lock.enter(*order.unlock)) ++member.entered;
      member.queued += member.lock.end().size();
    }
    visit(std::move(world));
  }

  void check(const World& world) const {
    for (const Member& member : world.members) {
      // No member enters an operation that some member has not announced, or one after the end.
      REQUIRE(member.entered <= least(world));
      if (world.end) REQUIRE(member.entered <= *world.end);
      if (world.end && !member.lock.active()) REQUIRE(member.entered == *world.end);
    }
  }

  // Nothing can move: everything must be submitted and accounted for.
  void check_end(const World& world) {
    ++ends_;
    ends_unlocked_ += world.end ? 1 : 0;
    for (std::size_t m = 0; m < world.members.size(); ++m) {
      const Member& member = world.members[m];
      REQUIRE(member.orders.empty());
      REQUIRE(member.lock.active() == !world.end);
      REQUIRE(member.entered == world.members.front().entered);
      REQUIRE(member.submitted == case_.scripts[m].size());
      std::size_t done = member.queued;
      for (std::uint64_t p = 0; p < member.entered; ++p)
        done += case_.operations[p % case_.operations.size()].size();
      REQUIRE(done == member.submitted);
    }
  }

  static std::string key(const World& world) {
    std::string key;
    const auto put = [&](std::uint64_t value) { key += std::to_string(value) + ","; };
    for (const Member& member : world.members) {
      for (const std::uint64_t value :
           {member.word, member.entered, std::uint64_t{member.submitted}, std::uint64_t{member.queued},
            std::uint64_t{member.answered}, member.lock.announced(), member.lock.entered(),
            std::uint64_t{member.lock.active()}, std::uint64_t{member.lock.open()}})
        put(value);
      for (const Order& order : member.orders) put(order.freeze ? 1000 : 2000 + order.unlock.value_or(0));
      key += "|";
      for (const std::uint64_t answer : member.answers) put(answer);
      key += ";";
    }
    put(world.end.value_or(999));
    for (const int silent : world.keeper.silent()) put(static_cast<std::uint64_t>(silent));
    negotiate::ScheduleKeeper next = world.keeper;
    put(next.take_freeze() ? 1 : 0);
    put(next.take_unlock().value_or(998));
    return key;
  }

  const Case& case_;
  std::set<std::string> seen_;
  std::deque<World> open_;
  std::size_t moves_ = 0;
  std::size_t ends_ = 0;
  std::size_t ends_unlocked_ = 0;
};

Uses uses(const std::vector<std::string>& names) {
  Uses made;
  for (const std::string& name : names) made.push_back(negotiate::request_of(name));
  return made;
}

// Two operations per period: three periods for two members, one and a half for three (200 times the states).
Case usual(std::size_t members) {
  Uses script = uses({"a", "b", "a", "b", "a", "b"});
  if (members > 2) script.resize(3);
  return {std::vector(members, script), {uses({"a"}), uses({"b"})}};
}

TEST_CASE("steps without a surprise all run under the lock, in every interleaving",
          "[schedule][interleavings]") {
  const std::size_t members = GENERATE(std::size_t{2}, std::size_t{3});
  const Case given = usual(members);
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.ends() == 1);
  CHECK(explorer.ends_unlocked() == 0);
}

TEST_CASE("a surprise anywhere ends the lock at one place for all, in every interleaving",
          "[schedule][interleavings]") {
  const std::size_t members = GENERATE(std::size_t{2}, std::size_t{3});
  const std::size_t at = GENERATE(range(std::size_t{0}, std::size_t{7}));
  const bool everyone = GENERATE(true, false);
  Case given = usual(members);
  if (at > given.scripts.front().size()) return;
  for (std::size_t m = 0; m < (everyone ? members : 1); ++m)
    given.scripts[m].insert(given.scripts[m].begin() + static_cast<std::ptrdiff_t>(at),
                            negotiate::request_of("surprise"));
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.states() > 50);
  CHECK(explorer.ends_unlocked() == explorer.ends());
}

// The lock's bucket "a" takes a technique.
Case with_technique() {
  Case given = usual(2);
  given.operations[0][0].technique = "cyclic:parts=4";
  for (Uses& script : given.scripts) {
    for (std::size_t use = 0; use < script.size(); use += 2) script[use].technique = "cyclic:parts=4";
  }
  return given;
}

TEST_CASE("buckets that keep their techniques all run under the lock, in every interleaving",
          "[schedule][interleavings]") {
  const Case given = with_technique();
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.ends() == 1);
  CHECK(explorer.ends_unlocked() == 0);
}

TEST_CASE("another technique, a flush or a join ends the lock at one place for all, in every interleaving",
          "[schedule][interleavings]") {
  const std::size_t at = GENERATE(std::size_t{0}, std::size_t{2}, std::size_t{4});
  Case given = with_technique();
  const auto take = [&](std::size_t m, const char* technique) { given.scripts[m][at].technique = technique; };
  SECTION("all flush") {
    for (const std::size_t m : {std::size_t{0}, std::size_t{1}}) take(m, "cyclic:parts=4 flush");
  }
  SECTION("one is dense") { take(0, ""); }
  SECTION("both have another one, not the same") {
    take(0, "cyclic:parts=8");
    take(1, "negate");
  }
  SECTION("one joins") {
    given.scripts[1].resize(at + 1);
    given.scripts[1].back() = negotiate::request_of("join", {});
    given.scripts[1].back().operation = Operation::kJoin;
  }
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.states() > 50);
  CHECK(explorer.ends_unlocked() == explorer.ends());
}

TEST_CASE("whoever loses patience, whenever: what is announced by all still runs everywhere",
          "[schedule][interleavings]") {
  Case given = usual(2);
  given.impatient = true;
  SECTION("all come") {}
  SECTION("one stays away") { given.scripts[1].resize(3); }
  SECTION("one has another order") { std::swap(given.scripts[1][2], given.scripts[1][3]); }
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.ends_unlocked() > 0);
}

TEST_CASE("several members and repeated names in an operation, in every interleaving",
          "[schedule][interleavings]") {
  Case given;
  given.operations = {uses({"a", "b"}), uses({"a"})};
  given.scripts = {uses({"a", "b", "a", "b", "a", "surprise"}), uses({"b", "a", "a", "a", "b", "surprise"})};
  Explorer explorer(given);
  explorer.run();
  CHECK(explorer.ends_unlocked() == explorer.ends());
}

}  // namespace
}  // namespace roundelay::submit
