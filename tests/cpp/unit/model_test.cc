// The cost model: formulas against each other, against messages one by one, and against the simulation.
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "model/job.h"
#include "model/techniques.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/allreduce_messages.h"

namespace roundelay::model {
namespace {

constexpr double kExact = 1e-9;

bool equal(double a, double b) { return std::abs(a - b) <= kExact * std::max(std::abs(a), std::abs(b)); }

double last(const std::vector<double>& ends) { return *std::max_element(ends.begin(), ends.end()); }

double formula(Algorithm algorithm, int ranks, double bytes, const Link& link) {
  return seconds(allreduce(algorithm, ranks, bytes), Cluster{{{ranks, link}}});
}

// Returns the bytes that one end of a level sends for the program.
double bytes_at(std::size_t level, const Program& program, const Cluster& cluster) {
  double bytes = 0;
  for (const Stage& stage : program.stages)
    if (stage.kind == Stage::Kind::kLink && stage.level == level)
      bytes += stage.bytes * flows(stage, cluster);
  return bytes;
}

// The same job, carried out rank by rank.
Outcome rank_by_rank(Job job) {
  job.stragglers.emplace_back(0, 1.0);
  return simulate(job);
}

}  // namespace

TEST_CASE("a formula is the time of the algorithm's messages") {
  const Link link{1e-5, 1e9, 1e-10};
  for (const Algorithm algorithm :
       {Algorithm::kDirect, Algorithm::kPairwise, Algorithm::kRing, Algorithm::kRecursiveDoubling,
        Algorithm::kHalvingDoubling, Algorithm::kBinomialTree}) {
    for (int ranks = 2; ranks <= 17; ++ranks) {
      for (const double bytes : {4.0, 3000.0, 1e6, 1e8}) {
        CAPTURE(name_of(algorithm), ranks, bytes);
        const std::vector<double> begins(static_cast<std::size_t>(ranks));
        const double messages = last(*allreduce_ends(algorithm, begins, bytes, link));
        const double predicted = formula(algorithm, ranks, bytes, link);
        // Where doubling folds and where a tree has a short branch, no rank has all of the critical path's
        // work.
        const bool exact = std::has_single_bit(static_cast<unsigned>(ranks)) ||
                           algorithm == Algorithm::kDirect || algorithm == Algorithm::kPairwise ||
                           algorithm == Algorithm::kRing || algorithm == Algorithm::kHalvingDoubling;
        if (exact)
          CHECK(equal(messages, predicted));
        else
          CHECK((messages <= predicted * (1 + kExact) && messages >= 0.5 * predicted * (1 - kExact)));
      }
    }
  }
}

TEST_CASE("a late rank delays a ring by no more than its delay") {
  const Link link{1e-5, 1e9, 0};
  std::vector<double> begins(8);
  const double together = last(*allreduce_ends(Algorithm::kRing, begins, 1e6, link));
  begins[3] = 1e-3;
  const double late = last(*allreduce_ends(Algorithm::kRing, begins, 1e6, link));
  CHECK(late > together);
  CHECK(late <= together + 1e-3 + 1e-12);
}

TEST_CASE("BlueConnect over any factors sends the bytes of one level") {
  // The paper's formula: 2 sum_i [(p_i - 1) alpha_i + (p_i - 1) / p_i (S / prod_{j<i} p_j) / (W_i / c_i)].
  const double bytes = 1e6;
  const Cluster cluster{{{4, {3e-6, 20e9}}, {6, {5e-6, 12.5e9, 0, 4}}, {8, {7e-6, 3e9, 0, 24}}}};
  double expected = 0, left = bytes;
  for (const Level& level : cluster.levels) {
    const double p = level.parts;
    expected +=
        2 * ((p - 1) * level.link.latency + (p - 1) / p * left / (level.link.bandwidth / level.link.sharers));
    left /= p;
  }
  CHECK(equal(seconds(over_levels(cluster, Algorithm::kRing, bytes), cluster), expected));

  const Cluster nodes{{{4, {3e-6, 20e9}}, {48, {5e-6, 12.5e9, 0, 4}}}};
  const double together = bytes_at(1, over_levels(nodes, Algorithm::kRing, bytes), nodes);
  CHECK(equal(together, 2.0 * 47 / 48 * bytes));
  for (const std::vector<int>& factors : factorisations(48)) {
    const Cluster cut = split(nodes, 1, factors);
    double all = 0;
    for (std::size_t level = 1; level < cut.levels.size(); ++level)
      all += bytes_at(level, over_levels(cut, Algorithm::kRing, bytes), cut);
    CHECK(equal(all, together));
  }
}

TEST_CASE("the published comparison of BlueConnect's factors with a ring comes out") {
  // 192 = 4 x 48 GPUs, NVLink 20 GB/s, EDR 12.5 GB/s, 3 and 5 us: milliseconds of the ring, 4x48 and 4x6x8.
  const Cluster nodes{{{4, {3e-6, 20e9}}, {48, {5e-6, 12.5e9, 0, 4}}}};
  const Cluster three = split(nodes, 1, {6, 8});
  struct Row {
    double bytes, ring, two, three;
  };
  for (const Row& row : {Row{10e3, 1.91, 0.49, 0.14}, Row{1e6, 2.07, 0.72, 0.37}, Row{10e6, 3.50, 2.81, 2.46},
                         Row{100e6, 17.8, 23.7, 23.3}}) {
    CAPTURE(row.bytes);
    CHECK(1e3 * seconds(flat(nodes, Algorithm::kRing, row.bytes), nodes) == Approx(row.ring).epsilon(0.01));
    CHECK(1e3 * seconds(over_levels(nodes, Algorithm::kRing, row.bytes), nodes) ==
          Approx(row.two).epsilon(0.02));
    CHECK(1e3 * seconds(over_levels(three, Algorithm::kRing, row.bytes), three) ==
          Approx(row.three).epsilon(0.03));
  }
  const Program piped = with_best_chunks(over_levels(nodes, Algorithm::kRing, 100e6), nodes);
  CHECK(piped.chunks > 1);
  CHECK(seconds(piped, nodes) < seconds(over_levels(nodes, Algorithm::kRing, 100e6), nodes));
}

TEST_CASE("the simulation gives the recursion of wait-free backpropagation") {
  const Link link{1e-5, 1e9, 1e-10};
  std::mt19937 random(7);
  std::uniform_real_distribution<double> part(0, 1);
  for (int round = 0; round < 20; ++round) {
    Job job{.cluster = {{{4, link}}}, .at_once = 1};
    job.forward = part(random);
    double communicated = 0;  // when the link is free
    for (int layer = 0; layer <= round; ++layer) {
      job.backward += part(random);
      const Program program{{allreduce(Algorithm::kRing, 4, 2e9 * part(random))}};
      communicated = std::max(job.backward, communicated) + seconds(program, job.cluster);
      job.buckets.push_back({job.backward, program});
    }
    for (const Outcome& outcome : {simulate(job), rank_by_rank(job)}) {
      CHECK(equal(outcome.seconds, job.forward + communicated));
      CHECK(std::abs(outcome.exposed - (communicated - job.backward)) < kExact * outcome.seconds);
    }
  }
}

TEST_CASE("without contention a program takes the time of its formula") {
  const Cluster cluster{{{2, {2e-6, 5e9, 1e-10}}, {3, {1e-5, 1e9, 2e-10, 2}}, {2, {3e-5, 2e8, 0, 6}}}, 1e10};
  std::vector<Program> programs{dense(cluster, {3e7, 4}, 4),
                                dense(cluster, {3e7, 4}, 2),
                                csc(cluster, {3e7, 4}, {}),
                                top_k(cluster, {3e7, 4}, {}),
                                power_sgd(cluster, {3e7, 4}, {2, 4000, 3000}),
                                average(cluster, {3e7, 4}),
                                daso_transfer(cluster, {3e7, 4}),
                                within_node(cluster, {3e7, 4}),
                                flat(cluster, Algorithm::kRing, 3e7),
                                flat(cluster, Algorithm::kHalvingDoubling, 3e7)};
  programs.push_back(
      {{{.kind = Stage::Kind::kMemory, .bytes = 3e7}, allreduce(Algorithm::kRing, 2, 3e7, 2)}});
  for (const Program& program : programs) {
    CAPTURE(&program - programs.data());
    const Job job{.cluster = cluster, .forward = 0.25, .backward = 0.5, .buckets = {{0.5, program}}};
    const double expected = 0.75 + seconds(program, cluster);
    CHECK(equal(simulate(job).seconds, expected));
    CHECK(equal(rank_by_rank(job).seconds, expected));
    CHECK(equal(simulate(job).bytes[2], bytes_at(2, program, cluster)));
    CHECK(equal(rank_by_rank(job).bytes[2], bytes_at(2, program, cluster)));
  }
}

TEST_CASE("one rank stands for all of a symmetric job") {
  for (const int chunks : {1, 4}) {
    Job job{.cluster = {{{4, {3e-6, 2e9}}, {3, {5e-6, 1e9, 1e-10, 4}}}, 2e10},
            .forward = 0.05,
            .backward = 0.1,
            .update = 0.01,
            .steps = 5};
    for (int bucket = 1; bucket <= 6; ++bucket) {
      Program program = over_levels(job.cluster, Algorithm::kPairwise, 64e6);
      program.chunks = chunks;
      job.buckets.push_back({0.1 * bucket / 6, program});
    }
    job.transfer = {2, 1, daso_transfer(job.cluster, {1e8, 4})};
    const Outcome one = simulate(job), all = rank_by_rank(job);
    CHECK(one.symmetric);
    CHECK_FALSE(all.symmetric);
    CHECK(one.events < all.events);
    CHECK(equal(one.bytes[1], all.bytes[1]));
    CHECK(equal(one.seconds, all.seconds));
  }
}

TEST_CASE("a straggler and jitter lengthen the step, and a seed fixes them") {
  Job job{.cluster = {{{8, {1e-5, 1e9}}}}, .forward = 0.1, .backward = 0.2, .steps = 20};
  job.buckets.push_back({0.2, over_levels(job.cluster, Algorithm::kPairwise, 1e6)});
  const double calm = simulate(job).seconds;
  job.stragglers = {{5, 1.5}};
  CHECK(simulate(job).seconds == Approx(calm + 20 * 0.15).epsilon(1e-6));
  job.stragglers.clear();
  job.jitter = 0.1;
  job.seed = 1;
  const double first = simulate(job).seconds;
  // The mean of the largest of 8 lognormal factors of this sigma is about 1.15.
  CHECK(first > calm * 1.05);
  CHECK(first < calm * 1.3);
  CHECK(simulate(job).seconds == first);
  job.seed = 2;
  CHECK(simulate(job).seconds != first);
}

TEST_CASE("a transfer of parameters hides behind the steps that it may take") {
  Job job{.cluster = {{{2, {0, 1e12}}, {2, {0, 1e8, 0, 2}}}}, .forward = 0.4, .backward = 0.6, .steps = 12};
  job.transfer = {4, 0, average(job.cluster, {1e8, 4})};  // 1 s of the wire
  const double transfer = seconds(job.transfer.program, job.cluster);
  CHECK(transfer == Approx(1.0).epsilon(0.001));
  CHECK(simulate(job).seconds == Approx(12 + 3 * transfer).epsilon(1e-6));
  job.transfer.wait = 2;
  // The last one is still on its way when the job ends.
  CHECK(simulate(job).seconds == Approx(12).epsilon(1e-6));
}

TEST_CASE("of two buckets at once, one is in the node while one is between nodes") {
  Job job{.cluster = {{{2, {0, 1e9}}, {2, {0, 1e9, 0, 2}}}}, .at_once = 1};
  for (int bucket = 0; bucket < 8; ++bucket)
    job.buckets.push_back({0, over_levels(job.cluster, Algorithm::kPairwise, 1e8)});
  const double one = simulate(job).seconds;
  job.at_once = 2;
  const double two = simulate(job).seconds;
  CHECK(equal(one, 8 * seconds(job.buckets[0].program, job.cluster)));
  CHECK(two < 0.75 * one);
}

TEST_CASE("512 nodes of 8 ranks with 16 buckets are simulated rank by rank") {
  Job job{.cluster = {{{8, {3e-6, 20e9}}, {512, {5e-6, 12.5e9, 0, 8}}}},
          .forward = 0.05,
          .backward = 0.1,
          .jitter = 0.05};
  for (int bucket = 1; bucket <= 16; ++bucket)
    job.buckets.push_back({0.1 * bucket / 16, over_levels(job.cluster, Algorithm::kPairwise, 6.4e6)});
  const Outcome outcome = simulate(job);
  CHECK(outcome.events < 2'000'000);
  CHECK(outcome.seconds > 0.15);
  CHECK(outcome.seconds < 0.3);
}

TEST_CASE("top-k's break-even is where both send the same bytes") {
  const Cluster cluster{{{2, {0, 1e9}}, {4, {0, 1e8, 0, 2}}}};
  const double density = 2.0 * 4 / (4 * 8);  // of 4 nodes, for elements of 4 bytes and pairs of 8
  const double sparse = bytes_at(1, top_k(cluster, {4e6, 4}, {.density = density}), cluster);
  CHECK(equal(sparse, bytes_at(1, dense(cluster, {4e6, 4}, 4), cluster)));
}

}  // namespace roundelay::model
