#include "model/levels.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace roundelay::model {
namespace {

// Returns the number of parts of the level below `begin` in a part of the level `end - 1`.
int parts_between(const Cluster& cluster, std::size_t begin, std::size_t end) {
  int parts = 1;
  for (std::size_t level = begin; level < end; ++level) parts *= cluster.levels[level].parts;
  return parts;
}

// The time of all stages on one chunk, with which they burden the links.
class ChunkTime {
 public:
  explicit ChunkTime(const Cluster& cluster) : cluster_(cluster), of_link_(cluster.levels.size(), 0) {}

  // Adds a stage that reduces and gathers `bytes` bytes on each rank.
  void add(const Factor& stage, double bytes) {
    const double members = stage.members;
    const bool whole_levels =
        parts_between(cluster_, stage.first_level, stage.last_level + 1) == stage.members;
    double latency = 0, transfer = 0;
    for (const Crossed& crossed : crossed_by(stage, cluster_)) {
      const Level& level = cluster_.levels[crossed.level];
      double messages = 0;  // of each member that shares this end
      if (crossed.level >= stage.first_level) {
        messages = whole_levels ? crossed.in_part * (static_cast<double>(level.parts) - 1) : members - 1;
      }
      const double alphas = 2 * messages * level.link.latency;
      const double moving = 2 * static_cast<double>(level.link.sharers) * bytes *
                            (members - crossed.in_part) / members / level.link.bandwidth;
      of_link_[crossed.level] += alphas + moving;
      latency += alphas;
      transfer = std::max(transfer, moving);
    }
    all_stages_ += latency + transfer;
  }

  // Returns the time of `chunks` chunks.
  [[nodiscard]] double seconds_for(double chunks) const {
    return pipelined(all_stages_, *std::ranges::max_element(of_link_), chunks);
  }

 private:
  const Cluster& cluster_;
  std::vector<double> of_link_;  // by level
  double all_stages_ = 0;
};

// Returns a stage on the link that it keeps busy the longest.
Stage on_busiest_link(const Factor& factor, Algorithm algorithm, double bytes, const Cluster& cluster) {
  Stage busiest;
  double most = -1;
  for (const Crossed& crossed : crossed_by(factor, cluster)) {
    Stage stage = allreduce(algorithm, factor.members, bytes, crossed.level);
    if (algorithm == Algorithm::kRing) {
      stage.senders = ranks_in_part(cluster, factor.first_level);  // neighbours lie in one part if possible
    } else {
      stage.bytes *=
          static_cast<double>(std::max(0, factor.members - crossed.in_part)) / (factor.members - 1);
    }
    if (const double time = seconds(stage, cluster); time > most) {
      most = time;
      busiest = stage;
    }
  }
  return busiest;
}

}  // namespace

std::vector<Crossed> crossed_by(const Factor& stage, const Cluster& cluster) {
  std::vector<Crossed> crossed;
  for (std::size_t level = std::min<std::size_t>(stage.first_level, 1); level <= stage.last_level; ++level) {
    crossed.push_back({level, parts_between(cluster, stage.first_level, level)});
  }
  return crossed;
}

Cluster with_shared_ends(std::vector<Level> levels) {
  Cluster cluster{std::move(levels)};
  for (std::size_t level = 0; level < cluster.levels.size(); ++level) {
    cluster.levels[level].link.sharers = ranks_in_part(cluster, level);
  }
  return cluster;
}

double seconds_of(const Cluster& cluster, const std::vector<Factor>& stages, std::size_t bytes,
                  std::size_t shard_bytes) {
  const auto whole = static_cast<double>(bytes);
  double chunk = stages.size() < 2 ? whole : static_cast<double>(shard_bytes);
  for (std::size_t i = 0; i + 1 < stages.size(); ++i) chunk *= stages[i].members;
  chunk = std::min(chunk, whole);
  ChunkTime time(cluster);
  double held = chunk;
  for (const Factor& stage : stages) {
    time.add(stage, held);
    held /= stage.members;
  }
  return time.seconds_for(whole / chunk);
}

double seconds_of_way(const Cluster& cluster, const std::vector<Factor>& stages, Algorithm algorithm,
                      double bytes) {
  Program program;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].members < 2) continue;
    const Algorithm own = i + 1 == stages.size() ? algorithm : Algorithm::kPairwise;
    program.stages.push_back(on_busiest_link(stages[i], own, bytes, cluster));
    bytes /= stages[i].members;
  }
  return seconds(with_best_chunks(std::move(program), cluster), cluster);
}

Program over_levels(const Cluster& cluster, Algorithm algorithm, double bytes) {
  Program program;
  std::vector<Stage> back;
  for (std::size_t level = 0; level < cluster.levels.size(); ++level) {
    const int parts = cluster.levels[level].parts;
    if (parts < 2) continue;
    const double share = bytes / ranks_in_part(cluster, level);
    program.stages.push_back(reduce_scatter(algorithm, parts, share, level));
    back.push_back(all_gather(algorithm, parts, share, level));
  }
  program.stages.insert(program.stages.end(), back.rbegin(), back.rend());
  return program;
}

Cluster split(const Cluster& cluster, std::size_t level, const std::vector<int>& factors) {
  Cluster result = cluster;
  const Link link = cluster.levels[level].link;
  result.levels.erase(result.levels.begin() + static_cast<std::ptrdiff_t>(level));
  auto place = result.levels.begin() + static_cast<std::ptrdiff_t>(level);
  for (const int factor : factors) place = std::next(result.levels.insert(place, Level{factor, link}));
  return result;
}

Link usual_link(std::size_t level) {
  if (level == 0) return {1e-6, 6e9};
  return {level == 1 ? 1e-5 : 2e-5, 1.25e9};
}

}  // namespace roundelay::model
