#include "runtime/startup/algorithm_choice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/levels.h"

namespace roundelay::runtime {
namespace {

using bootstrap::Level;
using bootstrap::Part;
using bootstrap::Topology;
using collective::Select;
using collective::Tuning;

constexpr const char* kOutermost = "cluster";
constexpr const char* kOnDevice =
    "gpu";  // no part of the cluster: calls on GPUs' memory, wherever their ranks are

bool holds(const Part& part, const Group& group) {
  return std::all_of(group.ranks.begin(), group.ranks.end(), [&](int rank) {
    return std::binary_search(part.ranks.begin(), part.ranks.end(), rank);
  });
}

// Returns how many parts of `inner` the largest part of `outer` has.
std::size_t most_members(const Level& outer, const Level& inner) {
  std::size_t most = 0;
  for (const Part& part : outer.parts) {
    const auto within = std::count_if(inner.parts.begin(), inner.parts.end(), [&](const Part& one) {
      return std::binary_search(part.ranks.begin(), part.ranks.end(), one.ranks.front());
    });
    most = std::max(most, static_cast<std::size_t>(within));
  }
  return most;
}

// Returns the levels that join several members, innermost first.
std::vector<Tuning::Level> levels_of(const Topology& topology) {
  std::vector<Tuning::Level> levels;
  const auto add = [&](const std::string& name, std::size_t members) {
    if (members > 1) levels.push_back({name, members});
  };
  std::size_t most_ranks = 0;
  for (const Part& node : topology.levels.front().parts) most_ranks = std::max(most_ranks, node.ranks.size());
  add(topology.levels.front().name, most_ranks);
  for (std::size_t i = 1; i < topology.levels.size(); ++i) {
    add(topology.levels[i].name, most_members(topology.levels[i], topology.levels[i - 1]));
  }
  add(kOutermost, topology.levels.back().parts.size());
  return levels;
}

std::string described(const std::vector<Tuning::Level>& levels) {
  std::string text;
  for (const Tuning::Level& level : levels) {
    if (level.name == kOnDevice) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(level.members) + " in a " + level.name;
  }
  return text.empty() ? "a single rank" : text;
}

}  // namespace

std::string level_of(const Group& group, const Topology& topology) {
  for (const Level& level : topology.levels) {
    for (const Part& part : level.parts) {
      if (holds(part, group)) return level.name;
    }
  }
  return kOutermost;
}

Status check_fits(const Tuning& tuning, const Topology& topology, std::string_view fabric) {
  const std::string cure = "; run roundelay tune on this cluster, or unset ROUNDELAY_TUNING";
  if (tuning.fabric != fabric) {
    return Status::invalid("the tuning file was measured over fabric " + tuning.fabric +
                           ", and this job uses " + std::string(fabric) + cure);
  }
  const std::vector<Tuning::Level> here = levels_of(topology);
  const bool fits = std::all_of(here.begin(), here.end(), [&](const Tuning::Level& level) {
    return std::any_of(tuning.levels.begin(), tuning.levels.end(), [&](const Tuning::Level& measured) {
      return measured.name == level.name && measured.members >= level.members;
    });
  });
  if (fits) return {};
  return Status::invalid("the tuning file is of another cluster: it was measured with " +
                         described(tuning.levels) + ", and this job has " + described(here) + cure);
}

Result<AlgorithmChoice> AlgorithmChoice::create(const Config& config, const std::string& tuning_text,
                                                const Topology& topology, std::string_view fabric) {
  AlgorithmChoice choice;
  auto untuned = Select::by_name(config.algorithm);
  if (!untuned.ok()) return untuned.status();
  choice.untuned_ = std::move(untuned).value();
  if (tuning_text.empty()) return choice;
  auto tuning = Tuning::parse(tuning_text);
  if (!tuning.ok()) return tuning.status();
  ROUNDELAY_RETURN_IF_ERROR(check_fits(*tuning, topology, fabric));
  for (const Tuning::Level& level : tuning->levels) {
    auto tuned = choice.untuned_.with(*tuning, level.name, config.deterministic);
    if (!tuned.ok()) return tuned.status();
    choice.by_level_.emplace(level.name, std::move(tuned).value());
  }
  choice.topology_ = topology;
  choice.tuning_ = std::move(tuning).value();
  return choice;
}

Select AlgorithmChoice::select_for(const Group& group) const {
  if (!tuning_) return untuned_;
  const auto found = by_level_.find(level_of(group, topology_));
  return found == by_level_.end() ? untuned_ : found->second;
}

Select AlgorithmChoice::on_device() const {
  const auto found = by_level_.find(kOnDevice);
  return (found == by_level_.end() ? untuned_ : found->second).on_device();
}

std::vector<model::Link> AlgorithmChoice::links() const {
  std::vector<model::Link> links;
  if (!tuning_ || tuning_->links.empty()) return links;
  std::size_t ranks_behind = 1;  // of the largest part that the level joins
  // A level without a measurement joins nothing.
  const auto add = [&](const std::string& name) {
    const Tuning::Link* const link = tuning_->link(name);
    links.push_back(link == nullptr
                        ? model::usual_link(links.size())
                        : model::Link{link->alpha, link->bandwidth * static_cast<double>(ranks_behind)});
  };
  for (const Level& level : topology_.levels) {
    add(level.name);
    ranks_behind = 0;
    for (const Part& part : level.parts) ranks_behind = std::max(ranks_behind, part.ranks.size());
  }
  add(kOutermost);
  return links;
}

}  // namespace roundelay::runtime
