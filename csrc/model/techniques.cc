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

std::size_t top(const Cluster& cluster) { return cluster.levels.empty() ? 0 : cluster.levels.size() - 1; }

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

Program top_k(const Cluster& cluster, const Payload& bucket, const TopKOptions& options) {
  const int n = in_node(cluster);
  const Level nodes = between(cluster);
  const double elements = bucket.bytes / bucket.element;
  const double shard = elements / n;
  const double pairs = options.density * shard;
  const double others = nodes.parts - 1;
  Program program;
  if (n > 1) program.stages.push_back(reduce_scatter(Algorithm::kPairwise, n, bucket.bytes, 0));
  program.stages.push_back(pass(shard * bucket.element * (2 + options.passes)));
  if (others > 0)
    program.stages.push_back({.level = top(cluster),
                              .messages = others,
                              .bytes = others * pairs * (options.value + options.index)});
  program.stages.push_back(pass(nodes.parts * pairs * (options.value + options.index + bucket.element)));
  if (n > 1) program.stages.push_back(all_gather(Algorithm::kPairwise, n, bucket.bytes, 0));
  return program;
}

Program power_sgd(const Cluster& cluster, const Payload& bucket, const PowerSgdOptions& options) {
  Program program{{pass(bucket.bytes * (2 + options.rank))}};
  append(program, over_levels(cluster, Algorithm::kPairwise, 4 * options.rank * options.rows));
  program.stages.push_back(pass(bucket.bytes * options.rank));
  append(program, over_levels(cluster, Algorithm::kPairwise, 4 * options.rank * options.columns));
  program.stages.push_back(pass(2 * bucket.bytes));
  return program;
}

Program average(const Cluster& cluster, const Payload& parameters) {
  return over_levels(cluster, Algorithm::kPairwise, parameters.bytes);
}

Program daso_transfer(const Cluster& cluster, const Payload& parameters) {
  const Level nodes = between(cluster);
  Stage sum = allreduce(Algorithm::kPairwise, nodes.parts, parameters.bytes, top(cluster));
  sum.senders = 1;
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
