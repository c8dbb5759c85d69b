#include "collective/shm/node_announcements.h"

#include <algorithm>
#include <utility>

namespace roundelay::collective::shm {
namespace {

int place_on(const lock::NodeTree& tree, int member) {
  return static_cast<int>(std::ranges::lower_bound(tree.own(), member) - tree.own().begin());
}

std::byte* board_in(std::byte* memory, const lock::NodeTree& tree) {
  return memory + Segment::control_bytes(static_cast<int>(tree.own().size()));
}

}  // namespace

NodeAnnouncements::NodeAnnouncements(const std::shared_ptr<std::byte>& memory, const lock::NodeTree& tree,
                                     const Group& group)
    : SegmentAnnouncements(memory, place_on(tree, group.index), static_cast<int>(tree.own().size())),
      members_(group.size()),
      places_(group.ranks.size(), -1),
      board_(*reinterpret_cast<Board*>(board_in(memory.get(), tree))),
      cells_(reinterpret_cast<Cells*>(board_in(memory.get(), tree) + sizeof(Board))),
      relay_(*this, tree, group.index) {
  for (const int member : tree.own()) places_[static_cast<std::size_t>(member)] = place_on(tree, member);
}

std::uint64_t NodeAnnouncements::least(std::uint64_t lock) const {
  const Word others = board_.others.load(std::memory_order_seq_cst);
  return lock::announced_under(lock, std::min(others, SegmentAnnouncements::least_word()));
}

// Either this member sees that the others have announced more, or who leads the node sees this word.
void NodeAnnouncements::announce(std::uint64_t word) {
  const Word before = own_word();
  if (!raise(word)) return;
  relay_.node_announced();
  if (board_.others.load(std::memory_order_seq_cst) <= before) return;
  const bool in_channel = told_by_messages() && sleeps(Sleeper::kDriver);
  ring();
  if (in_channel) relay_.wake();
}

lock::Cell NodeAnnouncements::shown(int member, std::size_t number) const {
  const int place = places_[static_cast<std::size_t>(member)];
  return place < 0 ? cell_of(member, number).read() : SegmentAnnouncements::cell(place, number);
}

void NodeAnnouncements::put(int member, std::size_t number, const lock::Cell& cell) {
  cell_of(member, number).write(cell);
}

void NodeAnnouncements::raise_others(std::uint64_t word) {
  const Word before = board_.others.load(std::memory_order_relaxed);
  if (word == before) return;
  board_.others.store(word, std::memory_order_seq_cst);
  if (SegmentAnnouncements::least_word() > before) ring();
}

std::shared_ptr<lock::Announcements> make_announcements(const std::shared_ptr<std::byte>& memory,
                                                        const lock::NodeTree& tree, const Group& group) {
  if (tree.edges().empty()) return std::make_shared<SegmentAnnouncements>(memory, group.index, group.size());
  return std::make_shared<NodeAnnouncements>(memory, tree, group);
}

}  // namespace roundelay::collective::shm
