// What the techniques and strategies do to a bucket, as stages. Each function names the paper and its
// formula.
#pragma once

#include <vector>

#include "model/collectives.h"
#include "model/stage.h"

namespace roundelay::model {

// The gradients of one bucket: bytes as PyTorch has them, in elements of so many bytes.
struct Bucket {
  double bytes = 0;
  double element = 4;
};

// One allreduce, over the levels with pairwise reduce-scatters; `wire`: bytes of an element on the way. A
// cast is one pass over the memory each way.
Program dense(const Cluster& cluster, const Bucket& bucket, double wire);

// Coarse-grained sparse communication (GradientFlow, arXiv 1902.06855): a pass that adds the residual and
// computes the chunks' norms, one small allreduce of 4 bytes a chunk, and one dense allreduce of the part
// `keep` of the chunks.
//   T = T_small(4 S / chunk) + T_allreduce(keep S) + passes.
struct CscOptions {
  double keep = 0.1;
  double chunk_elements = 32768;
  double wire = 4;
};
Program csc(const Cluster& cluster, const Bucket& bucket, const CscOptions& options);

// HiTopKComm (Shi et al., arXiv 2010.10458): reduce-scatter in the node, k of this rank's shard, an
// all-gather of values and indices between the nodes, all-gather in the node.
//   2 (n-1) alpha1 + 2 (n-1)/n d b/W1 + (m-1) alpha2 + (m-1) density d (value + index)/W_nic + T_select(d/n).
// Levels above the first one count as one level of nodes with the outermost link.
struct TopKOptions {
  double density = 0.01;
  double value = 4;   // bytes
  double index = 4;   // bytes
  double passes = 3;  // reads of the shard that selecting takes
};
Program top_k(const Cluster& cluster, const Bucket& bucket, const TopKOptions& options);

// Returns the density above which dense communication sends fewer bytes between the nodes: 2 b / (m (value +
// index)).
double break_even_density(int nodes, double dense_element, double pair);

// PowerSGD (Vogels et al., arXiv 1905.13727): two allreduces of factors of so many elements, and the passes
// of the products: each reads the bucket once for a column of the factor.
struct PowerSgdOptions {
  double rank = 2;
  double rows = 0;     // elements of all left factors, for rank 1
  double columns = 0;  // of all right factors
};
Program power_sgd(const Cluster& cluster, const Bucket& bucket, const PowerSgdOptions& options);

// The average of parameters over all ranks: local SGD's, every `period` steps.
Program average(const Cluster& cluster, const Bucket& parameters);

// DASO's transfer (Coquelin et al., arXiv 2104.05588): one rank of each node sums its parameters with those
// of the other nodes, and spreads the result in its node.
Program daso_transfer(const Cluster& cluster, const Bucket& parameters);

// The same for gradients in the node only: the first level.
Program within_node(const Cluster& cluster, const Bucket& bucket);

}  // namespace roundelay::model
