// Announcements in shared memory: the last member to announce a position wakes all that sleep, the others
// wake nobody.
#include <memory>
#include <vector>

#include "collective/shm/announcements.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/zeroed_pages.h"

namespace roundelay {
namespace {

using lock::announcement;
using lock::Announcements;
using Sleeper = Announcements::Sleeper;

std::vector<std::shared_ptr<Announcements>> members_of(int members) {
  const auto memory = segment_memory(members);
  std::vector<std::shared_ptr<Announcements>> all;
  for (int member = 0; member < members; ++member)
    all.push_back(std::make_shared<collective::shm::SegmentAnnouncements>(memory, member, members));
  return all;
}

// A sleeper that has armed: rung() tells whether it would wake.
class Armed {
 public:
  Armed(Announcements& member, Sleeper who) : member_(member), who_(who), seen_(member.arm(who)) {}
  [[nodiscard]] bool rung() const { return member_.doorbell(who_).load() != seen_; }

 private:
  Announcements& member_;
  const Sleeper who_;
  const std::uint32_t seen_;
};

TEST_CASE("announcements: the last member to announce a position wakes all sleepers", "[shm]") {
  const auto members = members_of(3);
  for (std::uint64_t count = 1; count < 5; ++count) {
    const std::size_t last = count % 3;
    std::vector<Armed> asleep;
    for (const auto& member : members) {
      asleep.emplace_back(*member, Sleeper::kBackground);
      asleep.emplace_back(*member, Sleeper::kDriver);
    }
    for (std::size_t member = 0; member < members.size(); ++member) {
      if (member != last) members[member]->announce(announcement(1, count));
    }
    for (const Armed& one : asleep) REQUIRE_FALSE(one.rung());
    members[last]->announce(announcement(1, count));
    for (const Armed& one : asleep) REQUIRE(one.rung());
    for (const auto& member : members) REQUIRE(member->least(1) == count);
  }
}

TEST_CASE("announcements: who catches up with a member that is ahead wakes it", "[shm]") {
  const auto members = members_of(2);
  members[0]->announce(announcement(1, 1));
  members[0]->announce(announcement(1, 2));
  const Armed ahead(*members[0], Sleeper::kBackground);
  members[1]->announce(announcement(1, 1));
  CHECK(ahead.rung());
}

TEST_CASE("announcements: nobody rings for a thread that does not sleep", "[shm]") {
  const auto members = members_of(2);
  const Armed asleep(*members[0], Sleeper::kDriver);
  const std::uint32_t awake = members[0]->doorbell(Sleeper::kBackground).load();
  members[0]->announce(announcement(1, 1));
  members[1]->announce(announcement(1, 1));
  CHECK(asleep.rung());
  CHECK(members[0]->doorbell(Sleeper::kBackground).load() == awake);
}

}  // namespace
}  // namespace roundelay
