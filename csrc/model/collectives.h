// The messages and bytes of one collective operation, as stages. docs/fabrics.md has the table of the
// algorithms. Sources: Thakur et al. 2005 (ring, doubling, halving), and the papers that techniques.h names.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "model/stage.h"

namespace roundelay::model {

// The algorithms of an allreduce, made from base/algorithms.def.
enum class Algorithm : unsigned char {
#define ALLREDUCE(Name, ...) k##Name,
#define ALGORITHM(...)
#include "base/algorithms.def"
#undef ALLREDUCE
#undef ALGORITHM
};

// Returns the algorithm of this name, such as "ring" or "halving_doubling"; nothing: there is none.
std::optional<Algorithm> algorithm_named(std::string_view name);
// Returns the algorithm's name, which algorithm_named() takes.
std::string_view name_of(Algorithm algorithm);

// Return the stage in which `ranks` ranks, one of each part that level number `level` of the cluster joins,
// carry out the operation. `bytes` is the size of a rank's whole vector; for an all-gather, of its result.
// reduce_scatter and all_gather know kPairwise, kRing and kHalvingDoubling; they take the others for
// kPairwise.
Stage allreduce(Algorithm algorithm, int ranks, double bytes, std::size_t level = 0);
Stage reduce_scatter(Algorithm algorithm, int ranks, double bytes, std::size_t level = 0);
Stage all_gather(Algorithm algorithm, int ranks, double bytes, std::size_t level = 0);
// Returns the stage of a broadcast over a binomial tree.
Stage broadcast(int ranks, double bytes, std::size_t level = 0);

// Returns the stage of an operation by one of its algorithms, both named as in base/algorithms.def; nothing:
// there is no formula. `bytes` is as above.
std::optional<Stage> stage_of(std::string_view operation, std::string_view algorithm, int ranks,
                              double bytes);

// Returns the allreduce of all ranks as one group that knows nothing of levels. It counts as one stage on the
// outermost link. In a ring, neighbours lie in one part where possible, so that one rank of each part sends
// outwards; in other algorithms all of them do.
Program flat(const Cluster& cluster, Algorithm algorithm, double bytes);

// Returns the ordered factorisations of `ranks` into at most `most` factors from 2 on: {2, 3} and {3, 2} and
// {6} of 6.
std::vector<std::vector<int>> factorisations(int ranks, int most = std::numeric_limits<int>::max());

}  // namespace roundelay::model
