// The stages of a bucket's path. The formulas (seconds()) add them up, and the simulation (job.h) carries
// them out.
#pragma once

#include <cstddef>
#include <vector>

#include "model/cluster.h"

namespace roundelay::model {

// One stage, which all ranks carry out at the same time.
struct Stage {
  enum class Kind : unsigned char {
    kLink,    // messages between ranks: a rank and those of the same number in the other parts of a level
    kMemory,  // a pass over the rank's own memory
  };
  Kind kind = Kind::kLink;
  std::size_t level = 0;  // kLink: its index in the cluster
  double messages = 0;    // kLink: the number of messages of which each waits for the one before
  double bytes = 0;       // the bytes that each rank sends, or reads and writes
  double reduced = 0;     // kLink: bytes that each rank receives and adds to its own
  int senders = 0;        // kLink: the number of ranks of each part that take part, the first ones; 0: all
  bool whole = false;     // kLink: all ranks of the cluster are one group
  bool from_one = false;  // kLink: one part alone sends (or gets), while others carry out other stages
};

// A bucket's stages, in order. The bucket is cut into equal chunks. All of them go through all stages, and
// each stage works on one chunk at a time.
struct Program {
  std::vector<Stage> stages{};
  int chunks = 1;
};

// Returns the number of ranks that send over one end of the stage's link at once: c in the formulas.
int flows(const Stage& stage, const Cluster& cluster);

// Returns the time of one stage for one of `chunks` chunks, without contention:
//   messages * alpha + bytes * c / W + reduced * gamma.
double seconds(const Stage& stage, const Cluster& cluster, int chunks = 1);

// Returns the time in which `chunks` chunks go through stages that work at once: all stages for the first
// one, and the busiest resource for each other one. Both are times of one chunk.
inline double pipelined(double all_stages, double busiest, double chunks) {
  return all_stages + (chunks - 1) * busiest;
}

// Returns the time of a program without contention. All stages of a level share its link, but those from one
// part have an end of their own.
double seconds(const Program& program, const Cluster& cluster);

// Returns the bytes that the busiest end of each level sends, or gets if these are more.
std::vector<double> bytes_sent(const Program& program, const Cluster& cluster);

// Returns the program with as many chunks as make seconds() least, up to `most`.
Program with_best_chunks(Program program, const Cluster& cluster, int most = 64);

}  // namespace roundelay::model
