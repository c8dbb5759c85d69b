// Explores every interleaving of small cases of the schedule lock, breadth first. Two or three ranks submit
// by one script, with the real lock, the real keeper and, between nodes, the real carriers. Ranks submit,
// show cells, announce, enter, freeze and answer in any order. Messages between two ranks stay in order and
// may be arbitrarily late.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lock/announcements.h"
#include "lock/schedule_keeper.h"
#include "lock/schedule_lock.h"
#include "tests/cpp/agreement_reference.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/schedule_nodes.h"

namespace roundelay::submit {

using Submissions = std::vector<wire::Submission>;

struct Case {
  std::vector<Submissions> scripts;  // by member
  lock::ScheduleLock::Operations operations;
  bool impatient = false;    // a member may decide at any time that it has waited for too long
  std::vector<int> nodes{};  // by member; empty: all are on one
  int fan_out = 1;
  // Protocols that are wrong.
  bool word_first = false;    // a member announces an agreement before it shows the cell
  bool one_cell = false;      // an agreement has one cell
  bool cells_behind = false;  // between nodes a cell comes after the word that counts on it
  bool early_end = false;     // a member ends the lock before it sees that all have announced the positions
};

class Explorer {
 public:
  // `given` outlives the explorer.
  explicit Explorer(const Case& given) : case_(given) {
    World start{.nodes = {given.nodes.empty() ? std::vector<int>(given.scripts.size()) : given.nodes,
                          given.fan_out, given.cells_behind}};
    start.members.resize(case_.scripts.size());
    start.keeper.begin(case_.scripts.size());
    for (Member& member : start.members) member.lock.begin(1, case_.operations);
    for (std::size_t m = 0; m < case_.scripts.size(); ++m) ranks_.push_back(static_cast<int>(m));
    visit(std::move(start));
  }

  void run() {
    while (!open_.empty()) {
      const World world = std::move(open_.front());
      open_.pop_front();
      const std::size_t before = moves_;
      for (std::size_t m = 0; m < world.members.size(); ++m) {
        hear(world, m);
        show(world, m);
        announce(world, m);
        if (world.members[m].writes()) continue;  // it holds the lock of its table
        submit(world, m);
        enter(world, m);
        lose_patience(world, m);
        answer(world, m);
        apply(world, m);
      }
      for (std::size_t node = 0; node < world.nodes.size(); ++node) carry(world, node);
      order(world);
      if (moves_ == before) check_end(world);
    }
  }

  std::size_t states() const { return states_; }
  std::size_t ends() const { return ends_; }
  std::size_t ends_unlocked() const { return ends_unlocked_; }
  // Returns how often a member got a wrong result of an agreement, or none.
  std::size_t wrong_results() const { return wrong_results_; }

 private:
  using Carriers = std::vector<lock::Carrier>;
  struct Order {
    bool freeze = false;
    std::optional<std::uint64_t> unlock;
    friend bool operator==(const Order&, const Order&) = default;
  };
  struct Member {
    lock::ScheduleLock lock;
    std::uint64_t word = 0;                   // the word that the others see
    std::map<std::size_t, lock::Cell> cells;  // the cells that the others see
    // What it still has to write of its last submission.
    std::optional<std::pair<std::size_t, lock::Cell>> cell_to_show;
    std::optional<std::uint64_t> word_to_announce;
    std::size_t submitted = 0;  // submissions of its script
    std::uint64_t entered = 0;  // positions, over all locks
    std::size_t queued = 0;     // submissions that wait for the end of the lock
    bool answered = false;
    std::deque<Order> orders;           // on the way to this member
    std::deque<std::uint64_t> answers;  // on the way to the keeper

    [[nodiscard]] bool writes() const { return cell_to_show || word_to_announce; }
  };
  struct World {
    std::vector<Member> members{};
    ExploredNodes nodes;
    lock::ScheduleKeeper keeper{};
    std::optional<std::uint64_t> end{};  // as the order says
  };

  void visit(World world) {
    ++moves_;
    check(world);
    auto& seen = seen_[key(world)];
    const Carriers carriers = world.nodes.carriers();
    if (std::ranges::find(seen, carriers) != seen.end()) return;
    seen.push_back(carriers);
    ++states_;
    open_.push_back(std::move(world));
  }

  void submit(const World& before, std::size_t m) {
    const Submissions& script = case_.scripts[m];
    const Member& old = before.members[m];
    if (old.submitted == script.size() || old.lock.filed(script[old.submitted].request.name))
      return;  // still in flight
    World world = before;
    Member& member = world.members[m];
    const auto& [request, values] = script[member.submitted++];
    const bool filed = member.lock.file(request, values);
    if (!filed) ++member.queued;
    if (member.lock.active()) {
      const std::uint64_t word = lock::announcement(1, member.lock.announced());
      if (filed && request.operation == Operation::kAgreement) {
        member.word_to_announce = word;
      } else {
        raise(world, m, word);
      }
    }
    if (member.word_to_announce) {
      const lock::LockedAgreement& agreement = *member.lock.agreement(request.name);
      member.cell_to_show.emplace(cell_number(agreement), agreement.cell());
    }
    visit(std::move(world));
  }

  void show(const World& before, std::size_t m) {
    const Member& old = before.members[m];
    if (!old.cell_to_show || (case_.word_first && old.word_to_announce)) return;
    World world = before;
    Member& member = world.members[m];
    member.cells[member.cell_to_show->first] = member.cell_to_show->second;
    member.cell_to_show.reset();
    visit(std::move(world));
  }

  void announce(const World& before, std::size_t m) {
    const Member& old = before.members[m];
    if (!old.word_to_announce || (!case_.word_first && old.cell_to_show)) return;
    World world = before;
    raise(world, m, *std::exchange(world.members[m].word_to_announce, std::nullopt));
    visit(std::move(world));
  }

  // Raises a member's word. The leader looks if the node's least word has grown.
  void raise(World& world, std::size_t m, std::uint64_t word) {
    const std::uint64_t before = least_of_node(world, m);
    world.members[m].word = word;
    if (least_of_node(world, m) > before) world.nodes.ask(m);
  }

  static std::uint64_t least_of_node(const World& world, std::size_t m) {
    std::uint64_t least = UINT64_MAX;
    for (std::size_t other = 0; other < world.members.size(); ++other) {
      if (world.nodes.together(m, other)) least = std::min(least, world.members[other].word);
    }
    return least;
  }

  // Returns how many positions all members have announced, as a member sees it.
  static std::uint64_t least(const World& world, std::size_t m) {
    return lock::announced_under(1, std::min(least_of_node(world, m), world.nodes.others(m)));
  }

  static std::uint64_t true_least(const World& world) {
    std::uint64_t least = UINT64_MAX;
    for (const Member& member : world.members) least = std::min(least, lock::announced_under(1, member.word));
    return least;
  }

  void carry(const World& before, std::size_t node) {
    const Shown shown{[&](int member) { return before.members[static_cast<std::size_t>(member)].word; },
                      [&](int member, std::size_t number) {
                        return cell_on_node(before.members[static_cast<std::size_t>(member)], number);
                      }};
    if (World world = before; world.nodes.look(node, shown)) visit(std::move(world));
    for (const int from : before.nodes.senders(node)) {
      World world = before;
      world.nodes.take(node, from, shown);
      visit(std::move(world));
    }
  }

  static lock::Cell cell_on_node(const Member& member, std::size_t number) {
    const auto found = member.cells.find(number);
    return found == member.cells.end() ? lock::Cell{} : found->second;
  }

  std::size_t cell_number(const lock::LockedAgreement& agreement) const {
    return case_.one_cell ? agreement.cell_number() & ~std::size_t{1} : agreement.cell_number();
  }

  // Enters the next position before `until`. False: there is none. Counts results that are wrong.
  bool enter(World& world, std::size_t m, std::uint64_t until) {
    Member& member = world.members[m];
    const auto names = member.lock.enter(until);
    if (!names) return false;
    const std::uint64_t position = member.entered++;
    lock::LockedAgreement* const agreement = member.lock.agreement(names->front());
    if (agreement == nullptr) return true;
    std::vector<lock::Cell> cells;
    const std::size_t number = cell_number(*agreement);
    for (std::size_t other = 0; other < world.members.size(); ++other) {
      cells.push_back(world.nodes.together(m, other) ? cell_on_node(world.members[other], number)
                                                     : world.nodes.cell(m, other, number));
    }
    const Result<Agreed> agreed = agreement->enter(cells, ranks_);
    if (!agreed.ok() || !(*agreed == expected(names->front(), position))) ++wrong_results_;
    return true;
  }

  // Returns what the members have to agree on at a position.
  Agreed expected(const std::string& name, std::uint64_t position) const {
    std::size_t submission = 0;
    for (std::uint64_t p = 0; p < position; ++p)
      submission += case_.operations[p % case_.operations.size()].front().request.name == name ? 1U : 0U;
    testing::ValuesByRank values;
    const wire::Request* request = nullptr;
    for (std::size_t m = 0; m < case_.scripts.size(); ++m) {
      std::size_t left = submission;
      const auto of_name = [&](const wire::Submission& one) {
        return one.request.name == name && left-- == 0;
      };
      const auto found = std::find_if(case_.scripts[m].begin(), case_.scripts[m].end(), of_name);
      values[static_cast<int>(m)] = found->values;
      request = &found->request;
    }
    return testing::reference_of(request->fields, request->root, values);
  }

  void enter(const World& before, std::size_t m) {
    if (!before.members[m].lock.may_enter(least(before, m))) return;
    World world = before;
    enter(world, m, least(before, m));
    visit(std::move(world));
  }

  void lose_patience(const World& before, std::size_t m) {
    const lock::ScheduleLock& lock = before.members[m].lock;
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
    constexpr TimePoint kNow{std::chrono::hours(1)};
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
    const auto& unlock = before.members[m].orders.front().unlock;
    if (unlock && least(before, m) < *unlock && !case_.early_end) return;
    World world = before;
    Member& member = world.members[m];
    const Order order = member.orders.front();
    member.orders.pop_front();
    if (order.freeze) member.lock.freeze();
    if (order.unlock) {
      while (enter(world, m, *order.unlock)) {
      }
      const Submissions waiting = member.lock.end();
      for (const wire::Submission& submission : waiting)
        REQUIRE(submission == last_submission(m, member.submitted, submission.request.name));
      member.queued += waiting.size();
    }
    visit(std::move(world));
  }

  // Returns the last submission of a name among the first of a member's script that the lock has taken.
  const wire::Submission& last_submission(std::size_t m, std::size_t submitted,
                                          const std::string& name) const {
    const Submissions& script = case_.scripts[m];
    std::size_t last = submitted - 1;
    while (script[last].request.name != name) --last;
    return script[last];
  }

  void check(const World& world) const {
    for (const Member& member : world.members) {
      // No member enters an operation that some member has not announced, or one after the end.
      REQUIRE(member.entered <= true_least(world));
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
            std::uint64_t{member.lock.active()}, std::uint64_t{member.lock.open()},
            std::uint64_t{member.cell_to_show.has_value()}, member.word_to_announce.value_or(0)})
        put(value);
      for (const auto& [number, cell] : member.cells) put(cell.submission);
      for (const Order& order : member.orders) put(order.freeze ? 1000 : 2000 + order.unlock.value_or(0));
      key += "|";
      for (const std::uint64_t answer : member.answers) put(answer);
      key += ";";
    }
    world.nodes.write(put);
    put(world.end.value_or(999));
    for (const int silent : world.keeper.silent()) put(static_cast<std::uint64_t>(silent));
    lock::ScheduleKeeper next = world.keeper;
    put(next.take_freeze() ? 1 : 0);
    put(next.take_unlock().value_or(998));
    return key;
  }

  const Case& case_;
  std::vector<int> ranks_;
  std::map<std::string, std::vector<Carriers>> seen_;
  std::size_t states_ = 0;
  std::deque<World> open_;
  std::size_t moves_ = 0;
  std::size_t ends_ = 0;
  std::size_t ends_unlocked_ = 0;
  std::size_t wrong_results_ = 0;
};

}  // namespace roundelay::submit
