// The announcements of a group on several nodes, as the members on one node see them: their own words and
// cells as in a segment, and a board for those of the members elsewhere.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collective/shm/announcements.h"
#include "lock/relay.h"

namespace roundelay::collective::shm {

class NodeAnnouncements final : public SegmentAnnouncements, private lock::NodeBoard {
 public:
  // Returns the size of the memory that the members of a node share, of a group of `members`.
  static std::size_t bytes(int on_node, int members) {
    return Segment::control_bytes(on_node) + sizeof(Board) +
           static_cast<std::size_t>(members) * sizeof(Cells);
  }

  // `memory`: bytes() bytes, page-aligned, zero before the first member of the node came. `tree` has the
  // nodes of the group, and `group` this member's index in it.
  NodeAnnouncements(const std::shared_ptr<std::byte>& memory, const lock::NodeTree& tree, const Group& group);

  [[nodiscard]] int members() const override { return members_; }
  [[nodiscard]] std::uint64_t least(std::uint64_t lock) const override;
  void announce(std::uint64_t word) override;
  [[nodiscard]] lock::Cell cell(int member, std::size_t number) const override {
    return shown(member, number);
  }
  [[nodiscard]] lock::Relay* relay() override { return &relay_; }
  [[nodiscard]] bool told_by_messages() const override { return relay_.leads(); }

 private:
  // Only the process that leads the node writes here.
  struct alignas(128) Board {
    SharedWord<Word> others{0};  // the least word of all members elsewhere
  };

  [[nodiscard]] std::uint64_t least_word() const override { return SegmentAnnouncements::least_word(); }
  [[nodiscard]] lock::Cell shown(int member, std::size_t number) const override;
  void put(int member, std::size_t number, const lock::Cell& cell) override;
  void raise_others(std::uint64_t word) override;
  [[nodiscard]] SharedCell& cell_of(int member, std::size_t number) const {
    return cells_[static_cast<std::size_t>(member)].all[number];
  }

  const int members_;
  std::vector<int> places_;  // of the members on this node, by member; -1: elsewhere
  Board& board_;
  Cells* const cells_;
  lock::Relay relay_;
};

// Makes one member's access, of a group whose members on this node share `memory`, as NodeAnnouncements wants
// it. If all members are on one node, nothing travels.
std::shared_ptr<lock::Announcements> make_announcements(const std::shared_ptr<std::byte>& memory,
                                                        const lock::NodeTree& tree, const Group& group);

}  // namespace roundelay::collective::shm
