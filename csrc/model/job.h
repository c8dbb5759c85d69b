// The simulation of a training job: ranks that compute, lanes that carry out buckets, links that they share.
// The same stages as the formulas (stage.h) become events, so that what a formula leaves out is seen:
// contention, late ranks, buckets that wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "model/stage.h"

namespace roundelay::model {

// A bucket of gradients in one step.
struct ReadyBucket {
  double ready = 0;   // seconds from the beginning of backward until the bucket's last gradient is there
  Program program{};  // its stages from then on
};

// Parameters that travel apart from gradients, on a lane of their own: DASO, local SGD.
struct Transfer {
  int every = 0;  // steps from one to the next; 0: there are none
  int wait = 0;   // the number of steps that begin without its result; 0: the next step waits for it
  Program program{};
};

// A training. In a step each rank computes forward and backward. Meanwhile buckets leave, in their order.
// When backward has ended and all buckets are reduced, the rank updates its parameters, and begins the next
// step.
struct Job {
  Cluster cluster{};
  double forward = 0, backward = 0, update = 0;  // seconds of a rank that is not late
  // Seconds from a bucket's last gradient on a rank, or from parameters that are to travel, until its first
  // stage may begin: the ranks agree on the order, and threads wake up.
  double overhead = 0;
  std::vector<ReadyBucket> buckets{};  // the first one leaves first
  Transfer transfer{};
  int steps = 1;
  int at_once = 2;  // the most buckets of a rank that are under way at once, each at another stage
  // Standard deviation of the logarithm of a rank's time to compute, drawn for each rank and step; its mean
  // is 1.
  double jitter = 0;
  std::vector<std::pair<int, double>> stragglers{};  // slow ranks, and the factor of their time to compute
  std::uint64_t seed = 0;
};

struct Outcome {
  double seconds = 0;  // the time of all steps
  double exposed = 0;  // seconds in which a rank only waited for communication: the mean of ranks
  std::vector<double>
      step_ends{};              // seconds from the job's beginning to the end of each step on its last rank
  std::vector<double> bytes{};  // the bytes that the busiest end of each level sent
  std::vector<double> busy{};   // the seconds in which the busiest end of each level sent
  std::uint64_t events = 0;     // the number of events that the simulation has handled
  bool symmetric = false;       // one rank stood for all
};

// Carries the job out. If all ranks are alike (no jitter, no stragglers), one stands for all. Each event
// takes about a microsecond; memory grows with ranks times buckets under way. The same job gives the same
// outcome. Precondition: at least one step and one bucket at once, ready times ascend, stragglers are ranks
// of the cluster, no stage is from one part, and all ranks are alike if nodes have different numbers of them.
Outcome simulate(const Job& job);

}  // namespace roundelay::model
