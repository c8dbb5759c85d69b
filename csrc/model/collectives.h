// What one collective of p ranks on one level costs: /docs/fabrics.md has the table of the algorithms'
// messages and bytes. Sources: Thakur et al. 2005 (ring, doubling, halving), and the papers that techniques.h
// names.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "model/stage.h"

namespace roundelay::model {

enum class Algorithm : unsigned char {
  kDirect,    // each rank sends everything to each other one
  kPairwise,  // each rank sends each shard to the rank that sums it; the sums go back the same way
  kRing,
  kRecursiveDoubling,
  kHalvingDoubling,
  kBinomialTree,
  kPipelinedTree,
};

// Returns the algorithm that ROUNDELAY_ALGORITHM calls so.
std::optional<Algorithm> algorithm_named(std::string_view name);
std::string_view name_of(Algorithm algorithm);

// Return the stage of `ranks` ranks on level `level`. `bytes` is the whole vector, of an all-gather its
// result. reduce_scatter and all_gather know kPairwise, kRing and kHalvingDoubling; the other algorithms
// count as pairwise.
Stage allreduce(Algorithm algorithm, int ranks, double bytes, std::size_t level = 0);
Stage reduce_scatter(Algorithm algorithm, int ranks, double bytes, std::size_t level = 0);
Stage all_gather(Algorithm algorithm, int ranks, double bytes, std::size_t level = 0);
// A binomial tree.
Stage broadcast(int ranks, double bytes, std::size_t level = 0);

// Returns the allreduce of all ranks as one group that knows nothing of levels. It is as slow as the
// outermost link. A ring whose neighbours are ranks of one part where possible crosses each end once; in
// other algorithms all ranks of a part send outwards.
Program flat(const Cluster& cluster, Algorithm algorithm, double bytes);

// Returns the allreduce over all levels: reduce-scatters from the innermost level outwards, all-gathers back
// (BlueConnect, Cho et al., MLSys 2019). With `algorithm` kRing its time with one chunk is the paper's:
//   2 sum_i [ (p_i - 1) alpha_i + (p_i - 1) / p_i * (S / prod_{j < i} p_j) / (W_i / c_i) ].
Program over_levels(const Cluster& cluster, Algorithm algorithm, double bytes);

// Returns all ordered factorisations of `ranks` into factors from 2 on: {2, 3} and {3, 2} and {6} of 6.
std::vector<std::vector<int>> factorisations(int ranks);

// Returns the cluster in which `level` is cut into levels of `factors`, innermost first, with the same link.
// Their product is the level's number of parts.
Cluster split(const Cluster& cluster, std::size_t level, const std::vector<int>& factors);

}  // namespace roundelay::model
