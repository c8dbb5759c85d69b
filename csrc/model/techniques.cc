#include "model/techniques.h"

#include <algorithm>
#include <cmath>

namespace roundelay::model {
namespace {

Stage pass(double bytes) { return {.kind = Stage::Kind::kMemory, .bytes = bytes}; }

void append(Program& program, const Program& more) {
  program.stages.insert(program.stages.end(), more.stages.begin(), more.stages.end());
}

// The levels above the first as one.
Level between(const Cluster& cluster) {
  Level joined{1, cluster.levels.empty() ? Link{} : cluster.levels.back().link};
  for (std::size_t level = 1; level < cluster.levels.size(); ++level)
    joined.parts *= cluster.levels[level].parts;
  return joined;
}

int in_node(const Cluster& cluster) { return cluster.levels.empty() ? 1 : cluster.levels.front().parts; }

// The nodes that share one end of the outermost link.
int nodes_behind_end(const Cluster& cluster) {
  int nodes = 1;
  for (std::size_t level = 1; level + 1 < cluster.levels.size(); ++level)
    nodes *= cluster.levels[level].parts;
  return nodes;
}

// The sum over a node that leaves a shard with as many of its ranks as the smallest node has, and the
// all-gather of these shards.
Stage scattered_in_node(const Cluster& cluster, double bytes) {
  const int n = in_node(cluster);
  return reduce_scatter(Algorithm::kPairwise, n, bytes * n / least_in_node(cluster), 0);
}
Stage gathered_in_node(const Cluster& cluster, double bytes) {
  Stage stage = scattered_in_node(cluster, bytes);
  stage.reduced = 0;
  return stage;
}

std::size_t top(const Cluster& cluster) { return cluster.levels.empty() ? 0 : cluster.levels.size() - 1; }

// What each rank of a node sends to those of its place on all other nodes, so many bytes to each.
Stage sent_to_others(const Cluster& cluster, double bytes) {
  const double others = between(cluster).parts - 1;
  return {.level = top(cluster),
          .messages = others,
          .bytes = others * bytes,
          .senders = least_in_node(cluster) * nodes_behind_end(cluster)};
}

}  // namespace

Program dense(const Cluster& cluster, const Payload& bucket, double wire_bytes) {
  const double elements = bucket.bytes / bucket.element;
  const bool cast = wire_bytes != bucket.element;
  Program program;
  if (cast) program.stages.push_back(pass(elements * (bucket.element + wire_bytes)));
  append(program, over_levels(cluster, Algorithm::kPairwise, elements * wire_bytes));
  if (cast) program.stages.push_back(pass(elements * (bucket.element + wire_bytes)));
  return program;
}

Program csc(const Cluster& cluster, const Payload& bucket, const CscOptions& options) {
  const double elements = bucket.bytes / bucket.element;
  const double chunks = std::max(1.0, std::ceil(elements / options.chunk_elements));
  const double kept = elements * options.keep;
  Program program{{pass(3 * bucket.bytes)}};
  append(program, over_levels(cluster, Algorithm::kPairwise, 4 * chunks));
  program.stages.push_back(pass(kept * (bucket.element + options.wire_bytes)));
  append(program, over_levels(cluster, Algorithm::kPairwise, kept * options.wire_bytes));
  program.stages.push_back(pass(kept * (bucket.element + options.wire_bytes)));
  return program;
}

// The residual's statistics, the candidates, and what is chosen (kernels/cpu/top_k.cc).
constexpr double kReadsToChoose = 3;

Program top_k(const Cluster& cluster, const Payload& bucket, const TopKOptions& options) {
  const int shards = least_in_node(cluster);
  const Level nodes = between(cluster);
  const double elements = bucket.bytes / bucket.element;
  const double shard = elements / shards;
  const double pairs = options.density * shard;
  Program program;
  const bool has_nodes = in_node(cluster) > 1;
  if (has_nodes) program.stages.push_back(scattered_in_node(cluster, bucket.bytes));
  program.stages.push_back(pass(shard * bucket.element * (2 + kReadsToChoose)));
  if (nodes.parts > 1)
    program.stages.push_back(sent_to_others(cluster, pairs * (options.value + options.index)));
  program.stages.push_back(pass(nodes.parts * pairs * (options.value + options.index + bucket.element)));
  if (has_nodes) program.stages.push_back(gathered_in_node(cluster, bucket.bytes));
  return program;
}

Program power_sgd(const Cluster& cluster, const Payload& bucket, const PowerSgdOptions& options) {
  const double shard = bucket.bytes / least_in_node(cluster);
  Program program;
  if (in_node(cluster) > 1) program.stages.push_back(scattered_in_node(cluster, bucket.bytes));
  program.stages.push_back(pass(shard * (2 + options.rank)));
  append(program, over_levels(cluster, Algorithm::kPairwise, 4 * options.rank * options.rows));
  program.stages.push_back(pass(shard * options.rank));
  append(program, over_levels(cluster, Algorithm::kPairwise, 4 * options.rank * options.columns));
  program.stages.push_back(pass(2 * bucket.bytes));
  return program;
}

Program quantised(const Cluster& cluster, const Payload& bucket) {
  constexpr double kNumber = 1 + 4.0 / 256;  // bytes between nodes, with its part of a block's scale
  constexpr double kReal = 4;                // bytes of a residual and of a sum
  const double shard = bucket.bytes / bucket.element / least_in_node(cluster);
  const int nodes = between(cluster).parts;
  const bool has_nodes = in_node(cluster) > 1;
  if (nodes < 2) return dense(cluster, bucket, bucket.element);
  Program program;
  if (has_nodes) program.stages.push_back(scattered_in_node(cluster, bucket.bytes));
  program.stages.push_back(
      pass(shard * (bucket.element + 5 * kReal + kNumber)));  // into the residual, rounded
  program.stages.push_back(sent_to_others(cluster, shard / nodes * kNumber));
  program.stages.push_back(pass(shard * (4 * kReal + kNumber)));  // added up
  program.stages.push_back(sent_to_others(cluster, shard / nodes * kNumber));
  program.stages.push_back(pass(shard * (bucket.element + kNumber)));
  if (has_nodes) program.stages.push_back(gathered_in_node(cluster, bucket.bytes));
  return program;
}

Program average(const Cluster& cluster, const Payload& parameters) {
  return over_levels(cluster, Algorithm::kPairwise, parameters.bytes);
}

Program daso_transfer(const Cluster& cluster, const Payload& parameters) {
  const Level nodes = between(cluster);
  Stage sum = allreduce(Algorithm::kPairwise, nodes.parts, parameters.bytes, top(cluster));
  sum.senders = nodes_behind_end(cluster);
  Program program{{pass(2 * parameters.bytes)}};
  if (nodes.parts > 1) program.stages.push_back(sum);
  program.stages.push_back(pass(3 * parameters.bytes));
  if (in_node(cluster) > 1) program.stages.push_back(broadcast(in_node(cluster), parameters.bytes, 0));
  return program;
}

Program within_node(const Cluster& cluster, const Payload& bucket) {
  if (in_node(cluster) < 2) return {};
  return {{allreduce(Algorithm::kPairwise, in_node(cluster), bucket.bytes, 0)}};
}

}  // namespace roundelay::model
