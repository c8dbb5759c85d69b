#include "lock/carrier.h"

#include <algorithm>
#include <utility>

namespace roundelay::lock {

Carrier::Carrier(const NodeTree& tree) : own_(tree.own()), collected_(own_.size()) {
  for (const NodeEdge& to : tree.edges()) edges_.push_back({.to = to});
}

Status Carrier::take(NodeBoard& board, int from, const wire::Announced& message) {
  const auto edge = std::ranges::find(edges_, from, [](const Edge& one) { return one.to.leader; });
  if (edge == edges_.end()) return Status::internal("it announces to a rank that is no neighbour");
  for (const wire::ShownCell& cell : message.cells) {
    const auto member = static_cast<std::size_t>(cell.member);
    if (cell.member < 0 || member >= edge->to.beyond.size() || !edge->to.beyond[member] ||
        cell.number >= kCells)
      return Status::internal("it announces for a member that is elsewhere");
    board.put(cell.member, cell.number, {cell.submission, cell.words});
    for (Edge& other : edges_) {
      if (&other != &*edge) other.unsent.push_back(cell);
    }
  }
  if (message.word < edge->received) return Status::internal("its announcements go back");
  edge->received = message.word;
  const auto least = std::ranges::min_element(edges_, {}, &Edge::received);
  board.raise_others(least->received);
  return {};
}

// Reads the words first: then it has all cells that belong to them.
void Carrier::carry(const NodeBoard& board, const Send& send) {
  const std::uint64_t own = board.least_word();
  collect_own_cells(board);
  for (Edge& edge : edges_) {
    std::uint64_t word = own;
    for (const Edge& other : edges_) {
      if (&other != &edge) word = std::min(word, other.received);
    }
    if (word <= edge.sent) continue;
    edge.sent = word;
    send(edge.to.leader, {{}, word, std::exchange(edge.unsent, {})});
  }
}

// Agreements of a period are numbered from 0, and each uses two cells. A member shows one of a later
// agreement first only before it has announced the earlier one.
void Carrier::collect_own_cells(const NodeBoard& board) {
  for (std::size_t place = 0; place < own_.size(); ++place) {
    const int member = own_[place];
    std::vector<std::uint64_t>& collected = collected_[place];
    for (std::size_t number = 0; number < kCells; ++number) {
      const Cell cell = board.shown(member, number);
      if (collected.size() <= number) collected.push_back(0);
      if (cell.submission > collected[number]) {
        collected[number] = cell.submission;
        for (Edge& edge : edges_)
          edge.unsent.push_back({member, static_cast<std::uint32_t>(number), cell.submission, cell.words});
      }
      const bool second = number % 2 == 1;
      if (second && collected[number] == 0 && collected[number - 1] == 0) break;
    }
  }
}

}  // namespace roundelay::lock
