#include "model/movement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

#include "model/collectives.h"

namespace roundelay::model {
namespace {

constexpr double kLeastShare = 32 << 10;          // of a broadcast that is shared out (route.cc)
constexpr double kPieceBytes = 512 << 10;         // of one rank's part in a round (move_run.cc, sum_run.cc)
constexpr double kRootedPieceBytes = 1024 << 10;  // of what has one root
constexpr double kAtOnce = 8;                     // partners to which a rank sends at once

constexpr auto kMovements =
    std::to_array<std::string_view>({"allgather", "reducescatter", "broadcast", "reduce"});

bool adds(Movement movement) { return movement == Movement::kReducescatter || movement == Movement::kReduce; }
bool is_rooted(Movement movement) {
  return movement == Movement::kBroadcast || movement == Movement::kReduce;
}

// Returns the largest part that a part of the level has of the group that the level joins.
double largest_part(const Cluster& cluster, std::size_t level) {
  const std::vector<int> parts = part_sizes(cluster, level), groups = part_sizes(cluster, level + 1);
  const std::size_t joined = parts.size() / groups.size();
  double most = 0;
  for (std::size_t part = 0; part < parts.size(); ++part)
    most = std::max(most, static_cast<double>(parts[part]) / groups[part / joined]);
  return most;
}

// The bytes of a rank whose part sends the others what its ranks have.
Stage between_all(const Cluster& cluster, std::size_t level, double bytes) {
  const double others = cluster.levels[level].parts - 1;
  const double sent = others * largest_part(cluster, level) * bytes;
  return {.level = level, .messages = 1, .bytes = sent / ranks_in_part(cluster, level)};
}

// What the root sends to the other parts, and what these then bring each other.
std::vector<Stage> from_root(const Cluster& cluster, std::size_t level, double bytes) {
  const double others = cluster.levels[level].parts - 1;
  const double shares = std::clamp(std::floor(std::min(bytes, kRootedPieceBytes) / kLeastShare), 1.0, others);
  Stage root{.level = level, .messages = 1, .bytes = bytes, .senders = 1, .from_one = true};
  if (shares < 2) {
    root.bytes = others * bytes;
    return {root};
  }
  const double brought = (others - 1) / shares * bytes / ranks_in_part(cluster, level);
  return {root, {.level = level, .messages = 1, .bytes = brought}};
}

// The stages of an allgather or a broadcast, from the outside in.
std::vector<Stage> inwards(const Cluster& cluster, bool rooted, double bytes) {
  std::vector<Stage> stages;
  for (std::size_t level = cluster.levels.size(); level-- > 0;) {
    const int parts = cluster.levels[level].parts;
    if (parts < 2) continue;
    if (level > 0 && rooted) {
      for (const Stage& stage : from_root(cluster, level, bytes)) stages.push_back(stage);
    } else if (level > 0) {
      stages.push_back(between_all(cluster, level, bytes));
    } else if (rooted) {
      stages.push_back({.level = 0, .messages = 1, .bytes = bytes});  // the root's node reads all of it
    } else {
      stages.push_back(all_gather(Algorithm::kPairwise, parts, bytes, 0));
      if (stages.size() > 1) ++stages.back().messages;  // what the node has itself, and what comes in
    }
  }
  return stages;
}

// Returns the parent of a member of a binomial tree (collective/algorithms/tree.h). Both are counted from the
// root. Of the first members as many follow a neighbour as there are beyond the power of two.
std::size_t parent_of(std::size_t place, std::size_t size) {
  const std::size_t pairs = size - std::bit_floor(size);
  if (place < 2 * pairs && place % 2 == 1) return place - 1;
  const std::size_t number = place < 2 * pairs ? place / 2 : place - pairs;
  const std::size_t parent = number & (number - 1);
  return parent < pairs ? 2 * parent : parent + pairs;
}

// Returns the times that a binomial tree's vector crosses the busiest part's end, in or out.
int most_crossings(const Cluster& cluster, int root) {
  const std::vector<int> sizes = part_sizes(cluster, cluster.levels.size() - 1);
  std::vector<std::size_t> part_of;  // by rank
  for (std::size_t part = 0; part < sizes.size(); ++part)
    part_of.insert(part_of.end(), static_cast<std::size_t>(sizes[part]), part);
  std::vector<int> out(sizes.size()), in(sizes.size());
  const std::size_t all = part_of.size();
  for (std::size_t member = 1; member < all; ++member) {
    const auto part = [&](std::size_t place) {
      return part_of[(place + static_cast<std::size_t>(root)) % all];
    };
    const std::size_t from = part(parent_of(member, all)), to = part(member);
    if (from == to) continue;
    ++out[from];
    ++in[to];
  }
  return std::max(std::ranges::max(out), std::ranges::max(in));
}

// Returns the ranks outside of the part of this rank.
double ranks_outside(const Cluster& cluster, int rank) {
  for (const int size : part_sizes(cluster, cluster.levels.size() - 1)) {
    if (rank < size) return ranks(cluster) - size;
    rank -= size;
  }
  return 0;
}

}  // namespace

std::optional<Movement> movement_named(std::string_view name) {
  const auto found = std::ranges::find(kMovements, name);
  if (found == kMovements.end()) return std::nullopt;
  return static_cast<Movement>(found - kMovements.begin());
}

Program over_levels(const Cluster& cluster, Movement movement, double bytes) {
  const bool rooted = is_rooted(movement);
  Program program{inwards(cluster, rooted, bytes)};
  if (adds(movement)) {
    std::ranges::reverse(program.stages);
    for (Stage& stage : program.stages) stage.reduced = stage.bytes;
  }
  const double pieces = rooted ? bytes / kRootedPieceBytes : bytes / ranks(cluster) / kPieceBytes;
  program.chunks = std::max(1, static_cast<int>(std::ceil(pieces)));
  return program;
}

Program flat(const Cluster& cluster, Movement movement, double bytes, int root) {
  const int all = ranks(cluster);
  if (all < 2) return {};
  const std::size_t top = cluster.levels.size() - 1;
  Stage stage{.level = top, .whole = true};
  switch (movement) {
    case Movement::kAllgather:
    case Movement::kReducescatter:
      stage.messages = movement == Movement::kAllgather ? std::ceil((all - 1) / kAtOnce) : 1;
      stage.bytes = bytes * (all - ranks_in_part(cluster, top)) / all;
      break;
    case Movement::kBroadcast:
      stage.messages = broadcast(all, bytes).messages;
      stage.bytes = most_crossings(cluster, root) * bytes;
      stage.senders = 1;
      break;
    case Movement::kReduce:
      stage.messages = 1;
      stage.bytes = ranks_outside(cluster, root) * bytes;
      stage.senders = 1;
      break;
  }
  if (movement == Movement::kReducescatter) stage.reduced = bytes * (all - 1) / all;
  if (movement == Movement::kReduce) stage.reduced = bytes * (all - 1);
  return {{stage}};
}

}  // namespace roundelay::model
