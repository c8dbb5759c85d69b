#include "tests/cpp/unit/allreduce_messages.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>

namespace roundelay::model {
namespace {

struct Message {
  int from = 0, to = 0;
  double bytes = 0;
  bool reduced = false;  // the receiver adds it
};
using Round = std::vector<Message>;

void all_to_all(std::vector<Round>& rounds, int ranks, double bytes, bool reduced) {
  Round round;
  for (int from = 0; from < ranks; ++from)
    for (int step = 1; step < ranks; ++step) round.push_back({from, (from + step) % ranks, bytes, reduced});
  rounds.push_back(std::move(round));
}

std::vector<Round> ring(int ranks, double bytes) {
  std::vector<Round> rounds;
  for (int step = 0; step < 2 * (ranks - 1); ++step) {
    Round round;
    for (int rank = 0; rank < ranks; ++rank)
      round.push_back({rank, (rank + 1) % ranks, bytes / ranks, step < ranks - 1});
    rounds.push_back(std::move(round));
  }
  return rounds;
}

// Ranks 2 r and 2 r + 1 fold into one as long as there are more ranks than the power of two.
struct Folded {
  explicit Folded(int ranks)
      : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))), extra(ranks - core) {}
  [[nodiscard]] int rank_of(int member) const { return member < extra ? 2 * member : member + extra; }

  int core;
  int extra;
};

// Appends an exchange between the members at `distance`.
void exchange(std::vector<Round>& rounds, const Folded& folded, int distance, double bytes, bool reduced) {
  Round round;
  for (int member = 0; member < folded.core; ++member)
    round.push_back({folded.rank_of(member), folded.rank_of(member ^ distance), bytes, reduced});
  rounds.push_back(std::move(round));
}

std::vector<Round> between_folds(const Folded& folded, double bytes,
                                 const std::function<void(std::vector<Round>&)>& core) {
  std::vector<Round> rounds;
  Round in, out;
  for (int member = 0; member < folded.extra; ++member) {
    in.push_back({2 * member + 1, 2 * member, bytes, true});
    out.push_back({2 * member, 2 * member + 1, bytes, false});
  }
  if (folded.extra > 0) rounds.push_back(std::move(in));
  core(rounds);
  if (folded.extra > 0) rounds.push_back(std::move(out));
  return rounds;
}

std::vector<Round> recursive_doubling(int ranks, double bytes) {
  const Folded folded(ranks);
  return between_folds(folded, bytes, [&](std::vector<Round>& rounds) {
    for (int distance = 1; distance < folded.core; distance *= 2)
      exchange(rounds, folded, distance, bytes, true);
  });
}

std::vector<Round> halving_doubling(int ranks, double bytes) {
  const Folded folded(ranks);
  return between_folds(folded, bytes, [&](std::vector<Round>& rounds) {
    double range = bytes;
    for (int distance = 1; distance < folded.core; distance *= 2)
      exchange(rounds, folded, distance, range /= 2, true);
    for (int distance = folded.core / 2; distance > 0; distance /= 2) {
      exchange(rounds, folded, distance, range, false);
      range *= 2;
    }
  });
}

std::vector<Round> binomial_tree(int ranks, double bytes) {
  std::vector<Round> up, down;
  for (int distance = 1; distance < ranks; distance *= 2) {
    Round round;
    for (int rank = distance; rank < ranks; rank += 2 * distance)
      round.push_back({rank, rank - distance, bytes, true});
    Round back = round;
    for (Message& message : back) message = {message.to, message.from, bytes, false};
    up.push_back(std::move(round));
    down.insert(down.begin(), std::move(back));
  }
  up.insert(up.end(), down.begin(), down.end());
  return up;
}

std::vector<Round> rounds_of(Algorithm algorithm, int ranks, double bytes) {
  std::vector<Round> rounds;
  switch (algorithm) {
    case Algorithm::kDirect:
      all_to_all(rounds, ranks, bytes, true);
      return rounds;
    case Algorithm::kPairwise:
      all_to_all(rounds, ranks, bytes / ranks, true);
      all_to_all(rounds, ranks, bytes / ranks, false);
      return rounds;
    case Algorithm::kRing:
      return ring(ranks, bytes);
    case Algorithm::kRecursiveDoubling:
      return recursive_doubling(ranks, bytes);
    case Algorithm::kHalvingDoubling:
      return halving_doubling(ranks, bytes);
    case Algorithm::kBinomialTree:
      return binomial_tree(ranks, bytes);
    case Algorithm::kPipelinedTree:
      break;
  }
  return rounds;
}

}  // namespace

std::optional<std::vector<double>> allreduce_ends(Algorithm algorithm, std::span<const double> begins,
                                                  double bytes, const Link& link) {
  if (algorithm == Algorithm::kPipelinedTree) return std::nullopt;
  std::vector<double> done(begins.begin(), begins.end());
  if (begins.size() < 2) return done;
  for (const Round& round : rounds_of(algorithm, static_cast<int>(begins.size()), bytes)) {
    std::vector<double> sent = done, next = done, added(done.size());
    for (const Message& message : round) {
      double& leaves = sent[static_cast<std::size_t>(message.from)];
      double& comes = next[static_cast<std::size_t>(message.to)];
      leaves += message.bytes / link.bandwidth;
      comes = std::max(comes, leaves + link.latency);
      if (message.reduced) added[static_cast<std::size_t>(message.to)] += message.bytes * link.reduce;
    }
    for (std::size_t rank = 0; rank < done.size(); ++rank)
      done[rank] = std::max(sent[rank], next[rank]) + added[rank];
  }
  return done;
}

}  // namespace roundelay::model
