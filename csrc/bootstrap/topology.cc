#include "bootstrap/topology.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

namespace roundelay::bootstrap {
namespace {

constexpr std::string_view kStated = "ROUNDELAY_TOPOLOGY";
constexpr std::size_t kMostShown = 8;  // a message names so many nodes

std::string text(std::string_view value) { return std::string(value); }

std::vector<std::string> split(std::string_view whole, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = whole.find(separator);
    parts.push_back(text(whole.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    whole.remove_prefix(end + 1);
  }
}

// Returns `ROUNDELAY_TOPOLOGY="a"`, or `no ROUNDELAY_TOPOLOGY` if the value is empty.
std::string assigned(std::string_view variable, const std::string& value) {
  std::string all = value.empty() ? "no " : "";
  all.append(variable);
  if (!value.empty()) all.append("=\"").append(value).append("\"");
  return all;
}

// Tells counts from names, as StatedTopology::parse() does.
bool has_counts(std::string_view stated) { return stated.find('=') != std::string_view::npos; }

std::string says(std::size_t rank, std::string_view variable, const std::string& value) {
  return "rank " + std::to_string(rank) + " has " + assigned(variable, value);
}

// Returns the parts in the order of their first ranks. Ranks with equal `keys` share a part.
std::vector<std::pair<std::string, std::vector<int>>> grouped(const std::vector<std::string>& keys) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  std::map<std::string, std::size_t> index_of;
  for (std::size_t rank = 0; rank < keys.size(); ++rank) {
    const auto [entry, is_new] = index_of.emplace(keys[rank], groups.size());
    if (is_new) groups.emplace_back(keys[rank], std::vector<int>());
    groups[entry->second].second.push_back(static_cast<int>(rank));
  }
  return groups;
}

// Returns the host's name of a node id of the form hostname/boot id; other ids as they are.
std::string host_of(const std::string& node) {
  constexpr std::size_t kBootId = 36;
  const std::size_t slash = node.rfind('/');
  const bool ours = slash != std::string::npos && slash > 0 && node.size() - slash - 1 == kBootId;
  return ours ? node.substr(0, slash) : node;
}

Level nodes_of(const std::vector<Statement>& statements) {
  std::vector<std::string> keys;
  keys.reserve(statements.size());
  for (const Statement& one : statements) keys.push_back(one.node);
  Level level{"node", {}};
  std::map<std::string, int> uses;
  for (const auto& [node, ranks] : grouped(keys)) {
    level.parts.push_back({node, ranks});
    ++uses[host_of(node)];
  }
  for (Part& part : level.parts) {
    if (uses[host_of(part.name)] == 1) part.name = host_of(part.name);
  }
  return level;
}

// Returns "a (rank 0), b (ranks 1, 2)".
std::string list(const std::vector<Part>& nodes) {
  std::string all;
  for (std::size_t i = 0; i < std::min(nodes.size(), kMostShown); ++i) {
    std::string ranks;
    for (const int rank : nodes[i].ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    all += (all.empty() ? "" : ", ") + nodes[i].name + (nodes[i].ranks.size() == 1 ? " (rank " : " (ranks ") +
           ranks + ")";
  }
  return nodes.size() > kMostShown ? all + " and " + std::to_string(nodes.size() - kMostShown) + " more"
                                   : all;
}

// Adds the levels outside the nodes.
Status add_by_counts(const LevelCounts& counts, std::vector<Level>& levels) {
  const std::vector<Part> nodes = levels.front().parts;
  if (counts.nodes() != nodes.size()) {
    return Status::invalid(assigned(kStated, counts.text()) + " counts " + std::to_string(counts.nodes()) +
                           " nodes, but the ranks are on " + std::to_string(nodes.size()) + ": " +
                           list(nodes) +
                           "; correct it, or give each rank the names of its parts, such as rack3");
  }
  std::size_t each = 1;  // the nodes in a part of the level
  for (std::size_t i = counts.levels.size() - 1; i > 0; --i) {
    each *= counts.levels[i].each;
    Level level{counts.levels[i - 1].name, std::vector<Part>(nodes.size() / each)};
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      Part& part = level.parts[node / each];
      part.name = std::to_string(node / each);
      part.ranks.insert(part.ranks.end(), nodes[node].ranks.begin(), nodes[node].ranks.end());
    }
    for (Part& part : level.parts) std::ranges::sort(part.ranks);
    levels.push_back(std::move(level));
  }
  return {};
}

// A rank's path to its rack, from outside in.
using Path = std::vector<std::string>;

// Checks that each path has as many names as the first one, and that the ranks of a node have one path.
Status check_paths(std::string_view variable, const std::vector<std::string>& stated,
                   const std::vector<Path>& paths, const std::vector<Part>& nodes) {
  const auto contradict = [&](std::size_t a, std::size_t b) {
    return says(a, variable, stated[a]) + ", and " + says(b, variable, stated[b]);
  };
  for (std::size_t rank = 0; rank < paths.size(); ++rank) {
    if (stated[rank].empty() != stated[0].empty()) {
      return Status::invalid(contradict(0, rank) + ": give every rank the name of its rack, or none");
    }
    if (!stated[rank].empty() && std::ranges::find(paths[rank], "") != paths[rank].end()) {
      return Status::invalid(says(rank, variable, stated[rank]) +
                             ": a name between the slashes is missing; write rack3 or pod1/rack3");
    }
    if (paths[rank].size() != paths[0].size()) {
      return Status::invalid(contradict(0, rank) + ": give every rank equally many names");
    }
  }
  for (const Part& node : nodes) {
    const auto first = static_cast<std::size_t>(node.ranks.front());
    for (const int rank : node.ranks) {
      const auto other = static_cast<std::size_t>(rank);
      if (stated[other] == stated[first]) continue;
      return Status::invalid(contradict(first, other) + ", but both ranks are on node " + node.name +
                             ", which is in one rack only");
    }
  }
  return {};
}

// Returns a level's name by its distance from the nodes, from 1 on.
std::string name_of(std::size_t distance) {
  constexpr std::array<std::string_view, 4> kNames = {"rack", "pod", "zone", "region"};
  return distance <= kNames.size() ? text(kNames[distance - 1]) : "level " + std::to_string(distance + 1);
}

// Adds the levels outside the nodes. `stated`: the variable's value on each rank.
Status add_by_paths(std::string_view variable, const std::vector<std::string>& stated,
                    std::vector<Level>& levels) {
  std::vector<Path> paths;
  paths.reserve(stated.size());
  for (const std::string& one : stated) paths.push_back(split(one, '/'));
  ROUNDELAY_RETURN_IF_ERROR(check_paths(variable, stated, paths, levels.front().parts));
  for (std::size_t depth = paths[0].size(); depth > 0; --depth) {
    std::vector<std::string> keys;
    for (const Path& path : paths) {
      std::string key;
      for (std::size_t i = 0; i < depth; ++i) key += (i == 0 ? "" : "/") + path[i];
      keys.push_back(std::move(key));
    }
    Level level{name_of(paths[0].size() - depth + 1), {}};
    for (auto& [key, ranks] : grouped(keys)) {
      level.parts.push_back({key.substr(key.rfind('/') + 1), std::move(ranks)});
    }
    levels.push_back(std::move(level));
  }
  return {};
}

}  // namespace

Result<Topology> topology_of(const std::vector<Statement>& statements, const LevelCounts& counts) {
  std::vector<std::string> stated;
  std::vector<std::string> launcher_racks;
  const std::string& first = statements.front().stated;
  for (std::size_t rank = 0; rank < statements.size(); ++rank) {
    const Statement& one = statements[rank];
    if (one.stated != first && (has_counts(first) || has_counts(one.stated))) {
      return Status::invalid(says(0, kStated, first) + ", and " + says(rank, kStated, one.stated) +
                             ": set counts alike on all ranks");
    }
    stated.push_back(one.stated);
    launcher_racks.push_back(one.launcher_rack);
  }

  Topology topology{{nodes_of(statements)}};
  const auto states = [](const std::string& value) { return !value.empty(); };
  if (has_counts(first)) {
    ROUNDELAY_RETURN_IF_ERROR(add_by_counts(counts, topology.levels));
  } else if (std::ranges::any_of(stated, states)) {
    ROUNDELAY_RETURN_IF_ERROR(add_by_paths(kStated, stated, topology.levels));
  } else if (std::ranges::any_of(launcher_racks, states)) {
    topology.unused = add_by_paths("launcher's rack", launcher_racks, topology.levels).message();
  }
  return topology;
}

}  // namespace roundelay::bootstrap
