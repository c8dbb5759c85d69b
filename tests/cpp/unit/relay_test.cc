// Announcements between nodes: a tree of relays brings each member the least word of all, with the cells that
// belong to it, by two messages an edge.
#include "lock/relay.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/cpp/announcing_nodes.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/effort.h"

namespace roundelay {
namespace {

using lock::announcement;
using lock::Announcements;
using lock::NodeTree;

constexpr std::uint64_t kLock = 1;
constexpr int kFanOut = 8;

// The members of a group, and the messages between them, in order between any two.
class Members {
 public:
  explicit Members(std::vector<int> of_members, int fan_out = kFanOut) : nodes(std::move(of_members)) {
    const AnnouncingNodes all(nodes, fan_out);
    Group group;
    for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) group.ranks.push_back(rank);
    for (group.index = 0; group.index < group.size(); ++group.index) {
      members.push_back(all.of(group));
      const int from = group.index;
      members.back()->relay()->connect([this, from](int to, wire::Announced message) {
        ++(message.word == 0 ? nudges : sent);
        ++sent_by[from];
        links[{from, to}].push_back(std::move(message));
      });
    }
    counts.resize(members.size());
  }

  // The member shows a cell and announces its next position.
  void announce(std::size_t member) {
    const std::uint64_t count = ++counts[member];
    members[member]->show(count % 2, cell_of(member, count));
    members[member]->announce(announcement(kLock, count));
  }
  static lock::Cell cell_of(std::size_t member, std::uint64_t count) {
    return {announcement(kLock, count), {member, count}};
  }
  [[nodiscard]] std::uint64_t true_least() const { return *std::ranges::min_element(counts); }

  void deliver(std::map<std::pair<int, int>, std::deque<wire::Announced>>::iterator link) {
    const auto [from, to] = link->first;
    const wire::Announced message = std::move(link->second.front());
    link->second.pop_front();
    if (link->second.empty()) links.erase(link);
    REQUIRE(members[static_cast<std::size_t>(to)]->relay()->take(from, message).ok());
  }
  void deliver_all() {
    while (!links.empty()) deliver(links.begin());
  }

  const std::vector<int> nodes;
  std::vector<std::shared_ptr<Announcements>> members;
  std::vector<std::uint64_t> counts;  // announced
  std::map<std::pair<int, int>, std::deque<wire::Announced>> links;
  int sent = 0, nudges = 0;
  std::map<int, int> sent_by;
};

std::vector<int> even(int nodes, int each) {
  std::vector<int> found;
  for (int member = 0; member < nodes * each; ++member) found.push_back(member / each);
  return found;
}

TEST_CASE("relay: the edges of all nodes make one tree", "[relay]") {
  const int nodes = GENERATE(2, 3, 8, 9, 10, 64, 73, 74);
  const int fan_out = GENERATE(1, 2, 8);
  std::size_t edges = 0;
  for (int member = 0; member < nodes; ++member) {
    const NodeTree tree(even(nodes, 1), member, fan_out);
    REQUIRE(tree.leader() == member);
    REQUIRE(tree.edges().size() <= static_cast<std::size_t>(fan_out) + 1);
    std::vector<int> seen(static_cast<std::size_t>(nodes));
    for (const lock::NodeEdge& edge : tree.edges()) {
      REQUIRE(edge.beyond[static_cast<std::size_t>(edge.leader)]);
      for (std::size_t other = 0; other < edge.beyond.size(); ++other)
        seen[other] += edge.beyond[other] ? 1 : 0;
      const NodeTree back(even(nodes, 1), edge.leader, fan_out);
      REQUIRE(std::ranges::count(back.edges(), member, &lock::NodeEdge::leader) == 1);
    }
    for (int other = 0; other < nodes; ++other)
      REQUIRE(seen[static_cast<std::size_t>(other)] == (other == member ? 0 : 1));
    edges += tree.edges().size();
  }
  CHECK(edges == 2 * (static_cast<std::size_t>(nodes) - 1));
}

TEST_CASE("relay: a position costs two messages an edge, and few at one rank", "[relay]") {
  const int nodes = GENERATE(2, 3, 4, 16, 64);
  const int each = GENERATE(1, 3);
  Members group(even(nodes, each));
  for (int round = 1; round <= 5; ++round) {
    group.sent = group.nudges = 0;
    group.sent_by.clear();
    for (std::size_t member = 0; member < group.members.size(); ++member) group.announce(member);
    group.deliver_all();
    CHECK(group.sent == 2 * (nodes - 1));
    CHECK(group.nudges == (each > 1 ? nodes : 0));
    for (const auto& [rank, sent] : group.sent_by) CHECK(sent <= kFanOut + 1);
    for (const auto& member : group.members)
      REQUIRE(member->least(kLock) == static_cast<std::uint64_t>(round));
  }
}

TEST_CASE("relay: in any order of events nobody sees too much, and in the end all see all", "[relay]") {
  for (std::uint64_t seed = 1; seed <= testing::seeds(300U); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const auto pick = [&](std::size_t below) { return random() % below; };
    std::vector<int> nodes{0, 1};
    for (std::size_t more = pick(8); more > 0; --more) nodes.push_back(static_cast<int>(pick(5)));
    Members group(nodes, 1 + static_cast<int>(pick(3)));
    const std::uint64_t last = 6;
    for (int event = 0; group.true_least() < last || !group.links.empty(); ++event) {
      REQUIRE(event < 100'000);
      const std::size_t member = pick(nodes.size());
      // As a submission of one name: the next one comes when the one before it has been entered.
      const bool may =
          group.counts[member] < last && group.members[member]->least(kLock) == group.counts[member];
      if (may && pick(2) == 0) {
        group.announce(member);
      } else if (!group.links.empty()) {
        group.deliver(std::next(group.links.begin(), static_cast<std::ptrdiff_t>(pick(group.links.size()))));
      }
      for (const auto& one : group.members) {
        const std::uint64_t seen = one->least(kLock);
        REQUIRE(seen <= group.true_least());
        for (std::size_t other = 0; seen > 0 && other < nodes.size(); ++other) {
          if (group.counts[other] > seen + 1) continue;
          REQUIRE(one->cell(static_cast<int>(other), seen % 2) == Members::cell_of(other, seen));
        }
      }
    }
    for (const auto& one : group.members) REQUIRE(one->least(kLock) == last);
  }
}

TEST_CASE("relay: who leads a node carries on its own what it has not been asked for", "[relay]") {
  Members group({0, 0, 1});
  for (std::size_t member = 0; member < 3; ++member) group.announce(member);
  CHECK(group.nudges == 1);  // from member 1, and it does not come
  group.members[0]->relay()->look();
  group.deliver(group.links.find({0, 2}));
  CHECK(group.members[2]->least(kLock) == 1);
}

TEST_CASE("relay: the last member on any node wakes the sleepers of all", "[relay]") {
  const std::size_t last = GENERATE(0U, 1U, 2U, 3U);
  Members group({0, 0, 1, 1});
  std::vector<std::uint32_t> seen;
  for (const auto& member : group.members) seen.push_back(member->arm(Announcements::Sleeper::kDriver));
  const auto rung = [&](std::size_t member) {
    return group.members[member]->doorbell(Announcements::Sleeper::kDriver).load() != seen[member];
  };
  for (std::size_t member = 0; member < 4; ++member) {
    if (member != last) group.announce(member);
  }
  group.deliver_all();
  for (std::size_t member = 0; member < 4; ++member) CHECK_FALSE(rung(member));
  group.announce(last);
  group.deliver_all();
  for (std::size_t member = 0; member < 4; ++member) CHECK(rung(member));
}

TEST_CASE("relay: a group on one node needs no messages", "[relay]") {
  const AnnouncingNodes all({7, 7, 7});
  Group group{0, {0, 1, 2}, 0};
  std::vector<std::shared_ptr<Announcements>> members;
  for (; group.index < group.size(); ++group.index) members.push_back(all.of(group));
  for (const auto& member : members) {
    CHECK(member->relay() == nullptr);
    CHECK_FALSE(member->told_by_messages());
    CHECK(member->least(kLock) == 0);
    member->announce(announcement(kLock, 1));
  }
  for (const auto& member : members) CHECK(member->least(kLock) == 1);
}

TEST_CASE("relay: a rank that breaks the protocol is an error", "[relay]") {
  Members group({0, 0, 1, 2}, 1);  // a chain of three nodes
  lock::Relay& first = *group.members[0]->relay();
  const std::uint64_t word = announcement(kLock, 2);
  CHECK(first.take(3, {{}, word, {}}).code() == StatusCode::kInternal);  // no neighbour
  CHECK(group.members[1]->relay()->take(2, {{}, word, {}}).code() == StatusCode::kInternal);
  CHECK(first.take(2, {{}, word, {{.member = 1}}}).code() == StatusCode::kInternal);
  CHECK(first.take(2, {{}, word, {{.member = 4}}}).code() == StatusCode::kInternal);
  CHECK(first.take(2, {{}, word, {{.member = -1}}}).code() == StatusCode::kInternal);
  CHECK(first.take(2, {{}, word, {{.member = 3, .number = lock::kCells}}}).code() == StatusCode::kInternal);
  CHECK(first.take(2, {{}, word, {{.member = 3}}}).ok());
  CHECK(first.take(2, {{}, announcement(kLock, 1), {}}).code() == StatusCode::kInternal);
}

}  // namespace
}  // namespace roundelay
