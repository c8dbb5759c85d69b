// The stages of a bucket under each technique and strategy. Each function returns them, and names the paper
// and its formula. The letters are those of cluster.h, with 1 for the node's level and 2 for that between
// nodes, n ranks in each of m nodes, and d elements of b bytes (S = d b). If nodes differ, the largest one's
// time counts, and where each rank of a node has a shard there are as many as the smallest node has ranks.
#pragma once

#include <vector>

#include "model/levels.h"

namespace roundelay::model {

// What travels: the gradients of one bucket, or a model's parameters.
struct Payload {
  double bytes = 0;
  double element = 4;  // bytes of one element
};

// One allreduce over all levels (over_levels(), pairwise). `wire_bytes` is the size of an element while it
// travels, in bytes. If it is not the bucket's, casts are one pass over the memory before the allreduce, and
// one after it.
Program dense(const Cluster& cluster, const Payload& bucket, double wire_bytes);

// Coarse-grained sparse communication (GradientFlow, arXiv 1902.06855): a pass that adds the residual and
// computes the chunks' norms, one small allreduce of 4 bytes a chunk, and one dense allreduce of the chosen
// chunks.
//   T = T_allreduce(4 d / chunk_elements) + T_allreduce(keep S) + passes.
struct CscOptions {
  double keep = 0.1;  // the share of the chunks that are sent, above 0 and at most 1
  double chunk_elements = 32768;
  double wire_bytes = 4;  // bytes of an element while it travels
};
Program csc(const Cluster& cluster, const Payload& bucket, const CscOptions& options);

// HiTopKComm (Shi et al., arXiv 2010.10458): a reduce-scatter in the node, the choice of the largest elements
// of each rank's shard, an all-gather of their values and indices between the nodes, an all-gather in the
// node.
//   2 (n-1) alpha1 + 2 (n-1)/n d b/W1 + (m-1) alpha2 + (m-1) density d (value + index)/W2 + T_select(d/n).
// W2 is the bandwidth of a node's end. Levels above the first one count as one level of nodes with the
// outermost link.
struct TopKOptions {
  double density = 0.01;  // the share of the elements that are sent
  double value = 4;       // bytes of a value
  double index = 4;       // bytes of an index
};
Program top_k(const Cluster& cluster, const Payload& bucket, const TopKOptions& options);

// PowerSGD (Vogels et al., arXiv 1905.13727): a reduce-scatter in the node, an allreduce of the left factors
// and one of the right factors, and passes over the memory: each of the two products with the gradients reads
// the rank's shard once for each rank of the approximation.
struct PowerSgdOptions {
  double rank = 2;     // the rank of the approximation
  double rows = 0;     // the rows of all matrices of the bucket: left factors have rank * rows elements
  double columns = 0;  // the columns of all matrices of the bucket
};
Program power_sgd(const Cluster& cluster, const Payload& bucket, const PowerSgdOptions& options);

// Gradients in 8 bits between nodes (csrc/compress/quantised): a reduce-scatter in the node, an exchange of
// the parts of each shard between the nodes, a gather of their sums, an all-gather in the node.
//   2 (n-1) alpha1 + 2 (n-1)/n d b/W1 + 2 (m-1) alpha2 + 2 (m-1)/m d (1 + 4/256)/W2 + passes.
Program quantised(const Cluster& cluster, const Payload& bucket);

// The average of parameters over all ranks, which local SGD makes every few steps.
Program average(const Cluster& cluster, const Payload& parameters);

// DASO's transfer (Coquelin et al., arXiv 2104.05588): one rank of each node sums its parameters with those
// of the other nodes, and broadcasts the result in its node.
Program daso_transfer(const Cluster& cluster, const Payload& parameters);

// The allreduce of gradients among the ranks of each node: over the first level only.
Program within_node(const Cluster& cluster, const Payload& bucket);

}  // namespace roundelay::model
