// The nodes of an explored group: what each of them has heard of the others, and the messages that are under
// way. A leader looks at its node's words at any time after one has grown, and takes messages at any time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lock/announcements.h"
#include "lock/carrier.h"
#include "lock/node_tree.h"
#include "tests/cpp/catch.h"
#include "wire/messages.h"

namespace roundelay::submit {

// What members show on their own nodes.
struct Shown {
  std::function<std::uint64_t(int member)> word;
  std::function<lock::Cell(int member, std::size_t number)> cell;
};

class ExploredNodes {
 public:
  // `of_member`: the node of each, from 0 on without gaps. `word_first`: a wrong protocol, in which cells
  // travel behind the word that counts on them.
  ExploredNodes(const std::vector<int>& of_member, int fan_out, bool word_first)
      : of_member_(of_member), word_first_(word_first) {
    const std::vector<int> first = lock::NodeNumbers(of_member).first;
    for (const int leader : first) {
      const lock::NodeTree tree(of_member, leader, fan_out);
      nodes_.push_back({.tree = tree, .carrier = lock::Carrier(tree)});
    }
  }

  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] bool together(std::size_t one, std::size_t other) const {
    return of_member_[one] == of_member_[other];
  }
  // Returns the least word of all members elsewhere, as a member sees it.
  [[nodiscard]] std::uint64_t others(std::size_t member) const {
    return nodes_.size() > 1 ? node_of(member).others : UINT64_MAX;
  }
  // Returns the cell of a member elsewhere, as a member sees it.
  [[nodiscard]] lock::Cell cell(std::size_t member, std::size_t other, std::size_t number) const {
    const auto& cells = node_of(member).cells;
    const auto found = cells.find({static_cast<int>(other), number});
    return found == cells.end() ? lock::Cell{} : found->second;
  }
  // Asks the leader of a member's node to look.
  void ask(std::size_t member) { nodes_[static_cast<std::size_t>(of_member_[member])].asked = true; }

  // A node's leader looks. False: nobody has asked it.
  bool look(std::size_t number, const Shown& shown) {
    Node& node = nodes_[number];
    if (!std::exchange(node.asked, false)) return false;
    carry(node, shown);
    return true;
  }
  // Returns who has sent what a node's leader has still to take.
  [[nodiscard]] std::vector<int> senders(std::size_t number) const {
    std::vector<int> found;
    for (const auto& [from, messages] : nodes_[number].incoming) found.push_back(from);
    return found;
  }
  // A node's leader takes the next message of a sender.
  void take(std::size_t number, int from, const Shown& shown) {
    Node& node = nodes_[number];
    std::deque<wire::Announced>& messages = node.incoming.at(from);
    const wire::Announced message = std::move(messages.front());
    messages.pop_front();
    if (messages.empty()) node.incoming.erase(from);
    Board board(node, shown);
    REQUIRE(node.carrier.take(board, from, message).ok());
    carry(node, shown);
  }

  // Writes what can differ between two states, but for the carriers.
  template <typename Put>
  void write(const Put& put) const {
    for (const Node& node : nodes_) {
      put(node.others);
      put(node.asked ? 1 : 0);
      for (const auto& [place, cell] : node.cells) put(cell.submission);
      for (const auto& [from, messages] : node.incoming) {
        put(static_cast<std::uint64_t>(from));
        for (const wire::Announced& message : messages) {
          put(message.word);
          for (const wire::ShownCell& cell : message.cells) put(cell.submission);
          put(message.cells.size());
        }
      }
    }
  }
  [[nodiscard]] std::vector<lock::Carrier> carriers() const {
    std::vector<lock::Carrier> all;
    for (const Node& node : nodes_) all.push_back(node.carrier);
    return all;
  }

 private:
  struct Node {
    lock::NodeTree tree;
    lock::Carrier carrier;
    std::uint64_t others = 0;
    std::map<std::pair<int, std::size_t>, lock::Cell> cells{};  // by member and number
    bool asked = false;
    std::map<int, std::deque<wire::Announced>> incoming{};  // by the leader that sends
  };
  class Board final : public lock::NodeBoard {
   public:
    Board(Node& node, const Shown& shown) : node_(node), shown_(shown) {}
    [[nodiscard]] std::uint64_t least_word() const override {
      std::uint64_t least = UINT64_MAX;
      for (const int member : node_.tree.own()) least = std::min(least, shown_.word(member));
      return least;
    }
    [[nodiscard]] lock::Cell shown(int member, std::size_t number) const override {
      return shown_.cell(member, number);
    }
    void put(int member, std::size_t number, const lock::Cell& cell) override {
      node_.cells[{member, number}] = cell;
    }
    void raise_others(std::uint64_t word) override {
      REQUIRE(word >= node_.others);
      node_.others = word;
    }

   private:
    Node& node_;
    const Shown& shown_;
  };

  [[nodiscard]] const Node& node_of(std::size_t member) const {
    return nodes_[static_cast<std::size_t>(of_member_[member])];
  }
  void carry(Node& node, const Shown& shown) {
    const Board board(node, shown);
    const int self = node.tree.leader();
    node.carrier.carry(board, [&](int to, wire::Announced message) {
      auto& messages =
          nodes_[static_cast<std::size_t>(of_member_[static_cast<std::size_t>(to)])].incoming[self];
      if (word_first_) messages.push_back({{}, message.word, {}});
      messages.push_back(std::move(message));
    });
  }

  std::vector<int> of_member_;
  bool word_first_;
  std::vector<Node> nodes_;
};

}  // namespace roundelay::submit
