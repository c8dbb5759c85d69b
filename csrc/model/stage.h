// The steps of a bucket's way: what the formulas add up (seconds()) and the simulation carries out
// (simulation.h).
#pragma once

#include <cstddef>
#include <vector>

#include "model/cluster.h"

namespace roundelay::model {

// One step that every rank makes.
struct Stage {
  enum class Kind : unsigned char {
    kLink,    // with the ranks of its place in the other parts of a level
    kMemory,  // a pass over the rank's own memory
    kCopy,    // between a GPU and its host
  };
  Kind kind = Kind::kLink;
  std::size_t level = 0;  // of kLink
  double messages = 0;    // kLink: those that follow each other
  double bytes = 0;       // that each rank sends, or that the pass reads and writes
  double reduced = 0;     // kLink: bytes that each rank adds to its own
  int senders = 0;        // kLink: ranks of each part that take part; 0: all
  bool whole = false;     // kLink: all ranks are one group, whatever their level
};

// A bucket's stages, in order. They work on `chunks` equal parts of the bucket, each a stage behind the one
// before it.
struct Program {
  std::vector<Stage> stages{};
  int chunks = 1;
};

// Returns the ranks that share an end of the stage's link while it is carried out: c in the formulas.
int flows(const Stage& stage, const Cluster& cluster);

// Returns the time of one stage for one of `chunks` chunks, without contention:
//   messages * alpha + bytes * c / W + reduced * gamma.
double seconds(const Stage& stage, const Cluster& cluster, int chunks = 1);

// Returns the time of a program without contention. With q chunks that is the sum of all stages for one
// chunk, and q - 1 times the level that is busy longest with one (algorithms.md's pipeline, where both
// directions of a level share its link).
double seconds(const Program& program, const Cluster& cluster);

// Returns the program with as many chunks as make seconds() least, up to `most`.
Program with_best_chunks(Program program, const Cluster& cluster, int most = 64);

// Returns the bytes that one end of a level sends for the program.
double bytes_at(std::size_t level, const Program& program, const Cluster& cluster);

}  // namespace roundelay::model
